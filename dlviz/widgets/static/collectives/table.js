// The prices of all algorithms at the chosen size, in numbers and in words.
import { h, write } from "../shared/dom.js";
import { bytes, digits, seconds } from "../shared/numbers.js";
import { table } from "../shared/table.js";
import { isCheapest, styleOf } from "./state.js";
import { CHEAPEST, cheapestWords, rate } from "./words.js";

/** @import { Table } from "../shared/table.js" */
/** @import { Collectives, Data } from "./state.js" */

const HEADS = ["algorithm", "predicted", "× the least", "measured", "algorithm bandwidth", "bus bandwidth"];
const MARKS = ["broad band: the least", "◇ another algorithm takes over", "✕ measured"];

/** The sentence, the table and the key to the charts' marks, for below the charts.
 * @type {(own: Collectives) => HTMLElement[]} */
export function pricesTable(own) {
  const { shown: { now, paints }, choose } = own;
  const cheapest = h("p", { class: "dlv-cheapest" });
  const aboutRun = h("p");
  const marks = h("div", { class: "dlv-chartmarks" },
    [...MARKS, `◆ ${CHEAPEST(now.data)}`].map((line) => h("p", {}, line)), aboutRun);
  paints(["data"], () => {
    write(cheapest, cheapestWords(now.data));
    write(aboutRun, (now.data.run?.summary ?? []).join(" "));
  });
  return [cheapest, h("div", { class: "dlv-pictures" },
    table(own, ["data"], () => tableOf(now.data, (algorithm) => choose({ algorithm }))), marks)];
}

/** @type {(data: Data, choose: (algorithm: string) => void) => Table} */
function tableOf(data, choose) {
  const { controls, algorithms, names, now, run } = data;
  const best = Math.min(...algorithms.map((name) => now[name][0]));
  return {
    heads: HEADS, kind: "dlv-prices", caption: `${bytes(controls.nbytes)} on ${controls.ranks} ranks`,
    rows: algorithms.map((name) => {
      const [took, algorithmic, bus] = now[name];
      const measured = run?.measured && run.algorithm === name ? seconds(run.measured) : "";
      return {
        name: names[name], press: () => choose(name), line: styleOf(data, name), chosen: name === controls.algorithm,
        cells: [seconds(took), `${digits(took / best)}${isCheapest(data, name) ? " ◆" : ""}`, measured,
          rate(algorithmic), rate(bus)],
      };
    }),
  };
}
