// What the kernel tells of a shared layer, a size that the ranks can divide, and what a page without a kernel can show.
import { aheadOf, isAlong } from "../shared/ahead.js";
import { clamp } from "../shared/arrays.js";

/** @import { Ahead } from "../shared/ahead.js" */
/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Part, Tabs } from "../shared/tabs.js" */
/** @import { Style } from "../shared/theme.js" */

/**
 * @typedef {object} Controls
 * @property {string} form
 * @property {number} ranks
 * @property {number} batch rows of X; what was typed where that is no number, as the other two
 * @property {number} inputs
 * @property {number} outputs
 */

/** @typedef {"batch" | "inputs" | "outputs"} Size */

/** @typedef {[top: number, bottom: number, left: number, right: number]} Block rows and columns from, to */

/** A matrix; `cut` is "rows", "columns", "whole" or "sum", `blocks` are the ranks' in their order, `sign` is what comes
 * after it. `goes` is where its collective goes: 1 to the next column, -1 from there; `bytes` a rank sends in it.
 * @typedef {{ name: string, made: string, dims: [Size, Size], shape: [number, number], cut: string, blocks: Block[],
 *   sign: string, goes?: number, collective?: string, bytes?: number }} Matrix */

/** @typedef {{ form: string, elements: string[], directions: number[], bytes: number, seconds: number }} Price */

/** For each C_out of `columns` the `best` way to cut the layer, and the B from which `data` sends less; the ends
 * of lines are [B, C_out].
 * @typedef {{ data: string, columns: number[], best: string[], threshold: number[],
 *   lines: { says: string, ends: [number, number][] }[] }} CostMap */

/** What a run came to; `first` is the row of the first message of each way, -1 where there is none.
 * @typedef {{ error?: string, stopped?: string, directions: number[], bytes: number, first: number[], seconds: number,
 *   late: string, summary: string[] }} Run */

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
 * @property {"form" | "run"} drawn where the blocks are from
 * @property {Price[]} prices
 * @property {CostMap} map
 * @property {string} answer
 * @property {string} long why it cannot be run here, or ""
 * @property {Run | null} run
 * @property {number} ran
 * @property {(Controls & { bytes: number })[]} points runs on the map
 */

/** @typedef {Answer & Layer} Data */

/** What else is shown: a tab, the rank that stands out (-1: all), and the one that is pointed at.
 * @typedef {{ part: Part, rank: number, pointed: number }} More */

/** @typedef {Explorer<Data, More> & { tabs: Tabs }} Tensor */

/** What readers know a form by. @type {(data: Pick<Layer, "forms">, form: string) => string} */
export function titleOf({ forms }, form) {
  return forms.find(([name]) => name === form)?.[1] ?? form;
}

/** The size nearest to one that the ranks of the chosen form can divide.
 * @type {(data: Pick<Layer, "forms" | "sizes">, controls: Controls, name: Size, size: number) => number} */
export function fitting({ forms, sizes }, { form, ranks }, name, size) {
  const cut = forms.find(([own]) => own === form)?.[2].includes(name);
  const step = cut ? ranks : 1;
  const largest = Math.floor(sizes[sizes.length - 1] / step) * step;
  return clamp(Math.round(size / step) * step, step, largest);
}

/** What can be shown before the kernel has answered: all that it told ahead along a slider, but for a run.
 * @type {(data: Data, controls: Controls, ahead: Ahead) => Data} */
export function foresee(data, controls, ahead) {
  const picture = aheadOf(data, controls, ahead);
  return picture ? { ...data, ...picture, controls, run: null } : data;
}

/** What to ask to be told ahead along the slider of one of `values`; null where it was told.
 * @type {(now: { data: Data, ahead: Ahead }, values: Record<string, unknown>)
 *   => { name: Size, sizes: number[] } | null} */
export function along({ data, ahead }, values) {
  const name = /** @type {Size[]} */ (Object.keys(data.names)).find((one) => one in values);
  if (!name || isAlong(data, ahead, name)) return null;
  return { name, sizes: data.sizes.map((size) => fitting(data, data.controls, name, size)) };
}

/** Has the blocks of a rank stand out at once; -1: all.
 * @type {(own: Tensor, which: Partial<Pick<More, "rank" | "pointed">>) => void} */
export function standOut({ shown }, which) {
  shown.set(which);
  shown.flush();
}
