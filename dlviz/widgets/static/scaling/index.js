// Explores how far data parallelism scales: speed-up and communication over the number of ranks.
import { clamp } from "../shared/arrays.js";
import { h } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form } from "../shared/form.js";
import { lines } from "../shared/lines.js";

/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Lines } from "../shared/lines.js" */
/** @import { Model } from "../shared/theme.js" */

/** @typedef {Answer & { lines: Record<string, Lines>, words: string[] }} Data `words` of each number of ranks */

const SAVED = "This page has no kernel: ranks can be chosen; to change all else, run the notebook's cell.";
const HEIGHT = 216; // pixels of a chart

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Explorer<Data>} */ (explorer(model, el, {
    name: "explorer of scaling", saved: SAVED, free: ["ranks"], runnable: null,
    foresee: (data, controls) => ({ ...data, controls: { ...data.controls, ranks: controls.ranks } }),
  }));
  const { now } = own.shown;
  const most = now.data.words.length;
  own.frame.controls(...form(own));
  const words = () => now.data.words[now.data.controls.ranks - 1];
  own.frame.body.append(own.trouble, answer(own, words), h("div", { class: "dlv-pictures" },
    ["speedup", "ratio"].map((name) => lines(own, {
      names: ["data"], height: HEIGHT, describe: () => ({ ...now.data.lines[name], here: now.data.controls.ranks }),
      choose: (x) => own.choose({ ranks: clamp(Math.round(x), 1, most) }),
    }))));
  return own.begin();
}

export default { render };
