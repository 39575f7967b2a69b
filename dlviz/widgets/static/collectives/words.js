// What is said of prices and runs.
import { bytes, digits, seconds } from "../shared/numbers.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Data } from "./state.js" */

/**
 * Which algorithm is the cheapest from which size on.
 * @param {Data} data
 * @returns {string}
 */
export function cheapestWords({ cheapest, names, near }) {
  const [[, first], ...later] = cheapest;
  const turns = later.map(([from, name]) => `then ${names[name]} from ${bytes(Math.round(from))}`);
  return `Cheapest (within ${100 * near} %): ${[names[first], ...turns].join(", ")}.`;
}

/**
 * What became of the last run.
 * @param {Now<Data>} now
 * @returns {string}
 */
export function ranWords({ data, controls, live }) {
  const { run, limits, names } = data;
  if (!run) return live && controls.ranks > limits.run ? `At most ${limits.run} ranks can be run here.` : "";
  if (run.error) return `The run failed: ${run.error}`;
  if (run.stopped) return run.stopped;
  const gap = `${run.gap < 0 ? "−" : "+"}${Math.abs(100 * run.gap).toFixed(1)} %`;
  const took = `measured ${seconds(run.measured)}, predicted ${seconds(run.predicted)} (${gap})`;
  return `${names[run.algorithm]} of ${bytes(run.nbytes)}: ${took}.`;
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
