// Explores how far data parallelism scales: speed-up and communication over the number of ranks.
import { clamp } from "../shared/arrays.js";
import { below, beside, grid, lineThrough, sized } from "../shared/chart.js";
import { field, select, slider } from "../shared/controls.js";
import { h, s, write } from "../shared/dom.js";
import { explorer } from "../shared/explorer.js";
import { bytes, digits } from "../shared/numbers.js";
import { roundStep, scaleLinear, scaleLog } from "../shared/scale.js";

/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Model } from "../shared/theme.js" */

/**
 * What the kernel tells: of each number of ranks the speed-up, communication / computation, and both in words.
 * @typedef {Answer & { most: number, sizes: number[], ways: [string, string][], style: string, speedup: number[],
 *   ratio: number[], words: string[] }} Data
 */

const SAVED = "This page has no kernel: ranks can be chosen; to change all else, run the notebook's cell.";
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [216, 56, 12, 10, 36]; // pixels
const MARKS = 7; // of powers of two on an axis, at most, beside the last
/** @type {Record<string, [string, string, number]>} */
const LINK = {
  alpha: ["α", "µs a message", 1e6], beta: ["β", "ns a byte", 1e9], compute: ["compute", "ms", 1e3],
  buckets: ["gradients in", "buckets", 1],
};

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Explorer<Data>} */ (explorer(model, el, {
    name: "explorer of scaling", saved: SAVED, free: ["ranks"],
    keys: () => [["← →", "fewer, more ranks", { ArrowLeft: () => move(-1), ArrowRight: () => move(1) }]],
    foresee: (data, controls) => ({ ...data, controls: { ...data.controls, ranks: controls.ranks } }),
    runnable: () => false, ranWords: () => "", more: {},
  }));
  const { now } = own.shown;
  const move = (by) => own.choose({ ranks: clamp(now.controls.ranks + by, 1, now.data.most) });
  const { data } = own.shown.now;
  const share = { label: "overlap", min: 0, max: 100, class: "dlv-slide", place: (part) => Math.round(100 * part) };
  const size = { label: "gradients", min: 0, max: data.sizes.length - 1, class: "dlv-long" };
  own.frame.controls(
    slider(own, "ranks", { label: "ranks", min: 1, max: data.most, class: "dlv-slide", place: Number, value: Number,
      says: (many) => `${many} ranks`, short: String }).group,
    slider(own, "nbytes", { ...size, place: (nbytes) => data.sizes.findLastIndex((own) => own <= nbytes),
      value: (place) => data.sizes[place], says: bytes, short: bytes }).group,
    slider(own, "overlap", { ...share, value: (place) => place / 100, says: (part) => `${Math.round(100 * part)} %`,
      short: (part) => `${Math.round(100 * part)} %` }).group,
    [h("label", {}, "the batch ", select(own, "way", data.ways))],
    ...Object.entries(LINK).map(([name, [letter, unit, per]]) => [field(own, name, { letter, unit, per })]),
  );
  const answer = h("p", { class: "dlv-cheapest", role: "status" });
  own.shown.paints(["data"], () => write(answer, now.data.words[now.data.controls.ranks - 1]));
  own.frame.body.append(own.trouble, answer, h("div", { class: "dlv-pictures" },
    chart(own, "Speed-up over ranks; broad band: ideal", "speedup", true),
    chart(own, "Communication / computation", "ratio", false)));
  return own.begin();
}

/** A line over the number of ranks, and the ranks that are chosen; `ideal` draws ranks over ranks beside it. */
function chart({ shown, choose }, title, name, ideal) {
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const element = h("div", { class: "dlv-chart" }, h("h4", { title: "Click to choose ranks." }, title), svg);
  const xOf = () => scaleLog([1, shown.now.data.most], [LEFT, Math.max(svg.clientWidth, 260) - RIGHT]);
  svg.addEventListener("click", ({ clientX }) => {
    const ranks = Math.round(xOf().invert(clientX - svg.getBoundingClientRect().left));
    choose({ ranks: clamp(ranks, 1, shown.now.data.most) });
  });
  shown.paints(["data", "width"], () => {
    const { data } = shown.now;
    const { [name]: values, most, controls: { ranks } } = data;
    const x = xOf();
    const { y, marks } = ideal ? ratiosOf(Math.min(...values), most) : amountsOf(Math.max(...values));
    const path = (points) => lineThrough(points.map(([a, b]) => [x(a), y(b)]));
    const marked = (scale, values) => values.map((value) => ({ value, at: scale(value) }));
    const box = { left: LEFT, right: x.range[1], top: TOP, bottom: HEIGHT - BOTTOM };
    sized(svg, x.range[1] + RIGHT, HEIGHT);
    svg.replaceChildren(
      grid(box, [], marked(y, marks)),
      ...beside(box, marked(y, marks), digits),
      ...below(box, marked(x, powersOf(1, most))),
      s("text", { x: x.range[1], y: HEIGHT - 6, class: "dlv-left" }, "ranks"),
      s("path", { class: "dlv-here", d: `M${x(ranks)} ${TOP}V${HEIGHT - BOTTOM}` }),
      ...(ideal ? [s("path", { class: "dlv-best", d: path([[1, 1], [most, most]]) },
        s("title", {}, "as many times as there are ranks"))] : []),
      s("path", { class: "dlv-cost dlv-own", d: path(values.map((value, i) => [i + 1, value])), stroke: data.style }),
      s("circle", { class: "dlv-spot", cx: x(ranks), cy: y(values[ranks - 1]), r: 5, fill: data.style }),
    );
    svg.setAttribute("aria-label", `${title}: ${digits(values[ranks - 1])} on ${ranks} ranks.`);
  });
  return element;
}

/** The powers of two from one to another; every second, third, … of them where they are many. */
function powersOf(low, high) {
  const [first, last] = [low, high].map(Math.log2);
  const each = Math.ceil((last - first) / MARKS);
  return Array.from({ length: 1 + Math.floor((last - first) / each) }, (_, i) => 2 ** (last - i * each));
}

/** The axis of a speed-up, up to `most`; below 1 where more ranks are slower than one. */
function ratiosOf(least, most) {
  const low = 2 ** Math.floor(Math.log2(Math.min(least, 1)));
  return { y: scaleLog([low, most], [HEIGHT - BOTTOM, TOP]), marks: powersOf(low, most) };
}

/** The axis of an amount, from 0. */
function amountsOf(most) {
  const high = most * 1.05 || 1;
  const step = roundStep(high / 4);
  const marks = Array.from({ length: 1 + Math.floor(high / step) }, (_, i) => i * step);
  return { y: scaleLinear([0, high], [HEIGHT - BOTTOM, TOP]), marks };
}

export default { render };
