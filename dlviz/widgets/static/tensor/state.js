// What the kernel sends of a shared layer, sizes that the ranks divide, and what a page without a kernel can show.
import { aheadOf, isAlong } from "../shared/ahead.js";
import { clamp } from "../shared/arrays.js";

/** @import { Ahead } from "../shared/ahead.js" */
/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Part, Tabs } from "../shared/tabs.js" */
/** @import { Style } from "../shared/theme.js" */

/** `batch`: rows of X; the typed text if that is no number, as `inputs` and `outputs`.
 * @typedef {{ form: string, ranks: number, batch: number, inputs: number, outputs: number }} Controls */

/** @typedef {"batch" | "inputs" | "outputs"} Size */

/** @typedef {[top: number, bottom: number, left: number, right: number]} Block rows and columns from, to */

/** A matrix; `cut` is "rows", "columns", "whole" or "sum", `blocks` are by rank, `sign` is the sign after it. `goes` is
 * the direction of its collective: 1 to the next column, -1 from there; `bytes` a rank sends in it.
 * @typedef {{ name: string, made: string, dims: [Size, Size], shape: [number, number], cut: string, blocks: Block[],
 *   sign: string, goes?: number, collective?: string, bytes?: number }} Matrix */

/** @typedef {{ form: string, elements: string[], directions: number[], bytes: number, seconds: number }} Price */

/** For each C_out of `columns` the `best` form, and the B from which `data` sends less; the ends of lines are [B,
 * C_out].
 * @typedef {{ data: string, columns: number[], best: string[], threshold: number[], lines: { says: string, ends:
 *   [number, number][] }[] }} CostMap */

/** The result of a run; `first` is the row of the first message of each direction, -1 if there is none.
 * @typedef {{ error?: string, stopped?: string, directions: number[], bytes: number, first: number[], seconds:
 *   number, late: string, summary: string[] }} Run */

/**
 * @typedef {object} Layer
 * @property {Controls} controls
 * @property {[form: string, title: string, cuts: Size[]][]} forms
 * @property {Record<Size, string>} names
 * @property {string[]} directions
 * @property {number[]} sizes
 * @property {Record<string, string>} hues of the forms
 * @property {Style[]} owners
 * @property {(Matrix | null)[][]} matrices of the forward and, each below its own, gradients of the backward
 * @property {"form" | "run"} drawn source of the blocks
 * @property {Price[]} prices
 * @property {CostMap} map
 * @property {string} answer
 * @property {string} long why it cannot run here, or ""
 * @property {Run | null} run
 * @property {number} ran
 * @property {(Controls & { bytes: number })[]} points runs on the map
 */

/** @typedef {Answer & Layer} Data */

/** Further state: a tab, the highlighted rank (-1: all), and the hovered one.
 * @typedef {{ part: Part, rank: number, pointed: number }} More */

/** @typedef {Explorer<Data, More> & { tabs: Tabs }} Tensor */

/** The title of a form. @type {(data: Pick<Layer, "forms">, form: string) => string} */
export function titleOf({ forms }, form) {
  return forms.find(([name]) => name === form)?.[1] ?? form;
}

/** The nearest size that the ranks can divide in the chosen form.
 * @type {(data: Pick<Layer, "forms" | "sizes">, controls: Controls, name: Size, size: number) => number} */
export function fitting({ forms, sizes }, { form, ranks }, name, size) {
  const cut = forms.find(([own]) => own === form)?.[2].includes(name);
  const step = cut ? ranks : 1;
  const largest = Math.floor(sizes[sizes.length - 1] / step) * step;
  return clamp(Math.round(size / step) * step, step, largest);
}

/** What can be shown before the kernel answers: the picture sent ahead along a slider, without a run.
 * @type {(data: Data, controls: Controls, ahead: Ahead) => Data} */
export function foresee(data, controls, ahead) {
  const picture = aheadOf(data, controls, ahead);
  return picture ? { ...data, ...picture, controls, run: null } : data;
}

/** The request for pictures ahead along the slider of one of `values`; null if they were sent.
 * @type {(now: { data: Data, ahead: Ahead }, values: Record<string, unknown>) => { name: Size, sizes: number[] } |
 *   null} */
export function along({ data, ahead }, values) {
  const name = /** @type {Size[]} */ (Object.keys(data.names)).find((one) => one in values);
  if (!name || isAlong(data, ahead, name)) return null;
  return { name, sizes: data.sizes.map((size) => fitting(data, data.controls, name, size)) };
}
