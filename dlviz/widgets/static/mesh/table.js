// What goes over fast and slow links along each axis in a step, and what was measured.
import { h } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";
import { chosen, traffic } from "./state.js";
import { groupWords } from "./words.js";

/** @import { Axis, Mesh, Data } from "./state.js" */

const HEADS = ["bytes of all ranks in a step", "groups", "a rank sends at most", "inside nodes", "between nodes",
  "calls take"];

/**
 * @param {Mesh} own
 * @returns {HTMLElement}
 */
export function trafficTable({ shown }) {
  const { now } = shown;
  const box = h("div", { class: "dlv-scroll" });
  const show = (axis) => {
    shown.set({ axis });
    shown.flush();
  };
  shown.paints(["data", "axis"], () => box.replaceChildren(tableOf(now.data, now.axis, show)));
  return box;
}

/** @type {(data: Data, chosenAxis: Axis, show: (axis: Axis) => void) => HTMLElement} */
function tableOf(data, chosenAxis, show) {
  const { placement, at, run } = chosen(data);
  const { axes, hues } = data;
  const sides = [placement, ...(run ? [run] : [])];
  const most = Math.max(1, ...sides.flatMap((side) => axes.flatMap(([axis]) => Object.values(traffic(side, axis)))));
  const bar = (many, axis, side) => h("td", { class: `dlv-amount dlv-meshbar dlv-${side}` },
    h("span", { style: `width: ${(100 * many) / most}%; color: ${hues[axis]}` }), exact(many));
  const cells = (side, axis, groups, took) => {
    const { inside, between } = traffic(side, axis);
    return [
      h("td", { class: "dlv-amount" }, groups), h("td", { class: "dlv-amount" }, exact(Math.max(...side.sent[axis]))),
      bar(inside, axis, "inside"), bar(between, axis, "between"), h("td", { class: "dlv-amount" }, took),
    ];
  };
  return h("table", { class: "dlv-prices dlv-ways" },
    h("thead", {}, h("tr", {}, HEADS.map((text, i) => h("th", { scope: "col", class: i && "dlv-amount" }, text)))),
    h("tbody", {}, axes.flatMap(([axis, title]) => [
      h("tr", { "aria-selected": String(axis === chosenAxis), "data-axis": axis },
        h("th", { scope: "row" }, h("button", {
          type: "button", class: "dlv-link", "aria-label": `${axis}, ${title}: its groups`, onclick: () => show(axis),
        }, `${axis}, ${title}`)),
        cells(placement, axis, groupWords(placement.groups[axis]),
          seconds(placement.seconds[axis][at]))),
      ...(run ? [h("tr", { class: "dlv-ran" }, h("th", { scope: "row" }, "measured"), cells(run, axis, "", ""))] : []),
    ])),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 5 }, "a step takes"),
      h("td", { class: "dlv-amount" }, seconds(placement.total[at]))),
    run ? h("tr", {}, h("th", { scope: "row", colspan: 5 }, "measured, by the device clock"),
      h("td", { class: "dlv-amount" }, seconds(run.total))) : null));
}

function exact(value) {
  return value.toLocaleString("en");
}
