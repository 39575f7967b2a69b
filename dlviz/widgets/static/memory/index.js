// Explores what ZeRO leaves on a rank: bytes by kind and stage, over ranks, what limits, and a run beside them.
import { h, s } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { lines } from "../shared/lines.js";
import { amount, besideWords, bytes, gapWords } from "../shared/numbers.js";
import { swatch } from "../shared/paint.js";
import { outcome } from "../shared/running.js";
import { table } from "../shared/table.js";
import { bars } from "./bars.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Answer, Explorer, Now } from "../shared/explorer.js" */
/** @import { Lines } from "../shared/lines.js" */
/** @import { Style } from "../shared/theme.js" */
/** @import { Row } from "../shared/table.js" */
/** @import { Model } from "../shared/theme.js" */

/** A stage at these controls: `parts` in bytes of each kind, `total` their sum, `units` and bytes `sent` in a step, and
 * the `largest` model that fits.
 * @typedef {{ stage: number, parts: number[], total: number, units: number, sent: number, largest: string }} Stage */

/** The most that a rank held of each kind, of all `together` at the `peak`, and what it sent.
 * @typedef {{ error?: string, stopped?: string, held: number[], together: number[], peak: number, sent: number,
 *   summary: string[] }} Run */

/** Bytes over ranks, by stage.
 * @typedef {{ x: number[], y: number[][], ends: [number, number], marks: number[] }} Curves */

/** `styles` of the kinds, `strokes` of the stages' lines; `long` says why this cannot run.
 * @typedef {Answer & { kinds: string[], styles: Style[], strokes: { color: string, dash: string }[], rows: Stage[],
 *   model: string, lines: Curves, answer: string, long: string, run: Run | null }} Data */

const SAVED = "This page has no kernel: the stage and recorded runs can be chosen; for all else, run its notebook.";
const HEIGHT = 152; // pixels of the chart over ranks

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Explorer<Data>} */ (explorer(model, el, {
    name: "explorer of memory", saved: SAVED, free: ["stage"], runnable: ({ data }) => !data.long, ranWords,
  }));
  const { now } = own.shown;
  own.frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  own.frame.body.append(own.trouble, own.bar.line, answer(own, () => now.data.answer),
    h("div", { class: "dlv-pictures" }, bars(own), overRanks(own)), amounts(own));
  return own.begin();
}

/** Bytes of a rank over ranks, of which a click chooses a number. @type {(own: Explorer<Data>) => HTMLElement} */
function overRanks(own) {
  const { now } = own.shown;
  const sample = (/** @type {{ color: string, dash: string }} */ { color, dash }) => s("svg",
    { width: 34, height: 10, "aria-hidden": "true" },
    s("path", { class: "dlv-cost", d: "M1 5H33", stroke: color, "stroke-dasharray": dash }));
  const nearest = (/** @type {number} */ to) => now.data.lines.x.reduce((best, one) =>
    (Math.abs(Math.log(one / to)) < Math.abs(Math.log(best / to)) ? one : best));
  const chart = lines(own, {
    names: ["data"], height: HEIGHT, describe: () => describe(now.data),
    choose: (x) => own.choose({ ranks: nearest(x) }),
  });
  chart.append(h("p", { class: "dlv-legend" }, now.data.rows.map(({ stage }, i) =>
    h("span", { class: "dlv-run" }, sample(now.data.strokes[i]), ` stage ${stage}`))));
  return chart;
}

/** @type {(data: Data) => Lines} */
function describe({ lines: { x, y, ends, marks }, rows, strokes, controls, run }) {
  const { ranks, memory, stage } = controls;
  return {
    title: "A rank's bytes over ranks; broad band: its memory",
    across: { log: 2, ends: [x[0], x[x.length - 1]], label: "ranks", unit: "count" },
    up: { log: 10, ends, marks, unit: "bytes" }, here: ranks,
    lines: [{ name: "memory of a rank", kind: "best", x, y: x.map(() => memory) }, ...rows.map((row, i) => ({
      name: `stage ${row.stage}`, kind: row.stage === stage ? "own" : "", ...strokes[i], x, y: y[i],
    }))],
    measured: run?.peak ? [{ x: ranks, y: run.peak, says: `measured ${bytes(run.peak)}` }] : [],
  };
}

/** Each kind's bytes at each stage, and measured ones. @type {(own: Explorer<Data>) => HTMLElement} */
function amounts(own) {
  const { shown } = own;
  return table(own, ["data", "live"], () => {
    const { rows, kinds, styles, controls, run, model } = shown.now.data;
    const at = rows.findIndex(({ stage }) => stage === controls.stage);
    const ran = run?.held ? run : null;
    const size = (/** @type {number} */ value) => (value ? bytes(Math.round(value)) : "–");
    /** @type {(name: Child, of: (row: Stage) => number, measured?: number) => Row} */
    const line = (name, of, measured) => ({
      name,
      cells: [...rows.map((row) => size(of(row))), ...(ran ? [measured == null ? "" : size(measured),
        measured == null || !of(rows[at]) ? "" : gapWords(measured, of(rows[at]))] : [])],
    });
    const more = ran ? ["", ""] : [];
    return {
      caption: `${model}; bytes of a rank`,
      heads: ["kind", ...rows.map(({ stage }) => `stage ${stage}${stage === controls.stage ? " ◆" : ""}`),
        ...(ran ? ["measured", "error"] : [])],
      rows: [...kinds.keys()].filter((i) => ran?.held[i] || rows.some(({ parts }) => parts[i])).map((i) =>
        line(h("span", { class: "dlv-run" }, swatch(styles[i]), kinds[i]), ({ parts }) => parts[i], ran?.held[i])),
      foot: [line("together", ({ total }) => total, ran?.peak), line("sent in a step", ({ sent }) => sent, ran?.sent),
        { name: "in units", cells: [...rows.map(({ units }) => amount(units)), ...more] },
        { name: "largest model that fits", cells: [...rows.map(({ largest }) => largest), ...more] }],
    };
  });
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
function ranWords({ data: { run, long, rows, controls }, live }) {
  if (!run) return live ? long : "";
  return outcome(run, () => {
    const { total, sent } = rows[controls.stage];
    const size = (/** @type {number} */ value) => bytes(Math.round(value));
    return [`A rank held ${besideWords(run.peak, total, size)} at most.`,
      `It sent ${besideWords(run.sent, sent, size)}.`, ...run.summary];
  });
}

export default { render };
