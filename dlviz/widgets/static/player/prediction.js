// Predictions: the reader says which chunk moves next, by pointer or keys, for a point.
import { clamp } from "../shared/arrays.js";
import { h, write } from "../shared/dom.js";
import { button } from "../shared/stage.js";
import { guessed } from "./words.js";

/** @import { ChunksPanel } from "./panels.js" */
/** @import { Travel } from "./playing.js" */
/** @import { Player } from "./state.js" */

const ASK = "Which chunk moves next? Click it at the rank that sends it (or arrow keys and Enter in the grid).";
const ASK_TILE = "Which rank sends next? Click its tile (or arrow keys and Enter in the picture).";
const OVER = "No round is left: go back to predict.";
const TABLED = "Close the tables to predict: a chunk is clicked in the pictures.";
const SEEN = " You have already seen this round: it does not count.";
/** @type {Record<string, [down: number, right: number]>} */
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** The question with its score, and the grid's behaviour meanwhile: `turn` begins or ends predicting, `asks` says
 * whether a guess is expected.
 * @type {(player: Player, travel: Travel, chunks: ChunksPanel) => { root: HTMLElement, turn: () => void, guess:
 *   (spot: string) => void, asks: () => boolean }} */
export function prediction(player, travel, chunks) {
  const { scene, now, show, paints, say } = player;
  const sending = scene.frames.findLastIndex(({ messages }) => messages.length);
  const asks = () => now.predicting && !now.tabled && now.number < sending;
  const verdict = h("span", { class: "dlv-verdict" });
  const points = h("strong", { class: "dlv-score" });
  const reset = button("reset", "reset the score", () =>
    show({ score: { right: 0, of: 0 }, furthest: now.number }));
  const root = h("div", { class: "dlv-guess", hidden: true }, verdict, points, reset);
  paints(["predicting", "number", "verdict", "score", "tabled"], () => {
    const { right, of } = now.score;
    root.hidden = !now.predicting;
    const next = now.number < sending ? (scene.image ? ASK_TILE : ASK) : OVER;
    write(verdict, [now.verdict, now.tabled ? TABLED : next].filter(Boolean).join(" "));
    write(points, `${right} of ${of} right`);
    reset.disabled = of === 0;
  });

  function turn() {
    if (!now.predicting) travel.play(false);
    show({ predicting: !now.predicting, tabled: now.predicting && now.tabled, verdict: "" });
  }

  /** @type {(spot: string) => void} */
  function guess(spot) {
    if (!asks()) return;
    const [row, chunk] = spot.split(":").map(Number);
    const next = now.number + 1;
    const { right, words } = guessed(scene, next, scene.rows[row], chunk);
    const seen = next <= now.furthest;
    const { score } = now;
    travel.go(next);
    show({
      verdict: words + (seen ? SEEN : ""),
      score: seen ? score : { right: score.right + Number(right), of: score.of + 1 },
    });
    say(`${now.verdict} ${now.score.right} of ${now.score.of} right.`);
  }

  byKeys(player, chunks, guess);
  return { root, turn, guess, asks };
}

/** While there is a choice, makes one cell of the grid reachable by Tab and movable by arrow keys.
 * @type {(player: Player, chunksPanel: ChunksPanel, guess: (spot: string) => void) => void} */
function byKeys({ scene, now, show, paints }, { box, groups }, guess) {
  paints(["predicting", "spot", "width"], () => {
    for (const [spot, group] of groups) {
      if (now.predicting) group.setAttribute("tabindex", spot === now.spot ? "0" : "-1");
      else group.removeAttribute("tabindex");
    }
  });
  box.addEventListener("keydown", (event) => {
    const by = MOVES[event.key];
    if (!now.predicting || event.ctrlKey || event.metaKey || event.altKey || !(by || event.key === "Enter")) return;
    event.preventDefault();
    if (!by) return guess(now.spot);
    const [row, chunk] = now.spot.split(":").map(Number);
    const [rows, chunks] = [scene.rows.length - 1, scene.chunks.length - 1];
    show({ spot: `${clamp(row + by[0], 0, rows)}:${clamp(chunk + by[1], 0, chunks)}` });
    groups.get(now.spot)?.focus();
  });
  box.addEventListener("focusin", ({ target }) => {
    const cell = /** @type {Element} */ (target).closest("[data-cell]");
    const spot = /** @type {HTMLElement | null} */ (cell)?.dataset.cell;
    if (spot) show({ spot });
  });
}
