// Explores federated averaging: which clients a round asks, whose data differ, who is late, who is trusted; runs.
import { h } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form } from "../shared/form.js";
import { toggle } from "../shared/stage.js";
import { tabs } from "../shared/tabs.js";
import { accuracyChart } from "./chart.js";
import { clientRows } from "./clients.js";
import { ACROSS, showRun } from "./state.js";
import { runsTable } from "./table.js";
import { ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Federated, More, Tab } from "./state.js" */

const HEIGHT = 150; // pixels of the chart
const SAVED = "This page has no kernel: the runs in the table can be shown; for others, run the notebook's cell.";
/** @type {[Tab, string][]} */
const TABS = [["rounds", "Rounds"], ["data", "Data and time"], ["trust", "Trust"]];

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Federated} */ (explorer(model, el, {
    name: "explorer of federated learning", saved: SAVED,
    keys: (begun) => keysOf(/** @type {Federated} */ (begun)),
    ranWords,
    more: /** @type {More} */ ({ part: "rounds", across: "rounds" }),
  }));
  const { shown, frame } = own;
  own.tabs = tabs(own, TABS);
  frame.head(own.tabs.element);
  frame.controls(...form(own), [own.bar.start, examples(own)]);
  for (const [tab] of TABS) {
    own.tabs.panels[tab].append(h("div", { class: "dlv-toolbar", role: "group", "aria-label": `controls of ${tab}` },
      form(own, tab).map((group) => h("span", {}, group))));
  }
  const words = () => shown.now.data.predicted.answer[shown.now.part];
  frame.body.append(...Object.values(own.tabs.panels), own.trouble, own.bar.line, answer(own, words, ["data", "part"]),
    h("div", { class: "dlv-pictures" }, accuracyChart(own, HEIGHT), runsTable(own)), ...clientRows(own));
  return own.begin();
}

/** A button that shows or hides the recorded runs. @type {(own: Federated) => HTMLElement} */
function examples({ shown, ask }) {
  const box = toggle("recorded runs", "show the recorded runs", true, (on) => ask({ examples: on }));
  shown.paints(["data", "live"], () => {
    const { data, live } = shown.now;
    box.hidden = !live;
    box.disabled = data.examples && data.runs.every(({ recorded }) => recorded); // only recorded runs
    box.setAttribute("aria-pressed", String(data.examples));
  });
  return box;
}

/** @type {(own: Federated) => KeyRow[]} */
function keysOf(own) {
  const { shown } = own;
  const { now } = shown;
  const next = () => {
    const { runs, current } = now.data;
    if (runs.length) showRun(own, (current + 1) % runs.length);
  };
  const turn = () => {
    const place = ACROSS.findIndex(([across]) => across === now.across);
    shown.set({ across: ACROSS[(place + 1) % ACROSS.length][0] });
  };
  /** @type {(event: KeyboardEvent) => void} */
  const other = (event) => void own.tabs.other(event.target);
  return [
    ["t", "next tab", { t: () => own.tabs.turn(), ArrowRight: other, ArrowLeft: other }],
    ["x", "over rounds, bytes, seconds, ε", { x: turn }],
    ["n", "next run", { n: next }],
  ];
}

export default { render };
