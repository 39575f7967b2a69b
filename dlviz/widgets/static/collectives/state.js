// What the kernel sends of an all-reduce, and what can be shown before it answers.
import { placeOf } from "../shared/arrays.js";

/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Part, Tabs } from "../shared/tabs.js" */

/** `alpha` (s), `beta` and `gamma` are the typed text if that is no number. @typedef {{ algorithm: string, ranks:
 * number, nbytes: number, alpha: number, beta: number, gamma: number, topology: string }} Controls */

/** @typedef {[seconds: number, algorithm: number | null, bus: number | null]} Price and its bandwidths */

/** @typedef {Record<string, number[]>} Curves seconds of each algorithm at each of `sizes` */

/** `measured` and `predicted` in seconds; `late` says why it was late, or "". @typedef {{ error?: string, stopped?:
 * string, algorithm: string, nbytes: number, measured: number, predicted: number, late: string, summary?: string[]
 * }} Run */

/**
 * @typedef {object} Prices
 * @property {Controls} controls
 * @property {string} about how the lines were computed
 * @property {string[]} algorithms
 * @property {Record<string, string>} names
 * @property {Record<string, string>} topologies
 * @property {{ ranks: [number, number], run: number }} limits
 * @property {{ color: string, dash: string }[]} styles of the algorithms' lines
 * @property {number[]} sizes bytes
 * @property {Curves} curves
 * @property {Record<string, [number[], number[], number[]]> | null} at prices at each of `sizes`
 * @property {[size: number, algorithm: string][]} cheapest from a size on
 * @property {number} near relative
 * @property {Record<string, Price>} now at the chosen size
 * @property {Run | null} run
 */

/** @typedef {Answer & Prices} Data */

/** The lines of all numbers of ranks on one network. @typedef {{ link?: Partial<Controls>, ranks?: Record<string,
 * Pick<Prices, "curves" | "cheapest">> }} Ahead */

/** The cheapest on each network with one link, as far as known: indices in `algorithms`, by ranks and size. @typedef
 * {{ link?: Partial<Controls>, of?: Record<string, number[][]> }} Maps */

/** @typedef {{ part: Part, maps: Maps }} More */

/** @typedef {Explorer<Data, More> & { tabs: Tabs }} Collectives */

/** The data for the chosen algorithm, size and, if its lines are known, number of ranks.
 * @type {(data: Data, controls: Controls, ahead: Ahead) => Data} */
export function foresee(data, controls, ahead) {
  const { algorithm, ranks, nbytes } = controls;
  const lines = ranks !== data.controls.ranks && isOf(ahead, controls) ? ahead.ranks?.[ranks] : null;
  const same = algorithm === data.controls.algorithm && nbytes === data.controls.nbytes;
  if (same && !lines) return data;
  const own = { ...data, ...(lines ? { ...lines, at: null, run: null } : {}) };
  own.controls = { ...data.controls, algorithm, nbytes, ...(lines ? { ranks } : {}) };
  if (lines || nbytes !== data.controls.nbytes) own.now = prices(own, placeOf(own.sizes, nbytes));
  return own;
}

/** Whether an algorithm is called the cheapest at the chosen size: it costs the least, or hardly more.
 * @type {(data: Pick<Prices, "now" | "near">, name: string) => boolean} */
export function isCheapest({ now, near }, name) {
  return now[name][0] <= (1 + near) * Math.min(...Object.values(now).map(([took]) => took));
}

/** Whether data belong to the link, or the network, of these controls.
 * @type {(data: { link?: Partial<Controls> }, controls: Record<string, any>) => boolean} */
export function isOf({ link }, controls) {
  return link != null && Object.entries(link).every(([name, value]) => controls[name] === value);
}

/** The style of an algorithm's line. @type {(data: Prices, name: string) => Prices["styles"][number]} */
export function styleOf({ styles, algorithms }, name) {
  return styles[algorithms.indexOf(name)];
}

/** @type {(own: Pick<Prices, "algorithms" | "at" | "curves">, place: number) => Prices["now"]} */
function prices({ algorithms, at, curves }, place) {
  return Object.fromEntries(algorithms.map((name) =>
    [name, /** @type {Price} */ (at ? at[name].map((values) => values[place]) : [curves[name][place], null, null])]));
}
