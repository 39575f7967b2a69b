// Prices and runs in words.
import { besideWords, bytes, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Data } from "./state.js" */

/** What "cheapest" means. @type {(data: Pick<Data, "near">) => string} */
export const CHEAPEST = ({ near }) => `cheapest (within ${100 * near} %)`;

/** From which size on each algorithm is the cheapest. @type {(data: Data) => string} */
export function cheapestWords(data) {
  const { cheapest, names } = data;
  const [[, first], ...later] = cheapest;
  const turns = later.map(([from, name]) => `then ${names[name]} from ${bytes(Math.round(from))}`);
  return `The ${CHEAPEST(data)}: ${[names[first], ...turns].join(", ")}.`;
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
export function ranWords({ data, controls, live }) {
  const { run, limits, names } = data;
  if (!run) return live && controls.ranks > limits.run ? `At most ${limits.run} ranks can be run here.` : "";
  return outcome(run, () => [
    `${names[run.algorithm]} of ${bytes(run.nbytes)}: measured ${besideWords(run.measured, run.predicted, seconds)}.`,
  ]);
}

/** A bandwidth, given in bytes per second. @type {(value: number | null) => string} */
export function rate(value) {
  if (value == null) return "";
  return value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`;
}
