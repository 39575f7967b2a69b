// The panels of the explorer of schedules: the bubble over m, activations in flight, the tables.
import { h, s } from "../shared/dom.js";
import { digits, seconds } from "../shared/numbers.js";
import { chartOf, nameOf, stripsOf } from "./geometry.js";
import { FRACTION, RATIO, causeOf } from "./words.js";

const LINE = 11; // pixels of a line of text
const LISTED = 400; // actions in the table
const DASHES = ["solid", "6 4"];

const path = (corners) => `M${corners.map((corner) => corner.map((part) => part.toFixed(1)).join(" ")).join("L")}`;
const percent = (value) => `${digits(100 * value)} %`;

function open(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
}

function line(styles, place) {
  return { stroke: styles[place], "stroke-dasharray": place ? DASHES[1] : null };
}

/** The bubble fraction over m of each side: a line by its closed form, else as simulated; dots where it was simulated. */
export function bubbleChart(svg, calm, sides, height, width, styles, run) {
  open(svg, width, height);
  const points = sides.map((side, place) => ({ place, m: side.microbatches, value: side.fraction }));
  if (run?.fraction != null) points.push({ place: 0, m: sides[0].microbatches, value: run.fraction, measured: true });
  const chart = chartOf(calm, points, width, height);
  const { box } = chart;
  const placeOf = (name) => Math.max(0, sides.findIndex((side) => side.name === name));
  svg.replaceChildren(
    s("g", { class: "dlv-axis" }, chart.shares.map(({ at }) => s("path", { d: `M${box.left} ${at}H${box.right}` }))),
    ...chart.sizes.map(({ value, at }) => s("text", { x: at, y: box.bottom + 11 }, value)),
    ...chart.shares.map(({ value, at }) => s("text", { x: box.left - 6, y: at, class: "dlv-left" }, percent(value))),
    s("text", { x: box.right, y: box.bottom + 26, class: "dlv-left" }, "microbatches m"),
    ...chart.lines.filter(({ simulated }) => simulated.length).map(({ name, simulated, formula }) => [
      s("path", { class: "dlv-cost", d: path(formula.length ? formula : simulated), ...line(styles, placeOf(name)) }, s("title", {}, `${sides[placeOf(name)].title}${formula.length ? ", by the formula" : ""}`)),
      simulated.map(([cx, cy]) => s("circle", { cx, cy, r: 2.6, fill: styles[placeOf(name)] })),
    ]).flat(2),
    ...chart.points.map(({ place, at: [x, y], measured }) => (measured
      ? s("path", { class: "dlv-measured", d: `M${x - 6} ${y - 6}l12 12m0-12l-12 12` }, s("title", {}, "measured"))
      : s("circle", { class: "dlv-spot", cx: x, cy: y, r: 5.5, fill: styles[place] }, s("title", {}, sides[place].title)))),
  );
  svg.setAttribute("aria-label", `Bubble fraction over microbatches. ${sides.map((side) => `${side.title} at m = ${side.microbatches}: ${percent(side.fraction)}`).join("; ")}`);
}

/** The heading of the chart: its line is a formula only where there is one. */
export function chartWords({ formulas }) {
  const exact = Object.values(formulas ?? {}).map((line) => line.some((value) => value != null));
  const line = !exact.includes(true) ? "simulated" : exact.includes(false) ? "line: formula if any" : "line: formula";
  return `Bubble fraction; ${line}`;
}

/** Of each rank the activations in flight over time, and the most. */
export function memoryStrips(svg, sides, height, width, styles) {
  const ranks = Math.max(1, ...sides.map((side) => side.ranks));
  const row = Math.max(8, Math.min(32, Math.floor((height - 18) / ranks)));
  open(svg, width, ranks * row + 18);
  const strips = stripsOf(sides, width, row);
  const named = (rank) => rank % Math.ceil(LINE / row) === 0; // where rows are low, some names have room
  svg.replaceChildren(
    ...Array.from({ length: ranks }, (_, rank) => [
      named(rank) ? s("text", { x: strips.left - 8, y: (rank + 0.5) * row, class: "dlv-left" }, `rank ${rank}`) : null,
      s("path", { class: "dlv-ruler", d: `M${strips.left} ${(rank + 1) * row - 3}H${strips.right}` }),
    ]).flat().filter(Boolean),
    ...strips.sides.flatMap((side, place) => side.filter(({ corners }) => corners.length).flatMap(({ corners, area }) => [
      place ? null : s("path", { class: "dlv-strip", d: path(area), fill: styles[place] }),
      s("path", { class: "dlv-strip", d: path(corners), ...line(styles, place), fill: "none" }),
    ])).filter(Boolean),
    ...Array.from({ length: ranks }, (_, rank) => named(rank) && s("text", { x: strips.right + 5, y: (rank + 0.5) * row, class: "dlv-start" },
      strips.sides.map((side) => (side[rank] ? digits(side[rank].peak) : "–")).join(" / "))).filter(Boolean),
    s("text", { x: width, y: ranks * row + 9, class: "dlv-left" }, sides.length > 1 ? `peaks: ${sides.map((side) => side.title).join(" / ")}` : "right: the peak"),
  );
  svg.setAttribute("aria-label", `Activations in flight. Peak of ${sides.map((side) => `${side.title}: ${side.peak.map((peak, rank) => `rank ${rank} ${peak}`).join(", ")}`).join("; ")}`);
}

