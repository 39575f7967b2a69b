// Below the grid of a drawing board: the legend, the known schedules, the drawing as text and as a file.
import { h } from "../shared/dom.js";
import { COPIED, copied, save, SELECTED } from "../shared/file.js";
import { digits } from "../shared/numbers.js";
import { button, opens, toggle } from "../shared/stage.js";
import { FRACTION, RATIO } from "../schedules/words.js";
import { act } from "./hand.js";
import { sampleOf, savedBoard } from "./paint.js";
import { DOES, onOneLine } from "./words.js";
import { paperLink } from "./levels.js";

/** @import { Board } from "./hand.js" */
/** @import { Look } from "./paint.js" */
/** @import { Style } from "./state.js" */

/** @typedef {(opened: HTMLElement | null) => void} Opened */
/** @typedef {{ opener: HTMLElement, panel: HTMLElement, draw: () => void }} Panel */

const IDLE = { waiting: "idle: waits", choice: "idle: your choice", done: "idle: nothing left" };
const SHARING = "A line for each rank, its actions in order: the CSV of torch.distributed.pipelining. Paste a CSV or "
  + "a copied line, then press draw this; each action is drawn at its earliest slot.";

/** What the fills mean.
 * @type {(board: Board, look: Omit<Look, "colors" | "shades">) => { element: HTMLElement, draw: () => void }} */
export function legendOf(board, look) {
  const element = h("p", { class: "dlv-boardlegend", "aria-hidden": "true" });
  let seen = "";

  function draw() {
    const { cells, kinds: offered, shades, slot, stages, ranks } = board.now.board;
    const kinds = [...new Set([...offered, ...cells.flatMap(({ parts }) => parts.map(({ kind }) => kind))])];
    const key = JSON.stringify([kinds, shades, slot]);
    if (key === seen) return;
    seen = key;
    const own = { ...look, shades, prefix: `${look.prefix}key` };
    const sample = (/** @type {{ kind?: string, cause?: string }} */ what, /** @type {string} */ words) =>
      h("span", {}, sampleOf(what, own), ` ${words}`);
    const chunks = stages.length > ranks ? "; lower case, lighter: a rank's later chunks" : "";
    element.replaceChildren(
      ...kinds.map((kind) => sample({ kind }, `${kind} ${DOES[kind]}`)),
      ...Object.entries(IDLE).map(([cause, words]) => sample({ cause }, words)),
      h("span", {}, `1 slot = ${slot} s${chunks}`));
  }

  return { element, draw };
}

/** A table of the known schedules. @type {(board: Board, opened: Opened) => Panel} */
export function knownPanel(board, opened) {
  const panel = h("div", { class: "dlv-opened", hidden: true });
  const opener = opens(toggle("known", "show the known schedules of this size", false, (on) => {
    panel.hidden = !on;
    opened(on ? opener : null);
  }), panel);
  let seen = "";

  function draw() {
    const { level, zoo } = board.now.board;
    opener.hidden = level != null;
    if (JSON.stringify(zoo) === seen) return;
    seen = JSON.stringify(zoo);
    const heads = ["slots", RATIO, FRACTION, "most in flight"];
    const amount = (/** @type {string | number} */ value) => h("td", { class: "dlv-amount" }, value);
    panel.replaceChildren(h("table", {},
      h("caption", { class: "dlv-spoken" }, "known schedules of this size"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "schedule"),
        heads.map((name) => h("th", { scope: "col", class: "dlv-amount" }, name)), h("th", { scope: "col" }, "paper"))),
      h("tbody", {}, zoo.map(({ title, paper, slots, ratio, fraction, peak }) => h("tr", {},
        h("th", { scope: "row" }, title),
        [slots, digits(ratio), `${digits(100 * fraction)} %`, Math.max(...peak)].map(amount),
        h("td", {}, paper && paperLink(paper)))))));
  }

  return { opener, panel, draw };
}

/** The drawing as text, to copy or paste. @type {(board: Board, opened: Opened) => Panel} */
export function sharePanel(board, opened) {
  const text = h("textarea", { rows: 4, spellcheck: "false", "aria-label": "the drawing as text" });
  const take = button("draw this", "draw what the text says", () => act(board, { do: "csv", text: text.value }));
  const copy = button("copy on one line", "copy the drawing on one line, for a chat", async () => {
    const line = onOneLine(board.now.board.csv);
    text.value = line;
    text.select();
    board.say(await copied(line) ? COPIED : SELECTED);
  });
  const panel = h("div", { class: "dlv-boardcsv dlv-opened", hidden: true },
    h("div", {}, text, take, " ", copy), h("p", {}, SHARING));
  const opener = opens(toggle("share", "share the drawing as text", false, (on) => {
    panel.hidden = !on;
    opened(on ? opener : null);
  }), panel);

  function draw() {
    const { csv } = board.now.board;
    if (document.activeElement !== text && text.dataset.drawn !== csv) text.value = text.dataset.drawn = csv;
  }

  return { opener, panel, draw };
}

/** A button that saves the grid as an SVG file.
 * @type {(board: Board, look: { font: string, kinds: Record<string, Style> }) => HTMLButtonElement} */
export function savingButton(board, look) {
  return button("SVG", "save the grid as an SVG file", () => {
    const { board: state, colors } = board.now;
    if (colors) save(new XMLSerializer().serializeToString(savedBoard(state, colors, look)), "schedule.svg");
  });
}
