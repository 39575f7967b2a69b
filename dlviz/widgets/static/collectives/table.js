// The prices of all algorithms at the chosen size, in numbers and in words.
import { h, s, write } from "../shared/dom.js";
import { bytes, digits, seconds } from "../shared/numbers.js";
import { isCheapest } from "./state.js";
import { styleOf } from "./styles.js";
import { CHEAPEST, cheapestWords, rate } from "./words.js";

/** @import { Collectives, Data } from "./state.js" */

const HEADS = ["algorithm", "predicted", "× the least", "measured", "algorithm bandwidth", "bus bandwidth"];
const MARKS = ["broad band: the least", "◇ another one takes over", "✕ measured"];

/**
 * The sentence, the table and what the marks of the charts mean, to be put below the charts.
 * @param {Collectives} own
 * @returns {HTMLElement[]}
 */
export function pricesTable({ shown, choose }) {
  const { now } = shown;
  const cheapest = h("p", { class: "dlv-cheapest" });
  const box = h("div", { class: "dlv-scroll" });
  const aboutRun = h("p");
  const marks = h("div", { class: "dlv-chartmarks" },
    [...MARKS, `◆ ${CHEAPEST(now.data)}`].map((line) => h("p", {}, line)), aboutRun);
  shown.paints(["data"], () => {
    write(cheapest, cheapestWords(now.data));
    write(aboutRun, (now.data.run?.notes ?? []).join(" "));
    box.replaceChildren(tableOf(now.data, (algorithm) => choose({ algorithm })));
  });
  return [cheapest, h("div", { class: "dlv-pictures" }, box, marks)];
}

/** @type {(data: Data, choose: (algorithm: string) => void) => HTMLElement} */
function tableOf(data, choose) {
  const { controls, algorithms, names, now, run } = data;
  const best = Math.min(...algorithms.map((name) => now[name][0]));
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  const row = (name) => {
    const [took, algorithmic, bus] = now[name];
    const measured = run?.measured && run.algorithm === name ? seconds(run.measured) : "";
    return h("tr", { "aria-selected": String(name === controls.algorithm) },
      h("th", { scope: "row" }, sample(data, name), " ",
        h("button", { type: "button", class: "dlv-link", onclick: () => choose(name) }, names[name])),
      [seconds(took), `${digits(took / best)}${isCheapest(data, name) ? " ◆" : ""}`, measured, rate(algorithmic),
        rate(bus)].map(cell));
  };
  return h("table", { class: "dlv-prices" },
    h("caption", {}, `${bytes(controls.nbytes)} on ${controls.ranks} ranks`),
    h("thead", {}, h("tr", {}, HEADS.map((text, i) => h("th", { scope: "col", class: i && "dlv-amount" }, text)))),
    h("tbody", {}, algorithms.map(row)));
}

function sample(data, name) {
  return s("svg", { width: 34, height: 10, "aria-hidden": "true" },
    s("path", { class: "dlv-cost", d: "M1 5H33", ...styleOf(data, name) }));
}
