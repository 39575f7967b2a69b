// The panels of the explorer of schedules: the bubble over m, activations in flight, the tables.
import { below, beside, cross, grid, lineThrough, sized } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { digits, seconds } from "../shared/numbers.js";
import { chartOf, nameOf, stripsOf } from "./geometry.js";
import { FRACTION, RATIO, causeOf } from "./words.js";

/** @import { Bubbles, Point } from "./geometry.js" */
/** @import { Side } from "./state.js" */
/** @import { Run } from "./words.js" */

const LINE = 11; // pixels of a line of text
const LISTED = 400; // actions in the table
const DASHES = ["solid", "6 4"];

/** @type {(value: number) => string} */
const percent = (value) => `${digits(100 * value)} %`;

/** @type {(styles: string[], place: number) => { stroke: string, "stroke-dasharray": string | null }} */
function line(styles, place) {
  return { stroke: styles[place], "stroke-dasharray": place ? DASHES[1] : null };
}

/** The bubble fraction over m of each side: a line for its closed form, else for the simulation; dots for simulated
 * values. `styles` are the colours of the sides; `height` and `width` are pixels.
 * @type {(svg: SVGElement, bubbles: Bubbles, sides: Side[], height: number, width: number, styles: string[], run:
 *   Run | null) => void} */
export function bubbleChart(svg, bubbles, sides, height, width, styles, run) {
  sized(svg, width, height);
  /** @type {Point[]} */
  const points = sides.map((side, place) => ({ place, m: side.microbatches, value: side.fraction }));
  if (run?.fraction != null) points.push({ place: 0, m: sides[0].microbatches, value: run.fraction, measured: true });
  const chart = chartOf(bubbles, points, width, height);
  const { box } = chart;
  /** @type {(name: string) => number} */
  const placeOf = (name) => Math.max(0, sides.findIndex((side) => side.name === name));
  svg.replaceChildren(
    grid(box, [], chart.shares), ...below(box, chart.sizes), ...beside(box, chart.shares, percent),
    s("text", { x: box.right, y: box.bottom + 26, class: "dlv-left" }, "microbatches m"),
    ...chart.lines.filter(({ simulated }) => simulated.length).flatMap(({ name, simulated, formula }) => {
      const place = placeOf(name);
      const title = `${sides[place].title}${formula.length ? ", by the formula" : ""}`;
      const look = { class: "dlv-cost", d: lineThrough(formula.length ? formula : simulated), ...line(styles, place) };
      const dots = simulated.map(([cx, cy]) => s("circle", { cx, cy, r: 2.6, fill: styles[place] }));
      return [s("path", look, s("title", {}, title)), ...dots];
    }),
    ...chart.points.map(({ place, at: [x, y], measured }) => {
      const spot = { class: "dlv-spot", cx: x, cy: y, r: 5.5, fill: styles[place] };
      return measured ? cross(x, y, "measured")
        : s("circle", spot, s("title", {}, sides[place].title));
    }),
  );
  const data = sides.map((side) => `${side.title} at m = ${side.microbatches}: ${percent(side.fraction)}`);
  svg.setAttribute("aria-label", `Bubble fraction over microbatches. ${data.join("; ")}`);
}

/** The heading of the chart: its line is the formula if there is one.
 * @type {(bubbles: Pick<Bubbles, "formulas">) => string} */
export function chartWords({ formulas }) {
  const exact = Object.values(formulas ?? {}).map((line) => line.some((value) => value != null));
  const line = !exact.includes(true) ? "simulated" : exact.includes(false) ? "line: formula if any" : "line: formula";
  return `Bubble fraction; ${line}`;
}

/** The activations in flight of each rank over time, and the peak; `height` and `width` are pixels.
 * @type {(svg: SVGElement, sides: Side[], height: number, width: number, styles: string[]) => void} */
export function memoryStrips(svg, sides, height, width, styles) {
  const ranks = Math.max(1, ...sides.map((side) => side.ranks));
  const row = Math.max(8, Math.min(32, Math.floor((height - 18) / ranks)));
  sized(svg, width, ranks * row + 18);
  const strips = stripsOf(sides, width, row);
  /** @type {(rank: number) => boolean} */
  const named = (rank) => rank % Math.ceil(LINE / row) === 0; // in low rows only some names fit
  const rulers = Array.from({ length: ranks }, (_, rank) => [
    named(rank) ? s("text", { x: strips.left - 8, y: (rank + 0.5) * row, class: "dlv-left" }, `rank ${rank}`) : null,
    s("path", { class: "dlv-ruler", d: `M${strips.left} ${(rank + 1) * row - 3}H${strips.right}` }),
  ]);
  const lines = strips.sides.flatMap((side, place) => side.filter(({ corners }) => corners.length).map((own) => [
    place ? null : s("path", { class: "dlv-strip", d: lineThrough(own.area), fill: styles[place] }),
    s("path", { class: "dlv-strip", d: lineThrough(own.corners), ...line(styles, place), fill: "none" }),
  ]));
  const peaks = Array.from({ length: ranks }, (_, rank) => (named(rank)
    ? s("text", { x: strips.right + 5, y: (rank + 0.5) * row, class: "dlv-start" },
      strips.sides.map((side) => (side[rank] ? digits(side[rank].peak) : "–")).join(" / "))
    : null));
  const key = sides.length > 1 ? `peaks: ${sides.map((side) => side.title).join(" / ")}` : "right: the peak";
  svg.replaceChildren(...[rulers, lines, peaks].flat(2).filter((node) => node != null),
    s("text", { x: width, y: ranks * row + 9, class: "dlv-left" }, key));
  const data = sides.map(({ title, peak }) =>
    `${title}: ${peak.map((many, rank) => `rank ${rank} ${many}`).join(", ")}`);
  svg.setAttribute("aria-label", `Activations in flight. Peak of ${data.join("; ")}`);
}

