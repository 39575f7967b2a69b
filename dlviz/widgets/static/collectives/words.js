// What is said of prices and runs.
import { besideWords, bytes, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Data } from "./state.js" */

/**
 * Who is called the cheapest.
 * @param {Pick<Data, "near">} data
 * @returns {string}
 */
export const CHEAPEST = ({ near }) => `cheapest (within ${100 * near} %)`;

/**
 * Which algorithm is the cheapest from which size on.
 * @param {Data} data
 * @returns {string}
 */
export function cheapestWords(data) {
  const { cheapest, names } = data;
  const [[, first], ...later] = cheapest;
  const turns = later.map(([from, name]) => `then ${names[name]} from ${bytes(Math.round(from))}`);
  return `The ${CHEAPEST(data)}: ${[names[first], ...turns].join(", ")}.`;
}

/**
 * What became of the last run.
 * @param {Now<Data>} now
 * @returns {string}
 */
export function ranWords({ data, controls, live }) {
  const { run, limits, names } = data;
  if (!run) return live && controls.ranks > limits.run ? `At most ${limits.run} ranks can be run here.` : "";
  return outcome(run, () => [
    `${names[run.algorithm]} of ${bytes(run.nbytes)}: measured ${besideWords(run.measured, run.predicted, seconds)}.`,
  ]);
}

/**
 * A bandwidth.
 * @param {number | null} value bytes a second
 * @returns {string}
 */
export function rate(value) {
  if (value == null) return "";
  return value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`;
}
