// Lines over an axis, with the chosen and measured values and the point at the pointer or keys, in words.
import { clamp, nearest } from "./arrays.js";
import { below, beside, cross, grid, lineThrough, nearestPoint, pointIn, sized } from "./chart.js";
import { h, s, write } from "./dom.js";
import { amount, bytes, exact, percent, seconds } from "./numbers.js";
import { roundStep, scaleLinear, scaleLog } from "./scale.js";
import { tooltip } from "./tooltip.js";

/** @import { Box, Mark } from "./chart.js" */
/** @import { Explorer } from "./explorer.js" */
/** @import { Scale } from "./scale.js" */

/** `log` is the base of the marks on a logarithmic axis; `unit` how a value is written; `marks` those to draw. */
/** @typedef {{ ends: [number, number], log?: number, unit?: string, label?: string, marks?: number[] }} Axis */

/** A line; of `kind` "own" is the reader's, "best" a band below the others.
 * @typedef {{ name: string, x: number[], y: number[], kind?: string, color?: string, dash?: string | null }} Line */

/** What is drawn; `here` is the chosen x, `empty` says why there is no line. */
/** @typedef {{ title: string, across: Axis, up: Axis, lines: Line[], here?: number, empty?: string, said?: string,
 * measured?: { x: number, y: number, says: string }[] }} Lines */

/** @typedef {{ line: number, i: number }} Point */

/** `choose` is called with the x under the pointer and a near point; `words` describes a point, `more` draws over the
 * lines, `head` replaces the title.
 * @typedef {{ names: string[], height: number, describe: () => Lines, choose: (x: number, point: Point | null) =>
 *   void, words?: (point: Point) => string[], more?: (x: Scale, y: Scale, box: Box) => SVGElement[], head?:
 *   HTMLElement }} Plan */

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 26, 10, 36]; // pixels around the lines
const REACH = 24; // pixels from a point
/** @type {Record<string, number>} */
const APART = { bytes: 70, seconds: 70, number: 34, count: 34, up: 20 }; // pixels between two marks
/** @type {Record<string, (value: number) => string>} */
const UNITS = {
  bytes: (value) => bytes(Math.round(value)), seconds, percent, number: amount, count: exact,
};

/** @type {(axis: Axis, value: number) => string} */
const valueWords = ({ unit = "number" }, value) => UNITS[unit](value);