/** The sides in numbers, with the measurement of the first.
 * @type {(box: HTMLElement, sides: Side[], styles: string[], run: Run | null) => void} */
export function comparison(box, sides, styles, run) {
  const ran = run?.seconds != null;
  /** @type {(side: Side) => number} */
  const most = (side) => Math.max(...side.peak);
  const chunked = sides.some(({ chunks }) => chunks > 1);
  /** @type {(side: Side) => string} */
  const byFormula = ({ formula }) => (formula ? digits(formula.ratio) : "–");
  /** @type {[string, (side: Side) => string | number, string | number | false][]} */
  const rows = [
    ["makespan", (side) => seconds(side.makespan), ran && seconds(run.seconds)],
    [RATIO, (side) => digits(side.ratio), ran && digits(run.ratio)],
    ["bubble ratio by the formula", byFormula, ""],
    [FRACTION, (side) => percent(side.fraction), ran && percent(run.fraction)],
    ["idle between first and last action", (side) => seconds(side.inside), ran && seconds(run.inside)],
    [`most in flight${chunked ? ", in chunks" : " on a rank"}`, (side) => most(side), ran && run.peak],
    ["most in flight, in microbatches", (side) => digits(most(side) / side.chunks), ""],
  ];
  const [exact, whole] = [sides.some(({ formula }) => formula), !chunked];
  const empty = [exact ? "" : "bubble ratio by the formula", whole ? "most in flight, in microbatches" : ""];
  /** @type {(place: number) => string} */
  const as = (place) => `border-top: 2px ${place ? "dashed" : "solid"} ${styles[place]}`;
  /** @type {(text: string | number) => HTMLTableCellElement} */
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  box.replaceChildren(h("table", { class: "dlv-sides" },
    h("caption", { class: "dlv-spoken" }, "In numbers"),
    h("thead", {}, h("tr", {}, h("td", {}),
      sides.map((side, place) => h("th", { scope: "col", class: "dlv-amount", style: as(place) }, side.title)),
      ran ? h("th", { scope: "col", class: "dlv-amount" }, "measured") : null)),
    h("tbody", {}, rows.filter(([name]) => !empty.includes(name)).map(([name, of, measured]) => h("tr", {},
      h("th", { scope: "row" }, name), sides.map((side) => cell(of(side))), ran ? cell(measured || "") : null)))));
}

/** Tables of all actions of the sides, by rank.
 * @type {(box: HTMLElement, sides: Side[], run: Run | null, chosen: { side: number, span: number }, select: (side:
 *   number, span: number) => void) => void} */
export function actionsTable(box, sides, run, chosen, select) {
  const shown = sides.filter((side) => !side.error);
  const tables = shown.map((side, place) =>
    tableOf(side, place === 0 && run?.start ? run : null, chosen.side === place ? chosen.span : -1,
      (i) => select(place, i)));
  const none = h("p", {}, "The table lists the actions of a schedule that can run.");
  box.replaceChildren(...(tables.length ? tables : [none]));
}

/** The actions of a side.
 * @type {(side: Side, run: Run | null, chosen: number, select: (i: number) => void) => HTMLElement} */
function tableOf(side, run, chosen, select) {
  /** @type {(text: string, pressed: () => void) => HTMLElement} */
  const link = (text, pressed) => h("button", { type: "button", class: "dlv-link", onclick: pressed }, text);
  /** @type {(text: string | number) => HTMLElement} */
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  const many = Math.min(side.count, LISTED);
  const more = many < side.count ? `; the first ${LISTED} are listed` : "";
  const heads = ["rank", "from", "to", ...(run ? ["measured from", "to"] : [])];
  const name = `Table of the actions of ${side.title}`;
  return h("div", { class: "dlv-scroll", tabindex: "0", role: "region", "aria-label": name }, h("table", {},
    h("caption", {}, `${side.count} actions of ${side.title}${more}`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "action"),
      heads.map((text) => h("th", { scope: "col", class: "dlv-amount" }, text)),
      h("th", { scope: "col" }, "receives from"))),
    h("tbody", {}, Array.from({ length: many }, (_, i) => {
      const from = causeOf(side, i);
      return h("tr", { "aria-selected": String(chosen === i) },
        h("th", { scope: "row" }, link(nameOf(side, i), () => select(i))),
        cell(side.rank[i]), cell(seconds(side.start[i])), cell(seconds(side.end[i])),
        run ? [cell(at(run.start[i])), cell(at(run.start[i], run.length[i]))] : null,
        h("td", {}, from >= 0 ? nameOf(side, from) : ""));
    }))));
}

/** @type {(start: number | null, length?: number) => string} */
function at(start, length = 0) {
  return start == null ? "" : seconds(start + length);
}
