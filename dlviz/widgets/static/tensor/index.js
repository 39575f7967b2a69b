// Explores how to cut a layer between ranks: which rank has which block, what a rank sends in each form, a run.
import { h, write } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { COSTS, tabs } from "../shared/tabs.js";
import { within } from "../player/within.js";
import { costMap } from "./map.js";
import { matricesPicture } from "./matrices.js";
import { along, fitting, foresee } from "./state.js";
import { bytesTable } from "./table.js";
import { ranWords } from "./words.js";

/** @import { Fit } from "../shared/form.js" */
/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { More, Size, Tensor } from "./state.js" */

const HEIGHT = 200; // pixels of the matrices, and of the map
const SAVED = "This page has no kernel: forms and recorded runs can be chosen; for all else, run the notebook's cell.";
const NONE = "These sizes were not run: after a run the messages of a step appear here.";
const LAST = "The messages of the last step of the run, as its ranks sent them.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  /** @type {Fit} */
  const fit = (name, value) => {
    const { data, controls } = own.shown.now;
    return name in data.names ? fitting(data, controls, /** @type {Size} */ (name), value) : value;
  };
  const own = /** @type {Tensor} */ (explorer(model, el, {
    name: "explorer of tensor parallelism", saved: SAVED, free: ["form"], fit,
    keys: (begun) => keysOf(/** @type {Tensor} */ (begun)),
    clear() {
      const any = own.shown.now.rank >= 0;
      own.shown.show({ rank: -1 });
      return any;
    },
    foresee, runnable: ({ data }) => !data.long, ranWords,
    neighbours: (values) => along(own.shown.now, values),
    more: /** @type {More} */ ({ part: "costs", rank: -1, pointed: -1 }),
  }));
  own.tabs = tabs(own, COSTS);
  own.frame.head(own.tabs.element);
  own.near = (name) => {
    const wanted = own.shown.now.live && along(own.shown.now, { [name]: true });
    if (wanted) own.lookAhead(wanted);
  };
  own.frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  const sizes = h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the sizes" },
    form(own, "sizes", fit).map((group) => h("span", {}, group)));
  own.frame.body.append(own.trouble, ...Object.values(own.tabs.panels));
  own.shown.paints(["data"], () => {
    if (own.shown.now.rank >= own.shown.now.data.controls.ranks) own.shown.set({ rank: -1 });
  });
  own.tabs.panels.costs.append(sizes, own.bar.line, answer(own, () => own.shown.now.data.answer),
    h("div", { class: "dlv-pictures" }, matricesPicture(own, HEIGHT), costMap(own, HEIGHT)), bytesTable(own));
  const about = h("p", { class: "dlv-about" });
  const messages = h("div", { class: "dlv-player" });
  own.tabs.panels.messages.append(about, messages);
  const player = within(model, messages, (any) => {
    write(about, any ? LAST : NONE);
    messages.hidden = !any;
  });
  const stop = own.begin();
  return () => {
    player.stop();
    stop();
  };
}

/** @type {(own: Tensor) => KeyRow[]} */
function keysOf(own) {
  const { now } = own.shown;
  const nextRank = () => own.shown.show({ rank: now.rank + 1 < now.data.controls.ranks ? now.rank + 1 : -1 });
  return [
    ["n", "blocks of the next rank", { n: nextRank }],
    ["m", "costs, messages", { m: () => own.tabs.turn() }],
  ];
}

export default { render };
