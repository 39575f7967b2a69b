// Explores what an all-reduce costs: controls, lines over size, the maps of winners, and the player.
import { h } from "../shared/dom.js";
import { explorer } from "../shared/explorer.js";
import { form } from "../shared/form.js";
import { COSTS, tabs } from "../shared/tabs.js";
import { within } from "../player/within.js";
import { linesChart } from "./chart.js";
import { winnerMaps } from "./maps.js";
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
  own.frame.head(own.tabs.element);
  own.frame.controls(...form(own));
  own.frame.body.append(own.trouble, ...Object.values(own.tabs.panels));
  own.tabs.panels.costs.append(
    h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the link, the run and the picture" },
      form(own, "link"), own.bar.start, h("span", {}, own.files)),
    own.bar.line,
    h("div", { class: "dlv-pictures" }, linesChart(own, HEIGHT), winnerMaps(own, HEIGHT)),
    ...pricesTable(own),
  );
  own.tabs.panels.messages.classList.add("dlv-player");
  const player = within(model, own.tabs.panels.messages);
  own.shown.paints(["controls"], () => player.show(model.get("players")?.[own.shown.now.controls.algorithm]));
  const mapped = () => own.shown.set({ maps: maps() });
  lookAhead(own);
  model.on("change:maps", mapped);
  const stop = own.begin();
  return () => {
    model.off("change:maps", mapped);
    player.stop();
    stop();
  };
}

/** Asks for pictures ahead for a link, once the reader stays with it. @type {(own: Collectives) => void} */
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
  return [["m", "costs, messages", { m: () => own.tabs.turn() }]];
}

export default { render };
