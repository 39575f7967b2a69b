// Explores how to cut a convolution between ranks: which rank has which block, what each cut costs, and a run.
import { h } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { amount, besideWords, bytes, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { table } from "../shared/table.js";
import { boxes } from "./boxes.js";

/** @import { Answer, Explorer, Now } from "../shared/explorer.js" */
/** @import { Row } from "../shared/table.js" */
/** @import { Model, Style } from "../shared/theme.js" */

/** A cut at these controls: `cut` are the controls that choose it, `parts` what its seconds are spent on.
 * @typedef {{ name: string, cut: Record<string, number>, seconds: number, words: number, memory: number, parts:
 *   number[], idle: number }} Cut */

/** A tensor, the block of each rank as bounds of its dims, and what moves.
 * @typedef {{ name: string, shape: number[], blocks: number[][], moves: string }} Tensor */

/** What ran, with its prediction; `sizes` in words, if the layer was cut down.
 * @typedef {{ error?: string, stopped?: string, late: string, sizes: string, predicted: Cut, words: number, memory:
 *   number, seconds: number, summary: string[] }} Run */

/** `parts` name the seconds' parts, `ranks` are their looks, `long` says why this cannot run.
 * @typedef {Answer & { rows: Cut[], tensors: Tensor[], parts: string[], ranks: Style[], answer: string, long: string,
 *   run: Run | null }} Data */

const SAVED = "This page has no kernel: the layer and recorded runs can be chosen; for all else, run its notebook.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Explorer<Data>} */ (explorer(model, el, {
    name: "explorer of convolutions", saved: SAVED, free: ["layer"], runnable: ({ data }) => !data.long, ranWords,
  }));
  own.frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  own.frame.body.append(own.trouble, own.bar.line, answer(own, () => own.shown.now.data.answer),
    h("div", { class: "dlv-pictures" }, boxes(own)), costs(own));
  return own.begin();
}

/** The chosen cut, the measurement below it, and other cuts, of which a click chooses one.
 * @type {(own: Explorer<Data>) => HTMLElement} */
function costs(own) {
  const { shown, choose, can } = own;
  return table(own, ["data", "live"], () => {
    const { rows, parts, run } = shown.now.data;
    const least = Math.min(...rows.map((row) => row.seconds));
    /** @type {(cut: Pick<Cut, "seconds" | "words" | "memory"> & { parts?: number[] }, mark?: string, none?:
     *   string) => string[]} */
    const cells = (cut, mark = "", none = "–") => [
      `${seconds(cut.seconds)}${mark}`, ...parts.map((_, i) => (cut.parts?.[i] ? seconds(cut.parts[i]) : none)),
      amount(Math.round(cut.words)), bytes(Math.round(cut.memory)),
    ];
    /** @type {(cut: Cut, i: number) => Row} */
    const line = (cut, i) => ({
      name: cut.name, chosen: !i, press: i && can("n") ? () => choose(cut.cut) : undefined,
      cells: [...cells(cut, cut.seconds === least ? " ◆" : ""), cut.idle ? String(cut.idle) : "–"],
    });
    const ran = run?.seconds ? [
      ...(run.sizes ? [{ name: `predicted for ${run.sizes}`, kind: "dlv-ran", cells: [...cells(run.predicted), ""] }]
        : []),
      { name: "measured", kind: "dlv-ran", cells: [...cells(run, "", ""), ""] },
    ] : [];
    const [first, ...others] = rows.map(line);
    return {
      heads: ["cut", "a step", ...parts, "elements sent", "memory", "idle ranks"],
      rows: [first, ...ran, ...others],
    };
  });
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
function ranWords({ data: { run, long }, live }) {
  if (!run) return live ? long : "";
  return outcome(run, () => [
    `A step took ${besideWords(run.seconds, run.predicted.seconds, seconds)}.`,
    `Elements sent: ${besideWords(Math.round(run.words), Math.round(run.predicted.words), amount)}.`,
    `A rank held ${besideWords(Math.round(run.memory), Math.round(run.predicted.memory), bytes)}.`, ...run.summary,
  ]);
}

export default { render };
