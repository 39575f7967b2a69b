// What the parts of the explorer of schedules share. Only types.

/** @import { Called } from "../shared/explorer.js" */
/** @import { Gantt } from "../shared/gantt/index.js" */
/** @import { Selection } from "../shared/selection.js" */
/** @import { Stage, Toggle } from "../shared/stage.js" */
/** @import { State } from "../shared/state.js" */
/** @import { Colors, Look, Model } from "../shared/theme.js" */
/** @import { Viewport } from "../shared/viewport.js" */
/** @import { Bubbles } from "./geometry.js" */
/** @import { Side } from "./state.js" */
/** @import { Run } from "./words.js" */

/** @typedef {{ side: number, span: number, hole: number, name: string }} Chosen indices, -1 for none */

/**
 * What the kernel has sent.
 * @typedef {object} Data
 * @property {string} trace
 * @property {string} title
 * @property {Look} look
 * @property {Record<string, any>} controls
 * @property {string} error
 * @property {string} refused
 * @property {Record<string, string>} titles of schedules
 * @property {string[]} chunked schedules that take any number of chunks
 * @property {Record<string, number>} limits
 * @property {string[]} styles the colours of the sides
 * @property {any[]} sides
 * @property {Run | null} run
 * @property {number} ran
 * @property {boolean} settled
 * @property {Bubbles | null} chart what takes longer to compute, null until then
 * @property {string | null} csv the same
 * @property {number} [level]
 * @property {any[]} [levels]
 */

/**
 * What is shown now.
 * @typedef {object} Now
 * @property {Data} data
 * @property {Side[]} sides
 * @property {Bubbles} chart as last received
 * @property {string} csv the same
 * @property {Record<string, any>} controls as the reader set them
 * @property {number} from seconds
 * @property {number} to
 * @property {Chosen} chosen
 * @property {Chosen} pointed
 * @property {boolean} path whether the critical path is shown
 * @property {"" | "table" | "csv" | "board"} opened
 * @property {boolean} away whether the board yielded to the measurement, or is beside it
 * @property {boolean} live
 * @property {Colors | null} colors
 * @property {number} width
 */

/** @typedef {{ model: Model, shown: State<Now>, frame: Stage, part: Viewport, choose: (changes: Record<string,
 * unknown>) => void, can: (name: string, value?: unknown) => boolean, ask: (values: Record<string, unknown>) =>
 * void, choosing: Choosing, called: Record<string, Called>, trouble: HTMLElement, begin: () => () => void, bar: {
 * start: HTMLElement, line: HTMLElement, press: () => void, draw: () => void, stop: () => void }, pictures: Gantt[],
 * files: HTMLElement[], stopDrawing: () => void, board: Board }} Explorer */

/** @typedef {{ element: HTMLElement, turnOff: () => void, choose: (action: any) => void, openers: () => Toggle[],
 * stop: () => void }} Board */

/** `lines` describes the selection; `follows` shares it with other widgets of the shown Trace. @typedef {{ select:
 * (chosen: Partial<Chosen>, onBoard?: boolean) => void, fromBoard: (action: any) => void, moved: (event:
 * KeyboardEvent, along: number, by: number) => void, follow: (back: boolean) => void, other: () => void, clear: ()
 * => boolean, lines: () => string[], follows: () => void, stop: () => void }} Choosing */

export {};
