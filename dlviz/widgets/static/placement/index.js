// Explores which device runs which group: the graph, its timeline, what each method finds, what a network learns.
import { h } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { besideWords, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { table } from "../shared/table.js";
import { give, graphPicture, select } from "./graph.js";
import { learnButton, learned } from "./learned.js";
import { timeline } from "./times.js";

/** @import { Answer, Explorer, Now } from "../shared/explorer.js" */
/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model, Style } from "../shared/theme.js" */

/** A group of operators; `at` is its column and row. @typedef {{ seconds: number, parents: number[], at: [number,
 *   number] }} Group */

/** What device `rank` does: computes group `stage`, or sends or receives its value.
 * @typedef {{ rank: number, lane: "compute" | "send" | "recv", stage: number, peer: number, start: number, end:
 *   number }} Bar */

/** What a method found, as played and as promised. @typedef {{ name: string, placement: string, seconds: number,
 *   promised: number, samples: number }} Method */

/** The best so far over samples by method, and probabilities [moment][group][device] after `at` samples.
 * @typedef {{ x: number[], best: Record<string, number[]>, at: number[], probabilities: number[][][] }} Lesson */

/** What ran, in the graph's seconds, beside `play`'s.
 * @typedef {{ error?: string, stopped?: string, late: string, seconds: number, predicted: number, summary: string[] }}
 *   Run */

/** `critical` are the bars on the critical path; `bounds` that path without messages, and work / devices.
 * @typedef {Answer & { groups: Group[], played: { bars: Bar[], critical: number[], seconds: number }, bounds: [number,
 *   number], best: { name: string, seconds: number }, methods: Method[], learned: Lesson | null, run: Run | null,
 *   answer: string, ranks: Style[], strokes: { color: string, dash: string }[] }} Data */

/** @typedef {Explorer<Data, { group: number }>} Placement `group` is the selected one, -1 for none */

const SAVED = "This page has no kernel: choose runs and the methods' placements; for all else, run its notebook.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Placement} */ (explorer(model, el, {
    name: "explorer of placements", saved: SAVED, runnable: () => true, ranWords, more: { group: -1 },
    keys: (begun) => keysOf(/** @type {Placement} */ (begun)),
    clear: () => own.shown.now.group >= 0 && (select(own, -1), true),
  }));
  const learn = learnButton(own);
  own.frame.controls(...form(own), [own.bar.start, learn.button, recordedRuns(own)]);
  own.frame.body.append(own.trouble, own.bar.line, learn.line, answer(own, () => own.shown.now.data.answer),
    h("div", { class: "dlv-pictures" }, graphPicture(own), timeline(own)),
    h("div", { class: "dlv-pictures" }, methods(own), learned(own)));
  const stop = own.begin();
  return () => {
    learn.stop();
    stop();
  };
}

/** @type {(own: Placement) => KeyRow[]} */
function keysOf(own) {
  const { now } = own.shown;
  const step = (/** @type {number} */ by) => () => {
    const many = now.data.groups.length;
    select(own, now.group < 0 ? 0 : (now.group + by + many) % many);
  };
  const devices = Array.from({ length: 8 }, (_, device) => [device, () => give(own, now.group, device)]);
  return [
    ["← →", "group before, after", { ArrowLeft: step(-1), ArrowRight: step(1) }],
    ["Space", "give it to the next device", { " ": () => give(own, now.group) }],
    ["0 … 7", "give it to this device", Object.fromEntries(devices)],
  ];
}

/** What each method finds; its name chooses the placement. @type {(own: Placement) => HTMLElement} */
function methods(own) {
  const { shown } = own;
  return table(own, ["data", "live"], () => {
    const { methods: rows, controls, played, run } = shown.now.data;
    const least = shown.now.data.best.seconds;
    const mark = (/** @type {number} */ value) => `${seconds(value)}${value === least ? " ◆" : ""}`;
    return {
      heads: ["method", "promised", "played", "placements played"],
      rows: [{ name: "yours", chosen: true, cells: ["", mark(played.seconds), "1"] }, ...(run?.seconds
        ? [{ name: "measured", kind: "dlv-ran", cells: ["", seconds(run.seconds), ""] }] : []), ...rows.map((row) => ({
        name: row.name, chosen: row.placement === controls.placement, label: `choose the placement of ${row.name}`,
        press: () => own.show({ ...shown.now.controls, placement: row.placement }),
        cells: [seconds(row.promised), mark(row.seconds), row.samples.toLocaleString("en")],
      }))],
    };
  }, "dlv-scroll dlv-methods");
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
function ranWords({ data: { run } }) {
  if (!run) return "";
  return outcome(run, () => [`It took ${besideWords(run.seconds, run.predicted, seconds)}.`, ...run.summary]);
}

export default { render };
