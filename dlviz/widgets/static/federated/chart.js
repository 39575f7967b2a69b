// Test digits read over rounds, bytes, seconds or epsilon: a line for each run.
import { beside, grid, lineThrough, sized } from "../shared/chart.js";
import { h, s, write } from "../shared/dom.js";
import { tooltip } from "../shared/tooltip.js";
import { chartOf, pointAt } from "./geometry.js";
import { ACROSS, showRun } from "./state.js";
import { axisWords, chartWords, pointLines } from "./words.js";

/** @import { Chart } from "./geometry.js" */
/** @import { Across, Federated, Data } from "./state.js" */

const NONE = {
  rounds: "Accuracy is only ever measured: it needs a run.", nbytes: "Accuracy is only ever measured: it needs a run.",
  seconds: "Accuracy is only ever measured: it needs a run.", epsilon: "Only runs with noise (trust: σ, S) have an ε.",
};

/**
 * @param {Federated} own
 * @param {number} height pixels
 * @returns {HTMLElement}
 */
export function accuracyChart(own, height) {
  const { shown } = own;
  const { now } = shown;
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  const empty = h("p", { class: "dlv-nothing" });
  plot.append(tip.element, empty);
  const box = h("select", { "aria-label": "over", onchange: () => turnTo(/** @type {Across} */ (box.value)) },
    ACROSS.map(([value, words]) => h("option", { value }, words)));
  /** @type {Chart | null} */
  let chart = null;
  const turnTo = (across) => {
    shown.set({ across });
    shown.flush();
  };
  const near = ({ clientX, clientY }) => {
    const place = svg.getBoundingClientRect();
    return chart && pointAt(chart, clientX - place.left, clientY - place.top);
  };
  svg.addEventListener("pointermove", (event) => {
    const at = near(event);
    if (at) tip.show(event, pointLines(now.data.runs[at.run], at.round));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  svg.addEventListener("click", (event) => {
    const at = near(event);
    if (at) showRun(own, at.run);
  });
  shown.paints(["data", "width", "across"], () => {
    box.value = now.across;
    if (!plot.clientWidth) return;
    const width = plot.clientWidth;
    chart = chartOf(now.data.runs, now.across, width, height);
    sized(svg, width, height);
    svg.replaceChildren(...drawn(now.data, chart, now.across));
    svg.setAttribute("aria-label", chartWords(now.data));
    write(empty, chart.lines.length ? "" : NONE[now.across]);
  });
  return h("div", { class: "dlv-chart" }, h("h4", {}, "Test digits read, over ", box), plot);
}

/** @type {(data: Data, chart: Chart, across: Across) => SVGElement[]} */
function drawn({ runs, current }, { box, lines, across, up }, axis) {
  const ordered = [...lines].sort((a, b) => Number(a.run === current) - Number(b.run === current)); // on top
  const ends = ordered.map(({ run, points }) => ({ run, at: points[points.length - 1] }));
  return [
    grid(box, [], up), ...beside(box, up, (value) => `${100 * value} %`),
    ...(lines.length ? across : []).map(({ value, at }) =>
      s("text", { x: Math.min(at, box.right - 12), y: box.bottom + 12, class: "dlv-small" }, axisWords(axis, value))),
    ...ordered.map(({ run, points }) => s("path", {
      class: run === current ? "dlv-cost dlv-own" : "dlv-cost", d: lineThrough(points), stroke: runs[run].color,
      "stroke-dasharray": runs[run].dash,
    })),
    ...ends.map(({ run, at: [x, y] }) => s("circle", { class: "dlv-spot", cx: x, cy: y, r: 4, fill: runs[run].color })),
  ];
}
