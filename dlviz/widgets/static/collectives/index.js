// Explores what an all-reduce costs: controls, lines over size, the maps of winners, and the player.
import { h } from "../shared/dom.js";
import { explorer } from "../shared/explorer.js";
import { COSTS, tabs } from "../shared/tabs.js";
import { linesChart } from "./chart.js";
import { controls } from "./controls.js";
import { winnerMaps } from "./maps.js";
import { messages } from "./messages.js";
import { foresee } from "./state.js";
import { pricesTable } from "./table.js";
import { ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Part } from "../shared/tabs.js" */
/** @import { Collectives } from "./state.js" */

const HEIGHT = 206; // pixels of a chart
const SAVED = "This page has no kernel: algorithm and size can be chosen, all else needs a kernel.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const maps = () => JSON.parse(model.get("maps"));
  const own = /** @type {Collectives} */ (explorer(model, el, {
    name: "explorer of collectives", saved: SAVED, free: ["algorithm", "nbytes"],
    keys: (begun) => keysOf(/** @type {Collectives} */ (begun)),
    foresee,
    runnable: ({ data, controls: { ranks } }) => ranks <= data.limits.run,
    ranWords,
    more: { part: /** @type {Part} */ ("costs"), maps: maps() },
  }));
  own.tabs = tabs(own, COSTS);
  own.bars = controls(own);
  own.frame.head(own.tabs.element);
  own.frame.controls(...own.bars.groups);
  own.frame.body.append(own.trouble, ...Object.values(own.tabs.panels));
  own.tabs.panels.costs.append(
    h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the link, the run and the picture" },
      own.bars.link, own.bar.start, h("span", {}, own.files)),
    own.bar.line,
    h("div", { class: "dlv-pictures" }, linesChart(own, HEIGHT), winnerMaps(own, HEIGHT)),
    ...pricesTable(own),
  );
  const noMessages = messages(own, own.tabs.panels.messages);
  const mapped = () => own.shown.set({ maps: maps() });
  lookAhead(own);
  model.on("change:maps", mapped);
  const stop = own.begin();
  return () => {
    model.off("change:maps", mapped);
    noMessages();
    stop();
  };
}

/**
 * Asks for what the kernel can tell ahead of a link, once the reader stays with it.
 * @param {Collectives} own
 */
function lookAhead({ shown, lookAhead: ask }) {
  let asked = "";
  shown.paints(["data", "live"], () => {
    const { live, data: { settled, controls: { alpha, beta, gamma, topology } } } = shown.now;
    const link = JSON.stringify([alpha, beta, gamma, topology]);
    if (!live || !settled || link === asked) return;
    asked = link;
    ask({});
  });
}

/** @type {(own: Collectives) => KeyRow[]} */
function keysOf(own) {
  const { now } = own.shown;
  /** @type {(usual: "resize" | "rerank", by: number) => (event: KeyboardEvent) => void} */
  const moved = (usual, by) => (event) => {
    if (own.tabs.other(event.target)) return;
    (own.bars.mover(event.target) ?? own.bars[usual])(by);
  };
  const next = () => {
    const names = now.data.algorithms;
    own.choose({ algorithm: names[(names.indexOf(now.controls.algorithm) + 1) % names.length] });
  };
  const run = () => {
    own.tabs.show("costs");
    own.bar.press();
  };
  return [
    ["← →", "smaller, larger", { ArrowLeft: moved("resize", -1), ArrowRight: moved("resize", 1) }],
    ["↑ ↓", "more ranks, fewer", { ArrowUp: moved("rerank", 1), ArrowDown: moved("rerank", -1) }],
    ["a", "next algorithm", { a: next }],
    ["m", "costs, messages", { m: () => own.tabs.turn() }],
    ["r", "run it, stop it", { r: run }],
  ];
}

export default { render };
