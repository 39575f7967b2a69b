// The runs in numbers, by what tells them apart; choosing one shows its clients.
import { h, s } from "../shared/dom.js";
import { bytes, seconds } from "../shared/numbers.js";
import { showRun } from "./state.js";
import { manyWords, percent } from "./words.js";

/** @import { Federated, Run } from "./state.js" */

const HEADS = ["read", "bytes", "modelled time", "ε"];

/**
 * @param {Federated} own
 * @returns {HTMLElement}
 */
export function runsTable(own) {
  const { now } = own.shown;
  const box = h("div", { class: "dlv-scroll dlv-runs" });
  own.shown.paints(["data", "live"], () => {
    const { runs, current } = now.data;
    box.hidden = !runs.length;
    const heads = [runs.every(({ recorded }) => recorded) ? "recorded run" : "run", ...HEADS];
    box.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, heads.map((text, i) => h("th", { scope: "col", class: i && "dlv-amount" }, text)))),
      h("tbody", {}, runs.map((run, i) => rowOf(own, run, i, i === current)))));
  });
  return box;
}

/** @type {(own: Federated, run: Run, place: number, current: boolean) => HTMLElement} */
function rowOf(own, run, place, current) {
  const last = run.accuracy.length - 1;
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  const sample = s("svg", { width: 26, height: 9, "aria-hidden": "true" },
    s("path", { class: "dlv-cost", d: "M1 5H25", stroke: run.color, "stroke-dasharray": run.dash }));
  return h("tr", { "aria-selected": String(current) },
    h("th", { scope: "row" }, h("span", { class: "dlv-run" }, sample,
      h("button", { type: "button", class: "dlv-link", onclick: () => showRun(own, place) },
        run.recorded && !own.shown.now.data.runs[0].recorded ? `${run.name} (recorded)` : run.name))),
    [percent(run.accuracy[last]), bytes(run.nbytes[last]), seconds(run.seconds[last]),
      run.epsilon.length ? manyWords(run.epsilon[last]) : "–"].map(cell));
}
