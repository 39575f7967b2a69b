// The timeline of the placement: a row a device, its port below, the lower bound and the best known.
import { fitted, grid } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";
import { fills, swatch } from "../shared/paint.js";
import { scaleLinear, timeTicks } from "../shared/scale.js";
import { tooltip } from "../shared/tooltip.js";
import { HEIGHT, select } from "./graph.js";

/** @import { Scale } from "../shared/scale.js" */
/** @import { Bar, Data, Placement } from "./index.js" */

/** In pixels. @typedef {Bar & { x: number, y: number, width: number, height: number }} Placed */

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 14, 26, 20]; // pixels around the rows
const [HIGHEST, COMPUTE, PORT] = [44, 0.5, 0.16]; // pixels of a row at most; shares of it: computing, sending
const NUMBERED = 13; // pixels of a bar with a number

/** @type {(own: Placement) => HTMLElement} */
export function timeline(own) {
  const { shown } = own;
  const { now } = shown;
  const svg = s("svg", { class: "dlv-graph", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  plot.append(tip.element);
  const ranks = fills(now.data.ranks);
  const ports = fills(now.data.look.kinds, ["send", "recv"]);
  /** @type {Placed[]} */
  let bars = [];
  const barAt = (/** @type {Event} */ event) =>
    bars[Number(/** @type {Element} */ (event.target).getAttribute("data-bar") ?? -1)];
  svg.addEventListener("click", (event) => select(own, barAt(event)?.stage ?? -1));
  svg.addEventListener("pointermove", (event) => {
    const bar = barAt(event);
    if (bar) tip.show(event, barWords(bar));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  shown.paints(["data", "group", "width"], () => {
    if (!plot.clientWidth) return;
    const { data } = now;
    const x = scaleOf(data, fitted(svg, plot.clientWidth, HEIGHT));
    bars = placed(data, x, HEIGHT);
    const fillOf = (/** @type {Bar} */ { lane, rank }) => (lane === "compute" ? ranks.of(rank) : ports.of(lane));
    svg.replaceChildren(ranks.defs, ports.defs, ...axes(data, x), ...bars.flatMap((bar, i) => drawn(data, bar, i,
      { fill: fillOf(bar), chosen: bar.stage === now.group })));
    svg.setAttribute("aria-label", `Timeline. ${data.answer}`);
  });
  const mark = (/** @type {"send" | "recv"} */ kind, /** @type {string} */ says) =>
    h("span", { class: "dlv-run" }, swatch(now.data.look.kinds[kind]), says);
  return h("div", { class: "dlv-chart" }, h("h4", { class: "dlv-times" }, "As played; bold: critical path",
    mark("send", "sends"), mark("recv", "receives")), plot);
}

/** @type {(data: Data, width: number) => Scale} */
export function scaleOf({ played, bounds, best }, width) {
  return scaleLinear([0, Math.max(played.seconds, best.seconds, ...bounds) || 1], [LEFT, width - RIGHT]);
}

/** @type {(devices: number, height: number) => number} */
const rowOf = (devices, height) => Math.min(HIGHEST, (height - TOP - BOTTOM) / devices);

/** The bars; a device's port sends below its groups, and receives below that.
 * @type {(data: Data, x: Scale, height: number) => Placed[]} */
export function placed({ played, controls }, x, height) {
  const row = rowOf(controls.devices, height);
  /** @type {Record<Bar["lane"], [top: number, height: number]>} */
  const lanes = { compute: [0, COMPUTE], send: [COMPUTE + 0.03, PORT], recv: [COMPUTE + PORT + 0.05, PORT] };
  return played.bars.map((bar) => {
    const [top, share] = lanes[bar.lane];
    const y = TOP + (bar.rank + top) * row;
    return { ...bar, x: x(bar.start), y, width: x(bar.end) - x(bar.start), height: share * row };
  });
}

/** @type {(data: Data, bar: Placed, i: number, look: { fill: string, chosen: boolean }) => SVGElement[]} */
function drawn({ ranks, played }, { lane, rank, stage, x, y, width, height }, i, { fill, chosen }) {
  const computes = lane === "compute";
  const bold = played.critical.includes(i) ? " dlv-onpath" : "";
  const box = s("rect", {
    class: `dlv-node${bold}${chosen ? " dlv-chosen" : ""}`, "data-bar": i, "data-lane": lane, fill,
    x, y, width, height,
  });
  if (!computes || width < NUMBERED || height < 9) return [box];
  const middle = { x: x + width / 2, y: y + height / 2, style: `fill: ${ranks[rank].ink}` };
  return [box, s("text", middle, stage), ...(chosen ? [s("rect", {
    class: "dlv-ring", x: x + 2, y: y + 2, width: width - 4, height: height - 4,
  })] : [])];
}

/** The devices' names, seconds, the greater lower bound and the best known.
 * @type {(data: Data, x: Scale) => SVGElement[]} */
function axes({ controls: { devices }, bounds, best }, x) {
  const row = rowOf(devices, HEIGHT);
  const [left, right] = x.range;
  const bottom = TOP + devices * row;
  const ticks = timeTicks(x);
  const least = Math.max(...bounds);
  /** @type {(value: number, says: string, y: number, kind: string) => SVGElement[]} */
  const line = (value, says, y, kind) => [
    s("path", { class: kind, d: `M${x(value)} ${y + 4}V${bottom}` }),
    s("text", { class: "dlv-left", x: x(value) + (x(value) < left + 90 ? 86 : 0), y }, `${says} ${seconds(value)}`),
  ];
  return [
    grid({ left, right, top: TOP, bottom }, ticks.map((tick) => ({ value: 0, at: tick.x })), []),
    ...ticks.map((tick) => s("text", { x: tick.x, y: bottom + 13 }, tick.label)),
    ...Array.from({ length: devices }, (_, device) => s("text",
      { class: "dlv-left", x: left - 6, y: TOP + (device + COMPUTE / 2) * row }, `device ${device}`)),
    ...line(least, "no less than", 19, "dlv-here"), ...line(best.seconds, "best known", 7, "dlv-limit"),
  ];
}

/** @type {(bar: Bar) => string[]} */
export function barWords({ lane, rank, stage, peer, start, end }) {
  const what = { compute: `device ${rank} computes`, send: `to device ${peer}`, recv: `from device ${peer}` }[lane];
  const whose = lane === "compute" ? `group ${stage}` : `the value of group ${stage}`;
  return [whose, what, `${seconds(start)} to ${seconds(end)}`];
}
