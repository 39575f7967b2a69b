// Explores codes of gradients: seconds of each over bandwidth and ranks, bytes and variance, a run.
import { h } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { lines } from "../shared/lines.js";
import { amount, besideWords, digits, exact, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { table } from "../shared/table.js";

/** @import { Answer, Explorer, Now } from "../shared/explorer.js" */
/** @import { Lines } from "../shared/lines.js" */
/** @import { Row } from "../shared/table.js" */
/** @import { Model } from "../shared/theme.js" */

/** A method at these controls; `bits` a value, `sent` bytes of a rank.
 * @typedef {{ name: string, title: string, how: string, bits: number, sent: number, seconds: number, variance:
 *   number }} Method */

/** @typedef {{ error?: string, stopped?: string, sent: number, seconds: number, late: string, summary: string[] }}
 *   Run */

/** Seconds over a control, by method. @typedef {{ x: number[], y: Record<string, number[]>, ends: [number, number] }}
 *   Curves */

/** `hows` are the words of how codes meet, `strokes` the looks of the rows' lines, `long` says why this cannot run.
 * @typedef {Answer & { hows: Record<string, string>, rows: Method[], strokes: { color: string, dash: string }[],
 *   lines: Record<"bandwidth" | "ranks", Curves>, answer: string, long: string, run: Run | null }} Data */

const SAVED = "This page has no kernel: recorded runs can be chosen; for all else, run its notebook.";
const HEIGHT = 190; // pixels of a chart
const HEADS = ["method", "codes meet by", "bits a value", "a rank sends, in bytes", "takes", "× dense", "variance"];

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Explorer<Data>} */ (explorer(model, el, {
    name: "explorer of compression", saved: SAVED, runnable: ({ data }) => !data.long, ranWords,
  }));
  const { now } = own.shown;
  own.frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  own.frame.body.append(own.trouble, own.bar.line, answer(own, () => now.data.answer),
    h("div", { class: "dlv-pictures" }, chart(own, "bandwidth"), chart(own, "ranks")), costs(own));
  return own.begin();
}

/** Seconds of each method over a control, of which a click chooses a value.
 * @type {(own: Explorer<Data>, name: "bandwidth" | "ranks") => HTMLElement} */
function chart(own, name) {
  const { now } = own.shown;
  const nearest = (/** @type {number} */ to) => now.data.lines[name].x.reduce((best, one) =>
    (Math.abs(Math.log(one / to)) < Math.abs(Math.log(best / to)) ? one : best));
  return lines(own, {
    names: ["data"], height: HEIGHT, describe: () => describe(now.data, name),
    choose: (x) => own.choose({ [name]: nearest(x) }),
  });
}

/** @type {(data: Data, name: "bandwidth" | "ranks") => Lines} */
function describe({ rows, strokes, lines: every, controls, run }, name) {
  const { x, y, ends } = every[name];
  const wide = name === "bandwidth";
  const here = controls[name];
  const least = x.map((_, i) => Math.min(...rows.map((row) => y[row.name][i])));
  const own = rows.find((row) => row.name === controls.method);
  return {
    title: `Seconds over ${wide ? "bandwidth" : "ranks"}; broad band: the fastest`,
    across: { log: wide ? 10 : 2, ends: [x[0], x[x.length - 1]], unit: wide ? "bytes" : "number",
      label: wide ? "bandwidth, a second" : "ranks" },
    up: { log: 10, ends, unit: "seconds" }, here: here >= x[0] ? here : undefined,
    lines: [{ name: "the fastest", kind: "best", x, y: least }, ...rows.map((row, i) => ({
      name: row.title, kind: row === own ? "own" : "", ...strokes[i], x, y: y[row.name],
    }))],
    measured: run?.seconds && here >= x[0] ? [{ x: here, y: run.seconds, says: `measured ${seconds(run.seconds)}` }]
      : [],
  };
}

/** The methods in a table, the measurement below the chosen one. @type {(own: Explorer<Data>) => HTMLElement} */
function costs(own) {
  const { shown, choose, can } = own;
  return table(own, ["data", "live"], () => {
    const { rows, strokes, hows, controls, run } = shown.now.data;
    const [dense] = rows;
    const least = Math.min(...rows.map((row) => row.seconds));
    const ran = run?.seconds == null ? [] : [{ kind: "dlv-ran", name: "measured",
      cells: ["", "", exact(run.sent), seconds(run.seconds), digits(run.seconds / dense.seconds), ""] }];
    const times = (/** @type {number} */ took) => (dense.seconds ? digits(took / dense.seconds) : "");
    return {
      heads: HEADS, words: [0, 1],
      rows: rows.flatMap((row, i) => [/** @type {Row} */ ({
        name: row.title, line: strokes[i], data: { "data-method": row.name },
        press: can("method") ? () => choose({ method: row.name }) : undefined,
        chosen: row.name === controls.method,
        cells: [hows[row.how], digits(row.bits), exact(row.sent),
          `${seconds(row.seconds)}${row.seconds === least ? " ◆" : ""}`, times(row.seconds), amount(row.variance)],
      }), ...(row.name === controls.method ? ran : [])]),
    };
  });
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
function ranWords({ data: { run, long, rows, controls }, live }) {
  if (!run) return live ? long : "";
  return outcome(run, () => {
    const took = rows.find(({ name }) => name === controls.method)?.seconds ?? NaN;
    return [`An exchange took ${besideWords(run.seconds, took, seconds)}.`, ...run.summary];
  });
}

export default { render };
