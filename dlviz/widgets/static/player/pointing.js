// Hover and focus, clicks, and the messages that they highlight.
import { write } from "../shared/dom.js";
import { sharedSelection } from "../shared/selection.js";
import { messagesAt, messagesOfSelection } from "./state.js";
import { cellWords, timesOf } from "./words.js";

/** @import { Cell } from "./geometry.js" */
/** @import { Travel } from "./playing.js" */
/** @import { Player, Scene } from "./state.js" */
/** @import { Model } from "../shared/theme.js" */

const LISTED = 12; // cells of a rank in words

/** A part of the pictures: its messages, and its words.
 * @type {(scene: Scene, number: number, cells: Cell[], part: DOMStringMap) => { rows: number[], words: string }} */
export function about(scene, number, cells, { message, cell, rank }) {
  if (message != null) {
    const own = scene.messages[Number(message)];
    return { rows: [Number(message)], words: `${own.sentence}: ${timesOf(own)}` };
  }
  if (rank != null) {
    const own = cells.filter((one) => one.rank === Number(rank)).map((one) => cellWords(scene, one));
    return { rows: messagesAt(scene, number, Number(rank)), words: own.slice(0, LISTED).join("\n") };
  }
  const at = cells.find(({ row, chunk }) => `${row}:${chunk}` === cell);
  return at
    ? { rows: messagesAt(scene, number, at.rank, at.chunk), words: cellWords(scene, at) }
    : { rows: [], words: "" };
}

/** The Trace's selection. When another widget selects, the player goes to the messages and stops; `source` marks the
 * program's lines.
 * @type {(player: Player, travel: Travel, model: Model, source: { mark: (places: string[]) => void }) =>
 *   ReturnType<typeof sharedSelection>} */
export function selecting({ scene, now, show }, { go, play }, model, source) {
  return sharedSelection(scene.trace, model, (selection, own) => {
    const chosen = messagesOfSelection(scene, selection);
    const frames = chosen.map((row) => scene.frameOf[row]);
    if (chosen.length && !frames.includes(now.number)) go(Math.min(...frames));
    else if (chosen.length && !own) play(false);
    const first = chosen.slice(0, 1).flatMap((row) => scene.messages[row].where);
    source.mark(selection.where ? [selection.where] : first);
    show({ chosen });
  });
}

/** Shows words for what is pointed at, and chooses what is clicked. `body` has the pictures, `pointedWords` shows
 * the words, `hint` are the words when nothing is pointed at.
 * @type {(player: Player, panels: { body: HTMLElement, pointedWords: HTMLElement, hint: string, chunks: { cells: ()
 *   => Cell[] } }, guesses: { asks: () => boolean, guess: (spot: string) => void }, choose: (message: number |
 *   undefined) => void) => void} */
export function pointing({ scene, now, show, paints }, { body, pointedWords, hint, chunks }, guesses, choose) {
  const leave = () => show({ pointed: null });
  /** @type {(event: Event, selector: string) => HTMLElement | SVGElement | null} */
  const partOf = ({ target }, selector) => /** @type {Element} */ (target).closest(selector);

  /** @type {(event: Event) => void} */
  function point(event) {
    const part = partOf(event, "[data-message], [data-cell], [data-rank]");
    if (part) show({ pointed: about(scene, now.number, chunks.cells(), part.dataset) });
    else leave();
  }

  body.addEventListener("pointerover", point);
  body.addEventListener("focusin", point);
  body.addEventListener("pointerleave", leave);
  body.addEventListener("click", (event) => {
    const part = partOf(event, "svg [data-message], svg [data-cell]");
    if (!part) return;
    const { cell } = part.dataset;
    if (cell && now.predicting) guesses.guess(cell);
    else choose(about(scene, now.number, chunks.cells(), part.dataset).rows[0]);
  });

  paints(["pointed"], () => write(pointedWords, now.pointed?.words ?? hint));
  paints(["predicting", "number"], () => body.classList.toggle("dlv-predicting", guesses.asks()));
  paints(["pointed", "chosen", "number", "predicting", "tabled", "width"], () => {
    const [hot, all] = [new Set(now.pointed?.rows), new Set(now.chosen)];
    body.classList.toggle("dlv-pointing", hot.size > 0);
    for (const part of /** @type {NodeListOf<HTMLElement>} */ (body.querySelectorAll("[data-message]"))) {
      const row = Number(part.dataset.message);
      const chosen = all.has(row);
      part.classList.toggle("dlv-hot", hot.has(row));
      part.classList.toggle("dlv-chosen", chosen);
      if (part.matches("button")) part.setAttribute("aria-pressed", String(chosen));
    }
  });
}