/** A chart, redrawn when one of `names` changes. @type {(own: Explorer<any, any>, plan: Plan) => HTMLElement} */
export function lines({ shown, frame }, { names, height, describe, choose, words, more, head }) {
  const svg = s("svg", { class: "dlv-costs", role: "img", tabindex: "0" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  const empty = h("p", { class: "dlv-nothing" });
  const title = h("h4");
  plot.append(tip.element, empty);
  /** @type {ReturnType<typeof placed> | null} */
  let chart = null;
  /** @type {Point | null} */
  let at = null; // the point at the keys
  const said = (/** @type {Point} */ point) => words?.(point) ?? pointWords(describe(), point);
  const near = (/** @type {MouseEvent} */ event) => chart && pointAt(chart.points, pointIn(svg, event));
  svg.addEventListener("pointermove", (event) => {
    const point = near(event);
    if (point) tip.show(event, said(point));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  svg.addEventListener("click", (event) => {
    if (chart) choose(chart.x.invert(pointIn(svg, event)[0]), near(event));
  });
  svg.addEventListener("blur", () => tip.hide());
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!chart?.points.length || !(by || (at && event.key === "Enter"))) return;
    event.preventDefault();
    event.stopPropagation();
    if (!by) return choose(describe().lines[/** @type {Point} */ (at).line].x[/** @type {Point} */ (at).i], at);
    at = stepped(chart.points, at, by);
    const [x, y] = chart.points[at.line][at.i];
    const box = svg.getBoundingClientRect();
    tip.show(/** @type {any} */ ({ clientX: box.left + x, clientY: box.top + y }), said(at));
    frame.say(`${said(at).join(", ")}.`);
  });
  shown.paints([...names, "width"], () => {
    const own = describe();
    write(title, own.title);
    write(empty, own.lines.length ? "" : own.empty ?? "");
    if (!plot.clientWidth) return;
    chart = placed(own, Math.max(260, plot.clientWidth), height);
    at = null;
    sized(svg, chart.box.right + RIGHT, height);
    svg.replaceChildren(...drawn(own, chart), ...(more?.(chart.x, chart.y, chart.box) ?? []));
    svg.setAttribute("aria-label", own.said ?? `${own.title}. ${hereWords(own)}`);
  });
  return h("div", { class: "dlv-chart" }, head ?? title, plot);
}

/** Axes, their marks and the points of each line, in pixels.
 * @type {(own: Lines, width: number, height: number) => { x: Scale, y: Scale, box: Box, across: Mark[], up: Mark[],
 *   points: number[][][] }} */
export function placed({ across, up, lines: all }, width, height) {
  const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
  const x = scaleOf(across, [box.left, box.right]);
  const y = scaleOf(up, [box.bottom, box.top]);
  const inside = (/** @type {Scale} */ scale, /** @type {number} */ value) => scale(Math.max(value, scale.domain[0]));
  return {
    x, y, box, across: marksOf(across, x, APART[across.unit ?? "number"]), up: marksOf(up, y, APART.up),
    points: all.map((line) => line.x.map((value, i) => [inside(x, value), inside(y, line.y[i])])),
  };
}

/** @type {(axis: Axis, range: [number, number]) => Scale} */
const scaleOf = ({ ends, log }, range) => (log ? scaleLog : scaleLinear)(ends, range);

/** Round values of an axis, as many as fit. @type {(axis: Axis, scale: Scale, apart: number) => Mark[]} */
function marksOf({ ends: [low, high], log, marks }, scale, apart) {
  const many = Math.max(1, Math.floor(Math.abs(scale.range[1] - scale.range[0]) / apart));
  /** @type {number[]} */
  let values = marks ?? [];
  if (!marks && log) {
    const [first, last] = [low, high].map((value) => Math.log(value) / Math.log(log));
    const each = Math.ceil(Math.max(1, (last - first) / many) - 1e-9);
    const top = Math.floor(last + 1e-9);
    const places = Array.from({ length: 1 + Math.floor((top - first) / each + 1e-9) }, (_, i) => top - i * each);
    values = places.reverse().map((place) => log ** place);
  } else if (!marks) {
    const step = roundStep((high - low) / many);
    values = Array.from({ length: 1 + Math.floor((high - low) / step + 1e-9) }, (_, i) => low + i * step);
  }
  return values.map((value) => ({ value, at: scale(value) }));
}

/** @type {(own: Lines, chart: ReturnType<typeof placed>) => SVGElement[]} */
function drawn({ across, up, lines: all, here, measured = [] }, { x, y, box, points, ...marks }) {
  const order = [...all.keys()].sort((a, b) => rankOf(all[a]) - rankOf(all[b]));
  const spots = here == null ? [] : order.filter((i) => all[i].kind === "own");
  return [
    grid(box, [], marks.up), ...beside(box, marks.up, (value) => valueWords(up, value)),
    ...(all.length ? below(box, marks.across, (value) => valueWords(across, value)) : []),
    s("text", { x: box.right, y: box.bottom + 28, class: "dlv-left" }, across.label ?? ""),
    s("text", { x: box.left, y: box.bottom + 28, class: "dlv-start" }, up.label ?? ""),
    ...(here == null ? [] : [s("path", { class: "dlv-here", d: `M${x(here)} ${box.top}V${box.bottom}` })]),
    ...order.map((i) => s("path", {
      class: all[i].kind === "best" ? "dlv-best" : all[i].kind === "own" ? "dlv-cost dlv-own" : "dlv-cost",
      d: lineThrough(points[i]), stroke: all[i].color, "stroke-dasharray": all[i].dash,
    }, s("title", {}, all[i].name))),
    ...spots.map((i) => s("circle", {
      class: "dlv-spot", cx: x(/** @type {number} */ (here)), cy: y(valueAt(all[i], here)), r: 5, fill: all[i].color,
    })),
    ...measured.map((one) => cross(x(one.x), y(one.y), one.says)),
  ];
}

/** The reader's own line is on top, a band at the bottom. @type {(line: Line) => number} */
const rankOf = ({ kind }) => ["best", "", "own"].indexOf(kind ?? "");

/** The value at the nearest point. @type {(line: Line, x: any) => number} */
function valueAt({ x, y }, at) {
  return y[nearest(x, at)];
}

/** The nearest point; null if none is within reach. @type {(points: number[][][], at: number[]) => Point | null} */
export function pointAt(points, at) {
  const all = points.flatMap((own, line) => own.map((_, i) => ({ line, i })));
  return all[nearestPoint(points.flat(), at, REACH)] ?? null;
}

/** The point next to another, on its line or the next one.
 * @type {(points: number[][][], at: Point | null, by: number[]) => Point} */
function stepped(points, at, [lines, places]) {
  if (!at) return { line: points.length - 1, i: 0 };
  const line = clamp(at.line + lines, 0, points.length - 1);
  return { line, i: clamp(at.i + places, 0, points[line].length - 1) };
}

/** @type {(own: Lines, point: Point) => string[]} */
function pointWords({ lines: all, across, up }, { line, i }) {
  const { name, x, y } = all[line];
  return [name, `${[across.label, valueWords(across, x[i])].filter(Boolean).join(" ")}: ${valueWords(up, y[i])}`];
}

/** The reader's own lines at the chosen x, in words. @type {(own: Lines) => string} */
function hereWords({ lines: all, here, across, up }) {
  if (here == null) return "";
  const own = all.filter(({ kind }) => kind === "own")
    .map((line) => `${line.name} ${valueWords(up, valueAt(line, here))}`);
  return `At ${[across.label, valueWords(across, here)].filter(Boolean).join(" ")}: ${own.join(", ")}.`;
}
