// Explores where to cut a layer between ranks: who has which block, what a rank sends by each form, a run.
import { clamp, placeOf } from "../shared/arrays.js";
import { h, write } from "../shared/dom.js";
import { explorer } from "../shared/explorer.js";
import { COSTS, tabs } from "../shared/tabs.js";
import { controls } from "./controls.js";
import { costMap } from "./map.js";
import { matricesPicture } from "./matrices.js";
import { messages } from "./messages.js";
import { along, alone, fitting, foresee, standOut } from "./state.js";
import { bytesTable } from "./table.js";
import { ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { More, Size, Tensor } from "./state.js" */

const HEIGHT = 200; // pixels of the matrices, and of the map
const SAVED = "This page has no kernel: forms and recorded runs can be chosen; for all else, run the notebook's cell.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Tensor} */ (explorer(model, el, {
    name: "explorer of tensor parallelism", saved: SAVED, free: [], alone,
    keys: (begun) => keysOf(/** @type {Tensor} */ (begun)),
    clear() {
      const any = own.shown.now.rank >= 0;
      standOut(own, { rank: -1 });
      return any;
    },
    foresee, runnable: ({ data }) => !data.long, ranWords,
    neighbours: (values) => along(own.shown.now, values),
    more: /** @type {More} */ ({ part: "costs", rank: -1, pointed: -1 }),
  }));
  own.tabs = tabs(own, COSTS);
  own.frame.head(own.tabs.element);
  const { groups, sizes } = controls(own);
  own.frame.controls(...groups);
  own.frame.body.append(own.trouble, ...Object.values(own.tabs.panels));
  const answer = h("p", { class: "dlv-cheapest", role: "status" });
  own.shown.paints(["data"], () => write(answer, own.shown.now.data.answer));
  own.shown.paints(["data"], () => {
    if (own.shown.now.rank >= own.shown.now.data.controls.ranks) own.shown.set({ rank: -1 });
  });
  own.tabs.panels.costs.append(sizes, own.bar.line, answer,
    h("div", { class: "dlv-pictures" }, matricesPicture(own, HEIGHT), costMap(own, HEIGHT)), bytesTable(own));
  const noMessages = messages(own, own.tabs.panels.messages);
  const stop = own.begin();
  return () => {
    noMessages();
    stop();
  };
}

/** @type {(own: Tensor) => KeyRow[]} */
function keysOf(own) {
  const { shown: { now }, choose } = own;
  /** @type {(name: Size, by: number) => (event: KeyboardEvent) => void} */
  const moved = (name, by) => (event) => {
    if (own.tabs.other(event.target)) return;
    const { sizes } = now.data;
    const place = clamp(placeOf(sizes, now.controls[name]) + by, 0, sizes.length - 1);
    choose({ [name]: fitting(now.data, now.controls, name, sizes[place]) });
  };
  const next = () => {
    const names = now.data.forms.map(([name]) => name);
    choose({ form: names[(names.indexOf(now.controls.form) + 1) % names.length] });
  };
  const nextRank = () => standOut(own, { rank: now.rank + 1 < now.data.controls.ranks ? now.rank + 1 : -1 });
  const run = () => {
    own.tabs.show("costs");
    own.bar.press();
  };
  return [
    ["← →", "B smaller, larger", { ArrowLeft: moved("batch", -1), ArrowRight: moved("batch", 1) }],
    ["↑ ↓", "C_out larger, smaller", { ArrowUp: moved("outputs", 1), ArrowDown: moved("outputs", -1) }],
    ["f", "next form", { f: next }],
    ["n", "blocks of the next rank", { n: nextRank }],
    ["m", "costs, messages", { m: () => own.tabs.turn() }],
    ["r", "run it, stop it", { r: run }],
  ];
}

export default { render };
