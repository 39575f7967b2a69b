// Step time over memory of all plans: the draggable limit, the best plan, the chosen one and its run.
import { below, beside, cross, fitted, grid, pointIn } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { bytes, seconds } from "../shared/numbers.js";
import { tooltip } from "../shared/tooltip.js";
import { mapOf, planAt } from "./geometry.js";
import { bestOf, chosenOf, limitOf, meshOf, nameOf, runOf } from "./state.js";
import { mapWords, planLines } from "./words.js";

/** @import { Tooltip } from "../shared/tooltip.js" */
/** @import { Drawn } from "./geometry.js" */
/** @import { Planner, Data } from "./state.js" */
/** @import { Scale } from "../shared/scale.js" */

const GRIP = 7; // pixels from the limit within which the pointer drags it

/** The map, `height` pixels high. @type {(own: Planner, height: number) => HTMLElement} */
export function planMap(own, height) {
  const { shown } = own;
  const { now } = shown;
  const svg = s("svg", { class: "dlv-costs dlv-planmap", role: "img" });
  const tip = tooltip(/** @type {any} */ (svg));
  const { hues, says, axes: names } = now.data;
  const legend = h("div", { class: "dlv-planlegend", "aria-hidden": "true" }, "limited by",
    Object.entries(hues).map(([by, hue]) => h("span", {},
      h("span", { class: "dlv-hue", style: `background: ${hue}` }), by in names ? by : says[by])));
  const element = h("div", { class: "dlv-plot" }, svg, legend, tip.element);
  /** @type {Drawn | null} */
  let map = null;

  pointed(own, svg, tip, () => map);
  shown.paints(["data", "controls", "width", "pointed"], () => {
    if (!element.clientWidth) return;
    const { data, controls } = now;
    if (!data.plans.dp.length) {
      map = null;
      return svg.replaceChildren();
    }
    map = mapOf(data.plans, limitOf(data, controls), fitted(svg, element.clientWidth, height), height);
    const chosen = chosenOf(data, controls);
    svg.replaceChildren(...axes(map), ...plansDrawn(data, map, limitOf(data, controls)),
      ...marked(now, map, chosen));
    svg.setAttribute("aria-label", mapWords(data, controls, chosen));
  });
  return element;
}

/** Handles the pointer: name a plan, choose it, drag the limit.
 * @type {(own: Planner, svg: SVGSVGElement, tip: Tooltip, mapNow: () => Drawn | null) => void} */
function pointed({ shown, choose }, svg, tip, mapNow) {
  const { now } = shown;
  let dragging = false;
  /** @type {(map: Drawn, x: number) => boolean} */
  const onLimit = (map, x) => Math.abs(x - map.cut) <= GRIP;
  svg.addEventListener("pointerdown", (event) => {
    const map = mapNow();
    if (!map) return;
    const [x, y] = pointIn(svg, event);
    const at = planAt(map, x, y);
    if (at >= 0) return choose({ plan: nameOf(now.data.plans, at) });
    if (!onLimit(map, x)) return;
    dragging = true;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const map = mapNow();
    if (!map) return;
    const [x, y] = pointIn(svg, event);
    if (dragging) return choose({ memory: Math.round(map.x.invert(x)) });
    const at = planAt(map, x, y);
    shown.set({ pointed: at });
    svg.style.cursor = at >= 0 ? "pointer" : onLimit(map, x) ? "ew-resize" : "default";
    if (at < 0) tip.hide();
    else tip.show(event, planLines(now.data, at, limitOf(now.data, now.controls)));
  });
  const end = () => {
    dragging = false;
  };
  svg.addEventListener("pointerup", end);
  svg.addEventListener("pointercancel", end);
  svg.addEventListener("pointerleave", () => {
    tip.hide();
    shown.set({ pointed: -1 });
  });
}

/** @type {(map: Drawn) => SVGElement[]} */
function axes({ x, y, across, up }) {
  const [left, right] = x.range;
  const [bottom, top] = y.range;
  return [
    grid({ left, right, top, bottom }, across, up),
    ...below({ bottom }, across, bytes),
    ...beside({ left }, up, seconds),
    s("text", { x: right, y: bottom + 27, class: "dlv-left" }, "memory per rank →"),
    s("text", { x: 2, y: bottom + 27, class: "dlv-start" }, "↑ seconds of a step"),
  ];
}

/** All plans: for each hue a path of those that fit, and one path of those that fail.
 * @type {(data: Data, map: Drawn, limit: number) => SVGElement[]} */
function plansDrawn({ plans, hues }, { x, y, cut, points }, limit) {
  const [bottom, top] = y.range;
  /** @type {(by: string, fits: boolean) => string} */
  const dots = (by, fits) => points.filter((_, i) => plans.limited_by[i] === by && plans.memory[i] <= limit === fits)
    .map(([px, py]) => `M${px.toFixed(1)} ${py.toFixed(1)}h0`).join("");
  return [
    s("rect", { class: "dlv-fails", x: cut, y: top, width: x.range[1] - cut, height: bottom - top }),
    ...[false, true].flatMap((fits) => Object.entries(hues).flatMap(([by, stroke]) => {
      const d = dots(by, fits);
      return d ? [s("path", { class: fits ? "dlv-plan" : "dlv-plan dlv-dim", d, stroke, "data-limit": by })] : [];
    })),
    s("path", { class: "dlv-limit", d: `M${cut} ${top}V${bottom}` }),
    s("text", { ...limitAt(x, cut), y: top + 6 }, `limit ${bytes(limit)}`),
  ];
}

/** Where the limit's name fits: to its right or its left.
 * @type {(scale: Scale, cut: number) => { x: number, class: string }} */
function limitAt({ range: [, right] }, cut) {
  const left = cut > right - 80;
  return { x: cut + (left ? -4 : 4), class: `dlv-winner ${left ? "dlv-left" : "dlv-start"}` };
}

/** The plans of the chosen mesh, the best, the chosen and the hovered one, and the run.
 * @type {(now: Planner["shown"]["now"], map: Drawn, chosen: number) => SVGElement[]} */
function marked({ data, controls, pointed: over }, { x, y, points }, chosen) {
  if (chosen < 0) return [];
  const { plans, hues } = data;
  const run = runOf(data, chosen);
  const mesh = meshOf(plans, chosen);
  /** @type {(point: [x: number, y: number], r: number, name: string) => SVGElement} */
  const ring = ([cx, cy], r, name) => s("circle", { class: name, cx, cy, r });
  const best = bestOf(plans, limitOf(data, controls));
  const [cx, cy] = points[chosen];
  return [
    ...points.filter((_, i) => meshOf(plans, i) === mesh).map((point) => ring(point, 4, "dlv-sibling")),
    s("circle", { class: "dlv-spot", cx, cy, r: 6, fill: hues[plans.limited_by[chosen]] }),
    ...(best < 0 ? [] : [s("text", { x: points[best][0], y: points[best][1] - 13, class: "dlv-winner" }, "◆ best")]),
    ...(over < 0 || over >= points.length ? [] : [ring(points[over], 8, "dlv-pointedat")]),
    ...(run ? [cross(x(run.memory), y(run.seconds))] : []),
  ];
}
