// The panels below the explorer of schedules: legend, details, charts, the table, the CSV.
import { DOES } from "../board/words.js";
import { h, refill, roomFor, s, write } from "../shared/dom.js";
import { COPIED, copied, SELECTED } from "../shared/file.js";
import { swatch } from "../shared/paint.js";
import { button, opens } from "../shared/stage.js";
import { nameOf, receivers } from "./geometry.js";
import { drawable, ranOf } from "./kernel.js";
import { actionsTable, bubbleChart, chartWords, comparison, memoryStrips } from "./panels.js";
import { KINDS, NAMES } from "./state.js";
import { causeOf, runDetails } from "./words.js";

/** @import { toggle } from "../shared/stage.js" */
/** @import { Explorer } from "./context.js" */
/** @import { Side } from "./state.js" */
/** @import { Style } from "../shared/theme.js" */

const [CHART, MEASURED, BESIDE] = [132, 100, 84]; // pixels of a chart: alone, with a measurement, under the board
const LEAST = 90; // pixels of an opened panel
const HINT = "Click an action or a gap, or press an arrow key: its details appear here.";

/** @type {(own: Explorer, boardShown: () => boolean, toggles: Record<"table" | "csv", ReturnType<typeof toggle>>) =>
 *   HTMLElement[]} */
export function answers(own, boardShown, toggles) {
  const { shown, frame } = own;
  /** @type {Record<"legend" | "details" | "charts" | "csv" | "table", HTMLElement>} */
  const parts = /** @type {any} */ ({ table: h("div", { class: "dlv-opened" }) });
  shown.paints(["opened", "sides", "away", "data", "width"], () => {
    const { now } = shown;
    /** @type {(side: Side) => boolean} */
    const onBoard = ({ name }) => name === "drawn" && boardShown();
    const plotted = drawable(now).some((side) => !onBoard(side)) && !(boardShown() && now.opened);
    parts.charts.hidden = Boolean(now.data.levels) || now.opened !== "" || !drawable(now).length
      || (boardShown() && now.sides.length > 1);
    parts.details.hidden = !plotted;
    parts.legend.hidden = !plotted || boardShown(); // the board has its own
    parts.table.hidden = now.opened !== "table";
    parts.csv.hidden = now.opened !== "csv";
    for (const panel of /** @type {any} */ (frame.root.querySelectorAll(".dlv-opened:not([hidden])"))) {
      panel.style.maxHeight = `${roomFor(frame.root, panel, LEAST)}px`;
    }
  });
  Object.assign(parts, {
    legend: legendOf(own), details: detailsOf(own), charts: chartsOf(own, boardShown), csv: csvOf(own),
  });
  opens(toggles.table, parts.table);
  opens(toggles.csv, parts.csv);
  shown.paints(["opened", "sides", "chosen", "data"], () => {
    const { now } = shown;
    /** @type {(side: number, span: number) => void} */
    const select = (side, span) => own.choosing.select({ side, span });
    if (!parts.table.hidden) actionsTable(parts.table, now.sides, ranOf(now), now.chosen, select);
  });
  return [parts.legend, parts.details, parts.charts, parts.csv, parts.table];
}

/** @type {(explorer: Explorer) => HTMLDivElement} */
function legendOf({ shown }) {
  const legend = h("div", { class: "dlv-marks dlv-key" });
  /** @type {(style: Style, text: string) => HTMLSpanElement} */
  const mark = (style, text) => h("span", {}, swatch(style), text);
  shown.paints(["sides", "data"], () => {
    const { now } = shown;
    const { kinds } = now.data.look;
    const there = new Set(drawable(now).flatMap((side) => [...new Set(side.kind)]));
    const chunks = Math.max(1, ...drawable(now).map((side) => side.chunks));
    const path = s("svg", { width: 22, height: 10, "aria-hidden": "true" },
      s("path", { d: "M1 5H21", class: "dlv-critical" }));
    legend.replaceChildren(
      ...KINDS.filter((kind) => there.has(kind)).map((kind) => mark(kinds[NAMES[kind]], `${kind} ${DOES[kind]}`)),
      mark(kinds.idle, "idle"),
      ...(chunks > 1 ? [h("span", {}, "lighter: a later chunk")] : []),
      h("span", {}, "number: microbatch"), h("span", {}, path, "critical path"),
      ...(ranOf(now) ? [h("span", {}, "lower bar: measured")] : []),
    );
  });
  return legend;
}

