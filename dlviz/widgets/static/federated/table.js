// The runs in numbers, with the controls in which they differ; choosing one shows its clients.
import { amount, bytes, seconds } from "../shared/numbers.js";
import { table } from "../shared/table.js";
import { showRun } from "./state.js";
import { percent } from "./words.js";

/** @import { Federated } from "./state.js" */

/** @type {(values: number[]) => number} */
const last = (values) => values[values.length - 1];

/** @type {(own: Federated) => HTMLElement} */
export function runsTable(own) {
  const { shown } = own;
  const box = table(own, ["data", "live"], () => {
    const { runs, current } = shown.now.data;
    return {
      kind: "dlv-runtable",
      heads: [
        runs.every(({ recorded }) => recorded) ? "recorded run" : "run", "recognised", "bytes", "modelled time", "ε",
      ],
      rows: runs.map(({ recorded, name, accuracy, nbytes, seconds: took, epsilon, color, dash }, i) => ({
        name: recorded && !runs[0].recorded ? `${name} (recorded)` : name, line: { color, dash },
        press: () => showRun(own, i), chosen: i === current,
        cells: [percent(last(accuracy)), bytes(last(nbytes)), seconds(last(took)),
          epsilon.length ? amount(last(epsilon)) : "–"],
      })),
    };
  }, "dlv-scroll dlv-runs");
  shown.paints(["data"], () => void (box.hidden = !shown.now.data.runs.length));
  return box;
}
