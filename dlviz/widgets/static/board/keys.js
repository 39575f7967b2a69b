// The keys of a drawing board.
import { act, check, chooseKind, clear, goTo, next, pickUp, place, remove, step, turn } from "./hand.js";

/** @import { Board } from "./hand.js" */

/** What the keys do; a help may list them. @type {[shown: string, does: string, actions: {}][]} */
export const BOARD_KEYS = [
  ["← → ↑ ↓", "move on the grid", {}],
  ["n N", "go to the next action that can come, go back", {}],
  ["f b i w", "choose an action of this kind; press again for the next stage", {}],
  ["+ -", "choose the next microbatch, the one before", {}],
  ["Enter", "place the chosen action, or put down the moved one", {}],
  ["m", "move the action at the cursor", {}],
  ["Delete", "remove the action at the cursor", {}],
  ["u r", "undo, redo", {}],
  ["e", "empty the grid", {}],
  ["k g h", "check, show what can come next, name a good move", {}],
];

/** What each key does; an action that returns false leaves the key to others.
 * @type {Record<string, (board: Board) => unknown>} */
const ACTIONS = {
  ArrowLeft: (board) => step(board, 0, -1),
  ArrowRight: (board) => step(board, 0, 1),
  ArrowUp: (board) => step(board, -1, 0),
  ArrowDown: (board) => step(board, 1, 0),
  Home: (board) => goTo(board, { ...board.now.cursor, slot: 0 }),
  End: (board) => goTo(board, { ...board.now.cursor, slot: board.now.board.end }),
  n: (board) => next(board, 1),
  N: (board) => next(board, -1),
  f: (board) => chooseKind(board, "F"),
  b: (board) => chooseKind(board, "B"),
  i: (board) => chooseKind(board, "I"),
  w: (board) => chooseKind(board, "W"),
  "+": (board) => turn(board, 1),
  "=": (board) => turn(board, 1),
  "-": (board) => turn(board, -1),
  Enter: (board) => place(board),
  " ": (board) => place(board),
  m: pickUp,
  Delete: (board) => remove(board),
  Backspace: (board) => remove(board),
  u: (board) => act(board, { do: "undo" }),
  r: (board) => act(board, { do: "redo" }),
  e: (board) => act(board, { do: "reset" }),
  k: check,
  g: (board) => board.set({ ghosts: !board.now.ghosts }),
  h: (board) => act(board, { do: "advise" }),
  Escape: clear,
};

/** The action of a key; null if it has none. @type {(event: KeyboardEvent) => ((board: Board) => unknown) | null} */
function actionOf({ key, target, altKey, shiftKey, ctrlKey, metaKey }) {
  const element = /** @type {Element} */ (target);
  if (key === "Tab" || altKey || element.matches("input, textarea, select")) return null;
  if (element.closest("button, summary") && ["Enter", " "].includes(key)) return null;
  if (!ctrlKey && !metaKey) return ACTIONS[key] ?? ACTIONS[key.toLowerCase()] ?? null;
  if (key.toLowerCase() !== "z") return null;
  return (board) => act(board, { do: shiftKey ? "redo" : "undo" });
}

/** Handles the keys pressed within `root`. @type {(board: Board, root: HTMLElement) => void} */
export function listenToKeys(board, root) {
  root.addEventListener("keydown", (event) => void press(board, event));
}

/** Handles a key; returns whether it is one of the board's. @type {(board: Board, event: KeyboardEvent) => boolean} */
export function press(board, event) {
  const action = actionOf(event);
  if (!action) return false;
  board.set({ pointer: null }); // words describe what the keys are at, not where the pointer rests
  const done = action(board);
  board.flush();
  if (done === false) return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}
