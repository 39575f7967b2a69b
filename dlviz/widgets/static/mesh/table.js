// Bytes over fast and slow links along each axis in a step, predicted and measured.
import { h } from "../shared/dom.js";
import { exact, seconds } from "../shared/numbers.js";
import { table } from "../shared/table.js";
import { chosen, traffic } from "./state.js";
import { groupWords } from "./words.js";

/** @import { Row, Table } from "../shared/table.js" */
/** @import { Axis, Data, Mesh, Run } from "./state.js" */

const HEADS = ["bytes of all ranks in a step", "groups", "a rank sends at most", "inside nodes", "between nodes",
  "calls take"];

/** @type {(own: Mesh) => HTMLElement} */
export function trafficTable({ shown, ...own }) {
  const show = (/** @type {Axis} */ axis) => shown.show({ axis });
  return table({ shown, ...own }, ["data", "axis"], () => tableOf(shown.now.data, shown.now.axis, show));
}

/** @type {(data: Data, chosenAxis: Axis, show: (axis: Axis) => void) => Table} */
function tableOf(data, chosenAxis, show) {
  const { placement, at, run } = chosen(data);
  const { axes, hues } = data;
  const sides = [placement, ...(run ? [run] : [])];
  const most = Math.max(1, ...sides.flatMap((side) => axes.flatMap(([axis]) => Object.values(traffic(side, axis)))));
  /** @type {(many: number, axis: Axis, side: string) => HTMLElement} */
  const bar = (many, axis, side) => h("td", { class: `dlv-amount dlv-meshbar dlv-${side}` },
    h("span", { style: `width: ${(100 * many) / most}%; color: ${hues[axis]}` }), exact(many));
  /** @type {(side: Pick<Run, "sent" | "between">, axis: Axis, groups: string, took: string) => Row["cells"]} */
  const cells = (side, axis, groups, took) => {
    const { inside, between } = traffic(side, axis);
    const most = exact(Math.max(...side.sent[axis]));
    return [groups, most, bar(inside, axis, "inside"), bar(between, axis, "between"), took];
  };
  return {
    heads: HEADS,
    rows: axes.flatMap(([axis, title]) => [{
      name: `${axis}, ${title}`, label: `${axis}, ${title}: its groups`, press: () => show(axis),
      chosen: axis === chosenAxis, data: { "data-axis": axis },
      cells: cells(placement, axis, groupWords(placement.groups[axis]), seconds(placement.seconds[axis][at])),
    }, ...(run ? [{ kind: "dlv-ran", name: "measured", cells: cells(run, axis, "", "") }] : [])]),
    foot: [{ name: "a step takes", cells: [seconds(placement.total[at])] },
      ...(run ? [{ name: "measured, by the device clock", cells: [seconds(run.total)] }] : [])],
  };
}
