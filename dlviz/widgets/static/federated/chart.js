// Test digits recognised over rounds, bytes, seconds or epsilon: a line for each run.
import { h, s } from "../shared/dom.js";
import { lines } from "../shared/lines.js";
import { ACROSS, along, showRun } from "./state.js";
import { chartWords, pointLines } from "./words.js";

/** @import { Lines } from "../shared/lines.js" */
/** @import { Across, Data, Federated } from "./state.js" */

const RUN = "Accuracy is only ever measured: it needs a run.";
const NOISE = "Only runs with noise (trust: σ, S) have an ε.";
const UNITS = { rounds: "number", nbytes: "bytes", seconds: "seconds", epsilon: "number" };

/** @type {(own: Federated, height: number) => HTMLElement} */
export function accuracyChart(own, height) {
  const { shown } = own;
  const { now } = shown;
  const box = h("select", {
    "aria-label": "over",
    onchange() {
      shown.show({ across: /** @type {Across} */ (box.value) });
    },
  }, ACROSS.map(([value, words]) => h("option", { value }, words)));
  shown.paints(["across"], () => void (box.value = now.across));
  const chart = () => linesOf(now.data, now.across);
  return lines(own, {
    names: ["data", "across"], height, describe: chart, head: h("h4", {}, "Test digits recognised, over ", box),
    choose: (x, point) => point && showRun(own, chart().runs[point.line]),
    words: ({ line, i }) => pointLines(now.data.runs[chart().runs[line]], i),
    more: (x, y) => chart().lines.map((line) => s("circle", {
      class: "dlv-spot", cx: x(line.x[line.x.length - 1]), cy: y(line.y[line.y.length - 1]), r: 4, fill: line.color,
    })),
  });
}

/** The lines of the runs that have values along an axis, and the indices of these runs.
 * @type {(data: Data, across: Across) => Lines & { runs: number[] }} */
export function linesOf({ runs, ...data }, across) {
  const those = [...runs.keys()].filter((i) => along(runs[i], across).length);
  const all = those.flatMap((i) => along(runs[i], across));
  const most = Math.max(...all, 0) || 1;
  const least = Math.min(...all.filter((value) => value > 0), most);
  const log = across === "epsilon" && most > 20 * least;
  return {
    title: "Test digits recognised", said: chartWords(/** @type {Data} */ ({ runs, ...data })), runs: those,
    empty: across === "epsilon" ? NOISE : RUN,
    across: { ends: [log ? least : 0, most], log: log ? 10 : 0, unit: UNITS[across] },
    up: { ends: [0, 1], unit: "percent", marks: [0, 0.25, 0.5, 0.75, 1] },
    lines: those.map((i) => ({
      name: runs[i].name, kind: i === data.current ? "own" : "", x: along(runs[i], across), y: runs[i].accuracy,
      color: runs[i].color, dash: runs[i].dash,
    })),
  };
}