/** The chosen action or gap in words, with links to what it waits for and what waits for it.
 * @type {(own: Explorer) => HTMLDivElement} */
function detailsOf(own) {
  const { shown, frame } = own;
  const details = h("div", { class: "dlv-chosenaction", role: "region", "aria-label": "selected action" });
  shown.paints(["chosen", "sides", "data"], () => {
    const { chosen, sides, data } = shown.now;
    frame.root.dataset.chosen = chosen.name || (chosen.hole >= 0 ? "idle" : "");
    const ran = runDetails(data);
    details.dataset.run = String(Boolean(ran)); // reserves its lines, so that selecting moves nothing
    if (chosen.side < 0) return refill(details, [ran || HINT], frame.root);
    const [title, ...lines] = own.choosing.lines();
    const side = sides[chosen.side];
    const to = chosen.span >= 0 ? causeOf(side, chosen.span) : causeOf(side, side.holes[chosen.hole].next, true);
    /** @type {(i: number, text: string) => HTMLButtonElement} */
    const link = (i, text) => h("button", {
      type: "button", class: "dlv-link", onclick: () => own.choosing.select({ side: chosen.side, span: i }),
    }, text);
    const after = chosen.span >= 0 ? receivers(side, chosen.span) : [];
    refill(details, [h("strong", {}, title), ` ${lines.join("; ")}. `,
      to >= 0 ? link(to, `go to ${nameOf(side, to)}`) : "", " ",
      after.map((i) => link(i, `go to ${nameOf(side, i)}, which receives the result`))], frame.root);
  });
  return details;
}

/** The bubble over m, what is in flight, and both in numbers.
 * @type {(explorer: Explorer, boardShown: () => boolean) => HTMLDivElement} */
function chartsOf({ shown }, boardShown) {
  const [bubble, memory] = ["dlv-bubble", "dlv-held"].map((name) =>
    s("svg", { class: `dlv-costs ${name}`, role: "img" }));
  const title = h("h4");
  const bubbleBox = h("div", {}, title, bubble);
  const memoryBox = h("div", {}, h("h4", {}, "In flight, in microbatches"), memory);
  const table = h("div", {
    class: "dlv-numbers", tabindex: "0", role: "region", "aria-label": "the schedules in numbers",
  });
  const charts = h("div", { class: "dlv-sums" }, bubbleBox, memoryBox, table);
  shown.paints(["sides", "data", "chart", "opened", "away", "colors", "width"], () => {
    const { now } = shown;
    const sides = drawable(now);
    if (charts.hidden || !sides.length) return;
    bubbleBox.hidden = sides.every(({ name }) => name === "drawn");
    table.hidden = boardShown(); // the board says it
    write(title, chartWords(now.chart));
    const [run, { styles }] = [ranOf(now), now.data];
    const high = run ? MEASURED : CHART;
    bubbleChart(bubble, now.chart, sides, high, Math.max(220, bubbleBox.clientWidth || 400), styles, run);
    memoryStrips(memory, sides, table.hidden ? BESIDE : high, Math.max(220, memoryBox.clientWidth || 400), styles);
    comparison(table, sides, styles, run);
  });
  return charts;
}

/** @type {(explorer: Explorer) => HTMLDivElement} */
function csvOf({ shown, choose, ask, frame }) {
  const area = { rows: 4, spellcheck: "false" };
  const shared = h("textarea", { ...area, readonly: true, "aria-label": "the schedule as CSV" });
  const given = h("textarea", {
    ...area, "aria-label": "a schedule of your own as CSV", placeholder: "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",
  });
  const useButton = button("use it", "use this CSV", use);
  function use() {
    if (given.value.trim()) ask({ csv: given.value });
    else choose({ schedule: "drawn" });
  }

  const refused = h("p", { class: "dlv-trouble", role: "alert" });
  const copy = button("copy", "copy the CSV", async () => {
    shared.select();
    frame.say(await copied(shared.value) ? COPIED : SELECTED);
  });
  shown.paints(["csv", "opened"], () => {
    const { csv } = shown.now;
    if (shared.value !== csv) shared.value = csv;
  });
  shown.paints(["data"], () => write(refused, shown.now.data.refused));
  shown.paints(["live"], () => void (given.disabled = useButton.disabled = !shown.now.live));
  return h("div", { class: "dlv-opened" },
    h("div", {}, h("h4", {}, "This schedule, as torch.distributed.pipelining reads it"), shared, copy),
    h("div", {}, h("h4", {}, "A schedule of your own"), given, useButton, refused));
}
