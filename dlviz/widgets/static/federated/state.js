// What the kernel sends of federated rounds: the prediction, and the runs.

/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Tabs } from "../shared/tabs.js" */

/** @typedef {"rounds" | "data" | "trust"} Tab */

/** @typedef {"rounds" | "nbytes" | "seconds" | "epsilon"} Across */

/** The prediction: digits by client and label, seconds of each client's round (0 without data), the slow and the late
 * clients; the first `attackers` attack. `epsilon` after each round, [] without noise.
 * @typedef {{ asked: number, table: number[][], seconds: number[], slow: number[], attackers: number, late:
 *   number[], each: { out: number, back: number, beside: number }, nbytes: number, lasts: number, epsilon: number[],
 *   answer: Record<Tab, string> }} Predicted */

/** A run: after each round the share of test digits recognised, all bytes, seconds and epsilon. `fates` are indices
 * into the data's `fates`, by client and round; `unchanged` are the rounds that left the weights unchanged; `saw` is a
 * histogram of what the server saw of each client it heard last; `recorded`: whether the run is part of dlviz.
 * @typedef {{ controls: Record<string, any>, name: string, color: string, dash: string, accuracy: number[], nbytes:
 *   number[], seconds: number[], epsilon: number[], fates: number[][], unchanged: number[], saw: Record<string,
 *   number[]>, summed: object | null, notes: string[], recorded: boolean }} Run */

/** @typedef {Answer & { fates: [fate: string, says: string, hue: string][], hues: Record<string, string>, parts:
 * number, predicted: Predicted, examples: boolean, runs: Run[], current: number, run: { error?: string, stopped?:
 * string } | null, ran: number }} Data */

/** @typedef {{ part: Tab, across: Across }} More */

/** @typedef {Explorer<Data, More> & { tabs: Tabs<Tab> }} Federated */

/** @type {[Across, string][]} */
export const ACROSS = [
  ["rounds", "rounds"], ["nbytes", "bytes"], ["seconds", "seconds, modelled"], ["epsilon", "ε"],
];

/** The run of the present controls, if there is one. @type {(data: Data) => Run | null} */
export function currentOf({ runs, current }) {
  return runs[current] ?? null;
}

/** A run's values along an axis, after each round; [] if it has none. @type {(run: Run, across: Across) => number[]} */
export function along(run, across) {
  return across === "rounds" ? run.accuracy.map((_, i) => i + 1) : run[across];
}

/** Shows a run, by its controls. @type {(own: Federated, place: number) => void} */
export function showRun({ shown: { now }, show }, place) {
  show(now.data.runs[place].controls);
}
