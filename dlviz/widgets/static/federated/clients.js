// A row for each client: its digits by label, or what the server saw of it; its seconds; its fate each round.
import { h, s } from "../shared/dom.js";
import { digits, seconds } from "../shared/numbers.js";
import { tooltip } from "../shared/tooltip.js";
import { COLUMNS, HEAD, markOf, rowAt, rowsOf } from "./geometry.js";
import { currentOf } from "./state.js";
import { clientLines } from "./words.js";

/** @import { Rows } from "./geometry.js" */
/** @import { Federated, Run, Data } from "./state.js" */

const NARROWEST = 700; // pixels: with fewer the rows scroll sideways

/** @type {(own: Federated) => HTMLElement[]} */
export function clientRows({ shown }) {
  const { now } = shown;
  const svg = s("svg", { class: "dlv-clients", role: "img" });
  const scroller = { class: "dlv-sideways", tabindex: "0", role: "region", "aria-label": "a row for each client" };
  const plot = h("div", { class: "dlv-plot" }, h("div", scroller, svg));
  const tip = tooltip(plot);
  plot.append(tip.element);
  const legend = h("div", { class: "dlv-marks dlv-key" });
  const saw = () => now.part === "trust";
  /** @type {Rows | null} */
  let rows = null;
  svg.addEventListener("pointermove", (event) => {
    const { left, top } = svg.getBoundingClientRect();
    const { predicted, controls } = now.data;
    const [x, y] = [event.clientX - left, event.clientY - top];
    const at = rows && rowAt(rows, predicted.table.length, controls.rounds, x, y);
    if (at) tip.show(event, clientLines(now.data, at, saw()));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  shown.paints(["data", "width", "part"], () => {
    if (!plot.clientWidth) return;
    const { data } = now;
    const { deadline, rounds } = data.controls;
    rows = rowsOf(data.predicted, currentOf(data),
      { saw: saw(), parts: data.parts, deadline, rounds, width: Math.max(NARROWEST, plot.clientWidth) });
    svg.setAttribute("viewBox", `0 0 ${rows.width} ${rows.height}`);
    svg.setAttribute("height", String(rows.height));
    svg.replaceChildren(...heads(data, rows, saw()), ...drawn(data, rows, saw()), ...fates(data, rows));
    svg.setAttribute("aria-label", `A row for each of ${data.predicted.table.length} clients. ${
      data.predicted.answer.data}`);
    legend.replaceChildren(...legendOf(data, currentOf(data)));
  });
  return [plot, legend];
}

/** The heads of the columns. @type {(data: Data, rows: Rows, saw: boolean) => SVGElement[]} */
function heads(data, { limit, width }, saw) {
  const run = currentOf(data);
  const { deadline, rounds } = data.controls;
  /** @type {(x: number, words: string) => SVGElement} */
  const text = (x, words) => s("text", { x, y: HEAD / 2, class: "dlv-start" }, words);
  const sees = run ? `the server sees ${run.summed ? "residues" : "updates"}` : "what the server sees: needs a run";
  return [
    ...(saw ? [text(COLUMNS.cells, sees)] : data.predicted.table[0].map((_, i) =>
      s("text", { x: COLUMNS.cells + 20 * i + 10, y: HEAD / 2, class: "dlv-small" }, i))),
    text(0, "client"), text(COLUMNS.bars, "seconds, modelled"),
    ...(saw ? [] : [s("text", { x: COLUMNS.cells - 2, y: HEAD / 2, class: "dlv-left" }, "label")]),
    ...(limit < 0 ? [] : [s("path", { class: "dlv-limit", d: `M${limit} ${HEAD - 3}V${HEAD + 143}` },
      s("title", {}, `deadline: ${digits(deadline)} s`))]),
    text(COLUMNS.rounds, run ? `rounds 1 to ${rounds}` : `rounds 1 to ${rounds}: a run shows who takes part`),
    s("path", { class: "dlv-grounds", d: `M${COLUMNS.rounds} ${HEAD}H${width}V${HEAD + 140}H${COLUMNS.rounds}Z` }),
  ];
}

/** Cells, bars and names. @type {(data: Data, rows: Rows, saw: boolean) => SVGElement[]} */
function drawn({ predicted, hues }, { cells, bars, words, y, tall }, saw) {
  const { seconds: took, slow, attackers } = predicted;
  /** @type {(client: number) => number} */
  const middle = (client) => y(client) + tall / 2;
  /** @type {(client: number) => string[]} */
  const kind = (client) => [client < attackers ? "attacks" : "", slow.includes(client) ? "slow" : ""].filter(Boolean);
  const shades = saw ? cells.map((own) => s("rect", { ...boxOf(own), fill: hues.saw }))
    : cells.filter(({ value }) => value).map((own) =>
      s("rect", { ...boxOf(own), fill: hues.label, "fill-opacity": 0.15 + 0.5 * own.share }));
  const numbers = saw || !words ? [] : cells.filter(({ value }) => value).map((own) =>
    s("text", { x: own.x + own.width / 2, y: middle(own.client), class: "dlv-small" }, own.value));
  return [
    ...shades, ...numbers,
    ...bars.map((own) => s("rect", { ...boxOf(own), fill: own.late ? hues.late : hues.seconds })),
    ...(words ? bars.map((own) => s("text", {
      x: own.x + own.width + 4, y: middle(own.client), class: "dlv-start dlv-small dlv-besidebar",
    }, took[own.client] ? `${seconds(took[own.client])}${own.late ? " late" : ""}` : "no digits")) : []),
    ...(words ? predicted.table.map((_, client) => s("text", { x: 0, y: middle(client), class: "dlv-start" },
      [client, ...kind(client)].join(" "))) : []),
  ];
}

/** The fates of the clients by round. @type {(data: Data, rows: Rows) => SVGElement[]} */
function fates(data, { marks, step, height }) {
  const run = currentOf(data);
  if (!run) return [];
  const paths = data.fates.map(([, , hue], fate) => s("path", {
    fill: hue, d: marks.filter((own) => own.fate === fate).map((own) => markOf(fate, own)).join(""),
  }));
  const still = run.unchanged.map((round) => COLUMNS.rounds + (round + 0.5) * step);
  return [...paths, s("path", { class: "dlv-unmoved", d: still.map((x) => `M${x} ${height - 13}l4 7h-8z`).join("") })];
}

/** @type {(box: { x: number, y: number, width: number, height: number }) => object} */
function boxOf({ x, y, width, height }) {
  return { x, y, width: Math.max(0, width), height: Math.max(0, height) };
}

/** The legend of fates. @type {(data: Data, run: Run | null) => HTMLElement[]} */
function legendOf(data, run) {
  if (!run) return [];
  const there = new Set(run.fates.flat());
  /** @type {(...children: SVGElement[]) => SVGElement} */
  const swatch = (...children) => s("svg", { width: 12, height: 12, "aria-hidden": "true" }, children);
  const box = { x: 0.5, y: 0.5, width: 11, height: 11 };
  return [
    ...data.fates.map(([, says, hue], fate) => ({ says, hue, fate })).filter(({ fate }) => there.has(fate))
      .map(({ says, hue, fate }) => h("span", {}, swatch(s("path", { fill: hue, d: markOf(fate, box) })), says)),
    ...(run.unchanged.length ? [h("span", {}, swatch(s("path", { class: "dlv-unmoved", d: "M6 2l4 7h-8z" })),
      "weights unchanged")] : []),
  ];
}
