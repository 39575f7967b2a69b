// What a network learns: the best so far beside random search, and each group's probabilities as they sharpen.
import { fitted } from "../shared/chart.js";
import { h, s, write } from "../shared/dom.js";
import { lines } from "../shared/lines.js";
import { percent } from "../shared/numbers.js";
import { requests } from "../shared/rpc.js";

/** @import { Lines } from "../shared/lines.js" */
/** @import { Data, Lesson, Placement } from "./index.js" */

const HEIGHT = 150; // pixels of the chart
const [LEFT, TOP, TALLEST] = [56, 4, 22]; // pixels: left of and above the cells, of a row at most

/** The button that has the kernel learn, and its line of progress.
 * @type {(own: Placement) => { button: HTMLButtonElement, line: HTMLElement, stop: () => void }} */
export function learnButton({ model, shown }) {
  const kernel = requests(model);
  const line = h("p", { class: "dlv-result", role: "status" });
  const button = h("button", {
    type: "button", onclick: press, hidden: Boolean(model.page), title: "learn a placement by REINFORCE",
  }, "Learn");
  let busy = false;

  function press() {
    busy = true;
    write(line, "Learning …");
    draw();
    kernel.send("learn", {}, ({ error }) => {
      busy = false;
      write(line, error ? `Nothing was learned: ${error}` : "");
      draw();
    });
  }

  function draw() {
    button.disabled = busy || !shown.now.live || Boolean(shown.now.data.error);
  }

  shown.paints(["data", "live"], draw);
  return { button, line, stop: kernel.close };
}

/** The chart and the cells, once something was learned. @type {(own: Placement) => HTMLElement} */
export function learned(own) {
  const { shown } = own;
  const { now } = shown;
  const box = h("div", { class: "dlv-pictures dlv-learned" });
  const legend = h("p", { class: "dlv-legend" });
  shown.paints(["data"], () => { // before what is inside is painted, whose size depends on it
    box.hidden = !now.data.learned;
    const names = Object.keys(now.data.learned?.best ?? {});
    legend.replaceChildren(...names.map((name, i) => h("span", { class: "dlv-run" }, s("svg",
      { width: 34, height: 10, "aria-hidden": "true" },
      s("path", { class: "dlv-cost", d: "M1 5H33", ...strokeOf(now.data, i) })), ` ${name}`)));
  });
  const chart = lines(own, { names: ["data"], height: HEIGHT, describe: () => describe(now.data), choose() {} });
  chart.append(legend);
  box.append(chart, probabilities(own));
  return box;
}

/** @type {(data: Data, i: number) => Record<string, string>} */
function strokeOf({ strokes }, i) {
  return { stroke: strokes[i].color, "stroke-dasharray": strokes[i].dash };
}

/** @type {(data: Data) => Lines} */
function describe({ learned: lesson, bounds, strokes }) {
  if (!lesson) return { title: "", across: { ends: [0, 1] }, up: { ends: [0, 1] }, lines: [] };
  const all = Object.values(lesson.best).flat();
  return {
    title: "Best so far, of one seed",
    across: { ends: [0, lesson.x[lesson.x.length - 1]], label: "placements played", unit: "count" },
    up: { ends: [Math.max(...bounds), Math.max(...all)], unit: "seconds" },
    lines: Object.entries(lesson.best).map(([name, y], i) => ({ name, x: lesson.x, y, ...strokes[i] })),
  };
}

/** Each group's probability of each device, at a moment that a slider chooses.
 * @type {(own: Placement) => HTMLElement} */
function probabilities({ shown }) {
  const { now } = shown;
  const svg = s("svg", { class: "dlv-graph", role: "img" });
  const words = h("output", { class: "dlv-amountnow" });
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "moment of learning", oninput: draw });
  /** @type {Lesson | null} */
  let drawn = null;

  function draw() {
    const { learned: lesson, controls } = now.data;
    if (!lesson) return;
    const last = lesson.at.length - 1;
    slider.max = String(last);
    if (JSON.stringify(drawn) !== JSON.stringify(lesson)) slider.value = String(last);
    drawn = lesson;
    const moment = lesson.probabilities[Number(slider.value)];
    write(words, `after ${lesson.at[Number(slider.value)]}`);
    const row = Math.min(TALLEST, (HEIGHT - 40) / controls.devices);
    const width = fitted(svg, svg.parentElement?.clientWidth ?? 0, TOP + controls.devices * row + 18);
    svg.replaceChildren(...cellsOf(moment, (width - LEFT) / moment.length, row));
    const sure = moment.map((group) => Math.max(...group));
    svg.setAttribute("aria-label", `Each group's most probable device has ${percent(Math.min(...sure))} or more.`);
  }

  shown.paints(["data", "width"], draw);
  return h("div", { class: "dlv-chart" }, h("h4", {}, "Probability of each device, by group"), svg,
    h("label", {}, "samples ", slider), words);
}

/** @type {(moment: number[][], across: number, down: number) => SVGElement[]} */
function cellsOf(moment, across, down) {
  const devices = moment[0].length;
  return [
    ...moment.flatMap((group, i) => group.map((share, device) => s("rect", {
      class: "dlv-chance", x: LEFT + i * across, y: TOP + device * down, width: Math.max(1, across - 1),
      height: down - 1, "fill-opacity": share.toFixed(3),
    }, s("title", {}, `group ${i}, device ${device}: ${percent(share)}`)))),
    ...Array.from({ length: devices }, (_, device) => s("text",
      { class: "dlv-left", x: LEFT - 6, y: TOP + (device + 0.5) * down }, `device ${device}`)),
    ...moment.flatMap((_, i) => (across < 16 && i % 4 ? [] : [s("text",
      { x: LEFT + (i + 0.5) * across, y: TOP + devices * down + 10 }, i)])),
  ];
}
