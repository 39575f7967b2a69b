// Seconds over size: a line for each algorithm, the cheapest one, and measurements.
import { nearest } from "../shared/arrays.js";
import { s } from "../shared/dom.js";
import { lines } from "../shared/lines.js";
import { bytes } from "../shared/numbers.js";
import { styleOf } from "./state.js";
import { cheapestWords } from "./words.js";

/** @import { Lines } from "../shared/lines.js" */
/** @import { Collectives, Data } from "./state.js" */

const ROOM = 1.3; // beyond the lowest and the highest value, as a ratio

/** @type {(own: Collectives, height: number) => HTMLElement} */
export function linesChart(own, height) {
  const { shown: { now }, choose } = own;
  return lines(own, {
    names: ["data", "part"], height, describe: () => linesOf(now.data),
    choose(size) {
      const { sizes } = now.data;
      choose({ nbytes: sizes[nearest(sizes.map(Math.log), Math.log(size))] });
    },
    more: (x, y) => crossedOf(now.data).map((one) => s("path", {
      class: "dlv-crossed", d: `M${x(one.size)} ${y(one.took) - 7}l7 7l-7 7l-7-7Z`,
    }, s("title", {}, `from ${bytes(Math.round(one.size))} on ${one.after}, below it ${one.before}`))),
  });
}

/** @type {(data: Data) => Lines} */
export function linesOf(data) {
  const { sizes, curves, algorithms, names, run, about, controls: { algorithm, nbytes } } = data;
  const all = [...algorithms.flatMap((name) => curves[name]), ...(run?.measured ? [run.measured] : [])];
  const least = sizes.map((_, i) => Math.min(...algorithms.map((name) => curves[name][i])));
  return {
    title: `Time over size: ${about}`,
    said: `Time over size of ${algorithms.length} algorithms. ${cheapestWords(data)}`,
    across: { ends: [sizes[0], sizes[sizes.length - 1]], log: 10, unit: "bytes", label: "size" },
    up: { ends: [Math.min(...all) / ROOM, Math.max(...all) * ROOM], log: 10, unit: "seconds", label: "time" },
    here: nbytes,
    lines: [{ name: "the least", kind: "best", x: sizes, y: least }, ...algorithms.map((name) => ({
      name: names[name], kind: name === algorithm ? "own" : "", x: sizes, y: curves[name], ...styleOf(data, name),
    }))],
    measured: run?.measured ? [{ x: run.nbytes, y: run.measured, says: "measured" }] : [],
  };
}

/** Where another algorithm becomes the cheapest.
 * @type {(data: Data) => { size: number, took: number, before: string, after: string }[]} */
export function crossedOf({ sizes, curves, cheapest, names }) {
  return cheapest.slice(1).map(([size, after], i) => {
    const next = Math.max(1, sizes.findIndex((own) => own >= size));
    const share = (size - sizes[next - 1]) / (sizes[next] - sizes[next - 1]);
    const took = curves[after][next - 1] * (1 - share) + curves[after][next] * share;
    return { size, took, before: names[cheapest[i][1]], after: names[after] };
  });
}
