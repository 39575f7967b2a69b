// Which form sends least over B and C_out, the chosen sizes, and the runs.
import { placeOf } from "../shared/arrays.js";
import { below, beside, cross, fitted, grid, lineThrough, pointIn } from "../shared/chart.js";
import { h, s, write } from "../shared/dom.js";
import { exact } from "../shared/numbers.js";
import { labelsOf, mapOf } from "./geometry.js";
import { fitting, titleOf } from "./state.js";

/** @import { Drawn } from "./geometry.js" */
/** @import { Data, Size, Tensor } from "./state.js" */

/** The map, `height` pixels high. @type {(own: Tensor, height: number) => HTMLElement} */
export function costMap({ shown, choose }, height) {
  const { now } = shown;
  const title = h("h4", { title: "Click to choose B and C_out." });
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const element = h("div", { class: "dlv-sizes" }, title, svg);
  /** @type {Drawn | null} */
  let map = null;

  svg.addEventListener("click", (event) => {
    if (!map) return;
    const [x, y] = pointIn(svg, event);
    const { data, controls } = now;
    /** @type {(name: Size, value: number) => number} */
    const at = (name, value) => fitting(data, controls, name, data.sizes[placeOf(data.sizes, value)]);
    choose({ batch: at("batch", map.x.invert(x)), outputs: at("outputs", map.y.invert(y)) });
  });
  shown.paints(["data", "width", "part"], () => {
    const { data } = now;
    write(title, `Who sends least, C_in = ${data.controls.inputs}`);
    if (!element.clientWidth) return;
    map = mapOf(data, fitted(svg, element.clientWidth, height), height);
    svg.replaceChildren(...drawn(data, map));
    const { batch, outputs } = data.controls;
    const chosen = `Chosen: B ${batch}, C_out ${outputs}.`;
    svg.setAttribute("aria-label", `Who sends least over B and C_out. ${chosen} ${data.answer}`);
  });
  return element;
}

/** @type {(data: Data, map: Drawn) => SVGElement[]} */
function drawn(data, map) {
  const { x, y, regions, lines, across, up } = map;
  const { batch, outputs } = data.controls;
  const [left, right] = x.range;
  const [bottom, top] = y.range;
  const [cx, cy] = [x(batch), y(outputs)];
  return [
    ...regions.map(({ form, points }) => s("path", {
      class: "dlv-least", "data-form": form, d: `${lineThrough(points)}Z`, fill: data.hues[form],
    }, s("title", {}, `${nameOf(data, form)} sends least`))),
    grid({ left, right, top, bottom }, across, up),
    ...below({ bottom }, across, String, "dlv-small"),
    ...beside({ left }, up),
    s("text", { x: right, y: bottom + 25, class: "dlv-left" }, "B →"),
    s("text", { x: 2, y: bottom + 25, class: "dlv-start" }, "↑ C_out"),
    ...lines.map(({ from, to }) => s("path", { class: "dlv-equal", d: lineThrough([from, to]) })),
    ...labelsOf(map, (form) => nameOf(data, form), [cx, cy]).map(({ says, line, ...at }) =>
      s("text", { x: at.x, y: at.y, class: line ? "dlv-edge" : "dlv-winner" }, says)),
    s("path", { class: "dlv-here", d: `M${cx} ${top}V${bottom}M${left} ${cy}H${right}` }),
    s("circle", { class: "dlv-spot", cx, cy, r: 5, fill: data.hues[data.controls.form] }),
    ...data.points.map((run) =>
      cross(x(run.batch), y(run.outputs), `run: ${titleOf(data, run.form)}, ${exact(run.bytes)} bytes`)),
  ];
}

/** The name of a form on the map, where X cut and X whole are equally good.
 * @type {(data: Data, form: string) => string} */
function nameOf(data, form) {
  return titleOf(data, form).replace("MLP: ", "").replace(/, X \w+$/, "");
}
