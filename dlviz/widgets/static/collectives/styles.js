// The styles of the lines in the explorer of collectives.

/** @import { Prices } from "./state.js" */

/** @type {Record<string, string | null>} */
const DASHES = {
  solid: null, dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3",
};

/** The style of an algorithm's line. @type {(data: Prices, name: string) => { color: string, dash: string | null }} */
export function styleOf({ styles, algorithms }, name) {
  const [color, dash] = styles[algorithms.indexOf(name)];
  return { color, dash: DASHES[dash] };
}
