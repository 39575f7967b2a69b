// What the parts of a timeline share. Only types.

/** @import { Gantt } from "../shared/gantt/index.js" */
/** @import { Target } from "../shared/gantt/hit.js" */
/** @import { Styles } from "../shared/gantt/paint.js" */
/** @import { Selection } from "../shared/selection.js" */
/** @import { Stage } from "../shared/stage.js" */
/** @import { State } from "../shared/state.js" */
/** @import { Colors, Model } from "../shared/theme.js" */
/** @import { Viewport } from "../shared/viewport.js" */
/** @import { Clock, Scene } from "./state.js" */

/** @typedef {{ from: number, to: number, step?: number | null }} Range seconds */

/** @typedef {{ order: number[], hidden: Set<number>, pinned: Set<number> }} Arrangement of rows, by their numbers */

/** @typedef {{ colors: Colors, styles: Styles, font: string }} Painted */

/**
 * What is shown now: spans, messages and idle intervals by index, -1 for none.
 * @typedef {object} Now
 * @property {Scene} scene with its rows as arranged
 * @property {Arrangement} rows
 * @property {number} clock
 * @property {number} from seconds
 * @property {number} to
 * @property {Set<number>} hidden kinds
 * @property {boolean} arrows whether all messages are shown
 * @property {boolean} critical
 * @property {boolean} table
 * @property {boolean} source
 * @property {boolean} rowsOpen
 * @property {boolean} marksOpen
 * @property {number} hover
 * @property {number} span
 * @property {number} message
 * @property {number} idle
 * @property {Range | null} range
 * @property {{ by: string, down: boolean } | null} order of the ranks in the statistics
 * @property {Uint8Array | null} matches of a search
 * @property {string} query
 * @property {string} reply why a key did nothing
 * @property {Painted | null} look
 */

/**
 * @typedef {object} Timeline
 * @property {Model} model
 * @property {Scene} scene with its rows in the Trace's order
 * @property {State<Now>} shown
 * @property {() => Clock} clock
 * @property {Viewport} part
 * @property {Stage} frame
 * @property {Painted} look
 * @property {Gantt} picture
 * @property {{ element: HTMLElement, panels: Record<string, HTMLElement>,
 *   add: (name: string, panel: HTMLElement) => void,
 *   first: (name: string) => void, mark: (where: string | string[]) => void, sourced: boolean }} answers
 * @property {Moves} moves
 * @property {Ranges} ranges
 * @property {{ group: HTMLElement[], focus: () => void, clear: () => void, found: (matches: Uint8Array | null) => void
 *   }} search
 * @property {{ element: HTMLElement, button: HTMLElement, add: () => void, show: () => void, place: () => void,
 *   start: () => void, stop: () => void }} marks
 * @property {{ describe: () => void }} controls
 * @property {{ start: () => void, choose: (value: Selection) => void, stop: () => void }} selection
 * @property {(number: number) => void} setClock
 * @property {(rows: Arrangement) => void} arrange
 * @property {() => void} saveSvg
 */

/** `say`: says why a key did nothing.
 * @typedef {{ go: (span: number) => void, reveal: (span: number) => void, click: (target: Target | null) => void,
 *   walk: (forward: boolean) => void, climb: (by: number) => void, follow: (end: "sender" | "receiver") => void,
 *   goToCause: () => void, centre: () => void, back: () => void, forward: () => void, say: (words: string) => void
 *   }} Moves */

/** `place`: puts the edges at their places in the picture.
 * @typedef {{ set: (from: number, to: number, step?: number | null) => void, ofSelection: () => void, windowOf:
 *   (step: number) => Range, chooseStep: (step: number | null) => void, place: () => void }} Ranges */

export {};