/** The sides in numbers, with what was measured of the first. */
export function comparison(box, sides, styles, run) {
  const ran = run?.seconds != null;
  const most = (side) => Math.max(...side.peak);
  const chunked = sides.some(({ chunks }) => chunks > 1);
  const rows = [
    ["makespan", (side) => seconds(side.makespan), ran && seconds(run.seconds)],
    [RATIO, (side) => digits(side.ratio), ran && digits(run.ratio)],
    ...(sides.some(({ formula }) => formula) ? [["bubble ratio by the formula", ({ formula }) => (formula ? digits(formula.ratio) : "–"), ""]] : []),
    [FRACTION, (side) => percent(side.fraction), ran && percent(run.fraction)],
    ["idle between first and last action", (side) => seconds(side.inside), ran && seconds(run.inside)],
    [`most in flight${chunked ? ", in chunks" : " on a rank"}`, (side) => most(side), ran && run.peak],
    ...(chunked ? [["most in flight, in microbatches", (side) => digits(most(side) / side.chunks), ""]] : []),
  ];
  const as = (place) => `border-top: 2px ${place ? "dashed" : "solid"} ${styles[place]}`;
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  box.replaceChildren(h("table", { class: "dlv-sides" },
    h("caption", { class: "dlv-spoken" }, "In numbers"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""),
      sides.map((side, place) => h("th", { scope: "col", class: "dlv-amount", style: as(place) }, side.title)),
      ran ? h("th", { scope: "col", class: "dlv-amount" }, "measured") : null)),
    h("tbody", {}, rows.map(([name, of, measured]) => h("tr", {}, h("th", { scope: "row" }, name),
      sides.map((side) => cell(of(side))), ran ? cell(measured) : null)))));
}

/** All actions of the sides as tables, rank by rank. */
export function actionsTable(box, sides, run, chosen, select) {
  const link = (text, pressed) => h("button", { type: "button", class: "dlv-link", onclick: pressed }, text);
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  const shown = sides.filter((side) => !side.error);
  if (!shown.length) return box.replaceChildren(h("p", {}, "The table lists the actions of a schedule that can run."));
  box.replaceChildren(...shown.map((side, place) => {
    const ran = place === 0 && run?.start;
    const many = Math.min(side.count, LISTED);
    const more = many < side.count ? `; the first ${LISTED} are listed` : "";
    const heads = ["rank", "from", "to", ...(ran ? ["measured from", "to"] : [])];
    return h("div", { class: "dlv-scroll", tabindex: "0", role: "region", "aria-label": `Table of the actions of ${side.title}` }, h("table", {},
      h("caption", {}, `${side.count} actions of ${side.title}${more}`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "action"), heads.map((text) => h("th", { scope: "col", class: "dlv-amount" }, text)), h("th", { scope: "col" }, "receives from"))),
      h("tbody", {}, Array.from({ length: many }, (_, i) => {
        const from = causeOf(side, i);
        return h("tr", { "aria-selected": String(chosen.side === place && chosen.span === i) },
          h("th", { scope: "row" }, link(nameOf(side, i), () => select(place, i))),
          cell(side.rank[i]), cell(seconds(side.start[i])), cell(seconds(side.end[i])),
          ran ? [cell(at(run.start[i])), cell(at(run.start[i], run.length[i]))] : null,
          h("td", {}, from >= 0 ? nameOf(side, from) : ""));
      }))));
  }));
}

function at(start, length = 0) {
  return start == null ? "" : seconds(start + length);
}
