// What is said of prices and runs.
import { besideWords, bytes, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Data } from "./state.js" */

/** Who is called the cheapest. @type {(data: Pick<Data, "near">) => string} */
export const CHEAPEST = ({ near }) => `cheapest (within ${100 * near} %)`;

/** Which algorithm is the cheapest from which size on. @type {(data: Data) => string} */
export function cheapestWords(data) {
  const { cheapest, names } = data;
  const [[, first], ...later] = cheapest;
  const turns = later.map(([from, name]) => `then ${names[name]} from ${bytes(Math.round(from))}`);
  return `The ${CHEAPEST(data)}: ${[names[first], ...turns].join(", ")}.`;
}

/** What became of the last run. @type {(now: Now<Data>) => string} */
export function ranWords({ data, controls, live }) {
  const { run, limits, names } = data;
  if (!run) return live && controls.ranks > limits.run ? `At most ${limits.run} ranks can be run here.` : "";
  return outcome(run, () => [
    `${names[run.algorithm]} of ${bytes(run.nbytes)}: measured ${besideWords(run.measured, run.predicted, seconds)}.`,
  ]);
}

/** A bandwidth, of which bytes a second are given. @type {(value: number | null) => string} */
export function rate(value) {
  if (value == null) return "";
  return value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`;
}
