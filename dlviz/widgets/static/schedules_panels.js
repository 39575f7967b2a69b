// The panels of the explorer of schedules: the bubble over m, the activations in flight, the tables.
import { digits, h, s, seconds } from "./base.js";
import { chartOf, nameOf, stripsOf } from "./schedules_list.js";
import { causeOf, formulaWords, words } from "./schedules_words.js";

const HEIGHT = 250; // pixels of the chart
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
export function bubbleChart(svg, calm, sides, width, styles, run) {
  open(svg, width, HEIGHT);
  const points = sides.map((side, place) => ({ place, m: side.microbatches, value: side.fraction }));
  if (run?.fraction != null) points.push({ place: 0, m: sides[0].microbatches, value: run.fraction, measured: true });
  const chart = chartOf(calm, points, width, HEIGHT);
  const { box } = chart;
  const placeOf = (name) => Math.max(0, sides.findIndex((side) => side.name === name));
  svg.replaceChildren(
    s("g", { class: "dlv-axis" }, chart.shares.map(({ at }) => s("path", { d: `M${box.left} ${at}H${box.right}` }))),
    ...chart.sizes.map(({ value, at }) => s("text", { x: at, y: box.bottom + 13 }, value)),
    ...chart.shares.map(({ value, at }) => s("text", { x: box.left - 6, y: at, class: "dlv-left" }, percent(value))),
    s("text", { x: box.right, y: box.bottom + 30, class: "dlv-left" }, "microbatches m"),
    ...chart.lines.filter(({ simulated }) => simulated.length).map(({ name, simulated, formula }) => [
      s("path", { class: "dlv-cost", d: path(formula.length ? formula : simulated), ...line(styles, placeOf(name)) }, s("title", {}, `${words(name)}${formula.length ? ", by the formula" : ""}`)),
      simulated.map(([cx, cy]) => s("circle", { cx, cy, r: 2.6, fill: styles[placeOf(name)] })),
    ]).flat(2),
    ...chart.points.map(({ place, at: [x, y], measured }) => (measured
      ? s("path", { class: "dlv-measured", d: `M${x - 6} ${y - 6}l12 12m0-12l-12 12` }, s("title", {}, "measured"))
      : s("circle", { class: "dlv-spot", cx: x, cy: y, r: 5.5, fill: styles[place] }, s("title", {}, words(sides[place].name))))),
  );
  svg.setAttribute("aria-label", `Bubble fraction over microbatches. ${sides.map((side) => `${words(side.name)} at m = ${side.microbatches}: ${percent(side.fraction)}`).join("; ")}`);
}

/** Of each rank the activations in flight over time, and the most. */
export function memoryStrips(svg, sides, width, styles) {
  const ranks = Math.max(1, ...sides.map((side) => side.ranks));
  const row = Math.max(14, Math.min(34, Math.floor((HEIGHT - 10) / ranks)));
  open(svg, width, ranks * row + 18);
  const strips = stripsOf(sides, width, row);
  svg.replaceChildren(
    ...Array.from({ length: ranks }, (_, rank) => [
      s("text", { x: strips.left - 8, y: (rank + 0.5) * row, class: "dlv-left" }, `rank ${rank}`),
      s("path", { class: "dlv-ruler", d: `M${strips.left} ${(rank + 1) * row - 3}H${strips.right}` }),
    ]).flat(),
    ...strips.sides.flatMap((side, place) => side.filter(({ corners }) => corners.length).map(({ corners }) =>
      s("path", { class: "dlv-strip", d: path(corners), ...line(styles, place), fill: place ? "none" : styles[place] }))),
    ...Array.from({ length: ranks }, (_, rank) => s("text", { x: strips.right + 5, y: (rank + 0.5) * row, class: "dlv-start" },
      strips.sides.map((side) => (side[rank] ? digits(side[rank].peak) : "–")).join(" / "))),
    s("text", { x: strips.right, y: ranks * row + 9, class: "dlv-left" }, sides.length > 1 ? `peak: ${sides.map((side) => words(side.name)).join(" / ")}` : "right: the peak"),
  );
  svg.setAttribute("aria-label", `Activations in flight. Peak of ${sides.map((side) => `${words(side.name)}: ${side.peak.map((peak, rank) => `rank ${rank} ${peak}`).join(", ")}`).join("; ")}`);
}

/** The sides in numbers, with what was measured of the first. */
export function comparison(box, sides, styles, run) {
  const ran = run?.seconds != null;
  const most = (side) => Math.max(...side.peak);
  const mean = (side) => side.busy.reduce((sum, one) => sum + one, 0) / side.ranks;
  const rows = [
    ["all of it", (side) => seconds(side.makespan), ran && seconds(run.seconds)],
    ["busy, mean of the ranks", (side) => seconds(mean(side)), ran && seconds(run.busy)],
    ["bubble ratio: idle / busy", (side) => digits(side.ratio), ran && digits(run.ratio)],
    ...(sides.some(({ formula }) => formula) ? [["the same by the formula", (side) => formulaWords(side), ""]] : []),
    ["bubble fraction: idle / all", (side) => percent(side.fraction), ran && percent(run.fraction)],
    ["most in flight on a rank", (side) => count(most(side), side.chunks > 1 ? "chunk" : "microbatch"), ran && run.peak],
    ...(sides.some(({ chunks }) => chunks > 1) ? [["the same in microbatches", (side) => digits(most(side) / side.chunks), ""]] : []),
  ];
  const sample = (place) => s("svg", { width: 26, height: 10, "aria-hidden": "true" }, s("path", { class: "dlv-cost", d: "M1 5H25", ...line(styles, place) }));
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  box.replaceChildren(h("table", { class: "dlv-sides" },
    h("caption", {}, sides.length > 1 ? "Side by side" : "In numbers"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""),
      sides.map((side, place) => h("th", { scope: "col", class: "dlv-amount" }, sample(place), " ", words(side.name))),
      ran ? h("th", { scope: "col", class: "dlv-amount" }, "measured") : null)),
    h("tbody", {}, rows.map(([name, of, measured]) => h("tr", {}, h("th", { scope: "row" }, name),
      sides.map((side) => cell(of(side))), ran ? cell(measured) : null)))));
}

function count(many, what) {
  return `${many} ${what}${many === 1 ? "" : what === "chunk" ? "s" : "es"}`;
}

/** All actions of the sides as tables, rank by rank. */
export function actionsTable(box, sides, run, chosen, select) {
  const link = (text, pressed) => h("button", { type: "button", class: "dlv-link", onclick: pressed }, text);
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  box.replaceChildren(...sides.filter((side) => !side.error).map((side, place) => {
    const ran = place === 0 && run?.start;
    const many = Math.min(side.count, LISTED);
    const more = many < side.count ? `; the first ${LISTED} are listed` : "";
    const heads = ["rank", "from", "to", ...(ran ? ["measured from", "to"] : [])];
    return h("div", { class: "dlv-scroll", tabindex: "0", role: "region", "aria-label": `Table of the actions of ${words(side.name)}` }, h("table", {},
      h("caption", {}, `${side.count} actions of ${words(side.name)}${more}`),
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
