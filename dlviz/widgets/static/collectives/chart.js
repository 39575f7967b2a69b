// Seconds over size: a line for each algorithm, who is the cheapest, what was measured.
import { nearest } from "../shared/arrays.js";
import { below, beside, cross, fitted, grid, lineThrough, pointIn } from "../shared/chart.js";
import { h, s, write } from "../shared/dom.js";
import { bytes, seconds } from "../shared/numbers.js";
import { chartOf } from "./geometry.js";
import { styleOf } from "./styles.js";
import { cheapestWords } from "./words.js";

/** @import { Collectives, Data } from "./state.js" */
/** @import { Chart } from "./geometry.js" */

/**
 * @param {Collectives} own
 * @param {number} height pixels
 * @returns {HTMLElement}
 */
export function linesChart({ shown, choose }, height) {
  const { now } = shown;
  const title = h("h4", { title: "Click to choose a size." });
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const element = h("div", { class: "dlv-chart" }, title, svg);
  /** @type {Chart | null} */
  let chart = null;

  svg.addEventListener("click", (event) => {
    if (!chart) return;
    choose({ nbytes: now.data.sizes[nearest(now.data.sizes.map(chart.x), pointIn(svg, event)[0])] });
  });
  shown.paints(["data", "width", "part"], () => {
    const { data } = now;
    write(title, `Time over size: ${data.about}`);
    if (!element.clientWidth) return;
    chart = chartOf(data, fitted(svg, element.clientWidth, height), height);
    svg.replaceChildren(...drawn(data, chart));
    svg.setAttribute("aria-label", `Time over size of ${data.algorithms.length} algorithms. ${cheapestWords(data)}`);
  });
  return element;
}

/** @type {(data: Data, chart: Chart) => SVGElement[]} */
function drawn(data, chart) {
  const { box, x, y, measured } = chart;
  const { names, controls: { algorithm, nbytes } } = data;
  const spot = { cx: x(nbytes), cy: y(data.now[algorithm][0]), r: 5, fill: styleOf(data, algorithm).stroke };
  return [
    grid(box, chart.sizes, chart.seconds),
    ...below(box, chart.sizes, bytes),
    ...beside(box, chart.seconds, seconds),
    s("text", { x: box.right, y: box.bottom + 31, class: "dlv-left" }, "size"),
    s("text", { x: box.left, y: box.bottom + 31, class: "dlv-start" }, "time"),
    s("path", { class: "dlv-best", d: lineThrough(chart.best) }),
    ...chart.lines.map(({ name, points }) => s("path", {
      class: name === algorithm ? "dlv-cost dlv-own" : "dlv-cost", d: lineThrough(points), ...styleOf(data, name),
    }, s("title", {}, names[name]))),
    ...chart.crossed.map((own) => s("path", { class: "dlv-crossed", d: `M${own.x} ${own.y - 7}l7 7l-7 7l-7-7Z` },
      s("title", {}, `from ${bytes(Math.round(own.size))} on ${names[own.after]}, below it ${names[own.before]}`))),
    s("path", { class: "dlv-here", d: `M${x(nbytes)} ${box.top}V${box.bottom}` }),
    s("circle", { class: "dlv-spot", ...spot }),
    ...(measured ? [cross(measured.x, measured.y, "measured")] : []),
  ];
}
