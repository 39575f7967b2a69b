// What the reader does on a drawing board, by key, button or pointer.
import { clamp } from "../shared/arrays.js";
import { besides, halvesOf, nextOn, nextOnAll, pick, placeOf, sameAs, thingAt, turned } from "./state.js";
import { boxAt } from "./geometry.js";
import { scoreWords, wordsOf } from "./words.js";

/** @import { State } from "../shared/state.js" */
/** @import { Layout, List } from "./geometry.js" */
/** @import { Colors } from "./paint.js" */
/** @import { BoardState, Cell, Gesture, Ghost, Idle, Part, Piece, Place, Spot } from "./state.js" */

/**
 * @typedef {object} Drag a drag of the pointer
 * @property {Piece | null} piece
 * @property {Cell} [cell] the piece, where it is one of the grid
 * @property {Ghost} [ghost] the piece, where it may come next
 * @property {Ghost} [chip] the same on a button
 * @property {number} held the slot of the piece under the pointer
 * @property {Spot | null} [free] the empty slot that was pressed
 * @property {number} x where it was pressed, in pixels of the window
 * @property {number} y
 * @property {boolean} far whether it moved far enough to be a drag
 * @property {Spot | null} target where the piece would land
 */

/**
 * @typedef {object} Now what is shown now
 * @property {BoardState} board
 * @property {Spot} cursor
 * @property {string | null} brush the action that the reader chose to place
 * @property {boolean} byName whether the reader typed it: it then goes to its first legal slot
 * @property {Place | null} chosen the cell that is selected
 * @property {Cell | null} carried the cell that keys move
 * @property {Drag | null} drag
 * @property {[x: number, y: number] | null} pointer its place over the grid
 * @property {boolean} hovered whether the pointer moved on since `remark` appeared
 * @property {string} remark the last answer, until the next gesture
 * @property {boolean} grave whether the remark is a fault
 * @property {boolean} looked whether the reader moved the cursor since
 * @property {boolean} ghosts whether what may come next is shown
 * @property {Colors | null} colors
 */

/** What is on the grid.
 * @typedef {{ layout: Layout, list: List, pointed: { cell?: Cell, ghost?: Ghost, idle?: Idle } }} View */

/**
 * @typedef {object} Board what the parts of a drawing board share
 * @property {State<Now>["now"]} now
 * @property {State<Now>["set"]} set
 * @property {() => void} flush
 * @property {View} view
 * @property {(gesture: Gesture) => void} send
 * @property {(words: string) => void} say reads a sentence out
 * @property {(action: (Place & Omit<Part, "chunk">) | null) => void} selected receives what the reader selects
 * @property {SVGSVGElement} grid
 * @property {HTMLElement} scroller around the grid
 */

/** Shows a sentence until the next gesture. @type {(board: Board, words: string, grave?: boolean) => void} */
export function remark(board, words, grave = false) {
  board.set({ remark: words, grave, hovered: false });
}

/** Does a gesture. @type {(board: Board, gesture: Gesture) => void} */
export function act(board, gesture) {
  remark(board, "");
  board.set({ looked: false });
  board.send(gesture);
}

/** Reports the effect of a gesture. @type {(board: Board, asked: Gesture) => void} */
export function report(board, asked) {
  const state = board.now.board;
  const { advice, cells, said } = state;
  const at = asked.do === "place" ? cells.at(-1)
    : asked.do === "move" ? { ...asked.from, rank: asked.rank, slot: asked.slot } : null;
  const cell = at && cells.find(sameAs(at));
  if (said) remark(board, said, true);
  else if (asked.do === "advise" && advice) {
    remark(board, advice.words);
    if (advice.move) {
      const { action, rank, slot } = advice.move;
      board.set({ brush: action, cursor: { rank, slot } });
    }
  } else if (cell?.faults.length) remark(board, cell.faults.join(" "), true);
  /** @type {Record<string, string | undefined>} */
  const words = {
    place: cell && `${asked.action} placed`,
    move: cell && `${cell.action} moved`,
    remove: asked.from && `${asked.from.action} removed`,
  };
  board.say(board.now.remark || `${words[asked.do] ?? asked.do}. ${state.verdict} ${scoreWords(state)}`);
}

/** Shows another board. @type {(board: Board, state: BoardState) => void} */
export function take(board, state) {
  const { brush, chosen, carried, cursor } = board.now;
  board.set({ board: state, cursor: { rank: Math.min(cursor.rank, state.ranks - 1), slot: cursor.slot } });
  if (brush && !halvesOf(state, brush)) board.set({ brush: null });
  if (chosen && !state.cells.some(sameAs(chosen))) select(board, null);
  if (carried && !state.cells.some(sameAs(carried))) board.set({ carried: null });
}

/** Chooses an action to place, null: none. @type {(board: Board, brush: string | null, byName?: boolean) => void} */
export function choose(board, brush, byName = false) {
  board.set({ brush, byName });
}

/** The action that Enter places: the chosen one, else the next one of the cursor's rank.
 * @type {(now: Readonly<Now>) => string | null} */
export function toPlace({ board, brush, cursor }) {
  if (brush) return brush;
  const next = nextOn(board, cursor.rank);
  return (next.find((ghost) => ghost.slot === cursor.slot) ?? next[0])?.action ?? null;
}

/** Places an action, or several that were typed; drops the carried one.
 * @type {(board: Board, action?: string | null, spot?: Spot) => void} */
export function place(board, action = toPlace(board.now), { rank, slot } = board.now.cursor) {
  const { byName, board: state, carried } = board.now;
  if (carried) return putDown(board);
  const all = byName && action ? action.split(/[\s,]+/) : [action];
  const wrong = all.find((one) => !one || !halvesOf(state, one));
  if (wrong !== undefined) {
    const kinds = [...state.kinds].join(", ");
    remark(board, wrong
      ? `${wrong} is no action of this pipeline: write stage, kind (${kinds}) and microbatch, as in 0F0.`
      : "No action is chosen: press f or b, or write an action.");
    return board.say(board.now.remark);
  }
  if (byName) for (const one of all) act(board, { do: "place", action: one });
  else {
    board.set({ cursor: { rank, slot } });
    act(board, { do: "place", action, rank, slot });
  }
  choose(board, null);
  select(board, null);
}

/** Picks up the action at the cursor; drops the carried one. @type {(board: Board) => void} */
export function pickUp(board) {
  const cell = here(board.now);
  if (board.now.carried) return putDown(board);
  if (!cell) return;
  board.set({ carried: cell });
  remark(board, `${cell.action} is picked up: choose a slot with the arrows, press Enter to put it down, `
    + "Escape to leave it.");
  board.say(board.now.remark);
}

/** @param {Board} board */
function putDown(board) {
  const { carried, cursor } = board.now;
  board.set({ carried: null });
  if (carried) move(board, carried, cursor);
}

/** Moves an action, unless it is there already. @type {(board: Board, cell: Cell, to: Spot) => void} */
export function move(board, cell, to) {
  if (cell.rank !== to.rank || cell.slot !== to.slot) act(board, { do: "move", from: placeOf(cell), ...to });
}

/** Removes a cell, by default the one at the cursor. @type {(board: Board, cell?: Cell | null) => void} */
export function remove(board, cell = here(board.now)) {
  if (cell) act(board, { do: "remove", from: placeOf(cell) });
}

/** The selected cell, else the one at the cursor. @type {(now: Readonly<Now>) => Cell | null} */
export function here({ board, chosen, cursor }) {
  return (chosen && board.cells.find(sameAs(chosen))) ?? thingAt(board, cursor).cell ?? null;
}

/** Says the verdict on the drawing and goes to the first fault. @type {(board: Board) => void} */
export function check(board) {
  const state = board.now.board;
  remark(board, state.verdict, state.broken > 0);
  const wrong = state.cells.find(({ faults }) => faults.length);
  if (wrong) {
    board.set({ cursor: { rank: wrong.rank, slot: wrong.slot } });
    select(board, wrong);
  }
  board.say(board.now.remark);
  reveal(board);
}

/** Selects a cell, null: none. @type {(board: Board, cell: Cell | null) => void} */
export function select(board, cell) {
  const before = board.now.chosen;
  if (before && cell ? sameAs(before)(cell) : !before && !cell) return;
  board.set({ chosen: cell && placeOf(cell) });
  if (!cell) return board.selected(null);
  const { stage, kind, microbatch } = cell.parts[0];
  board.selected({ ...placeOf(cell), stage, kind, microbatch });
}

/** Moves the cursor by ranks and slots. @type {(board: Board, ranks: number, slots: number) => void} */
export function step(board, ranks, slots) {
  const { board: state, carried, cursor } = board.now;
  const slot = slots && !carried ? besides(state, cursor, slots) : cursor.slot + slots;
  goTo(board, {
    rank: clamp(cursor.rank + ranks, 0, state.ranks - 1),
    slot: clamp(slot, 0, board.view.layout.columns - 1),
  });
}

/** Moves the cursor to a slot, and selects what is there. @type {(board: Board, cursor: Spot) => void} */
export function goTo(board, cursor) {
  const { board: state, carried } = board.now;
  const thing = thingAt(state, cursor);
  board.set({ cursor, looked: true });
  if (!carried) select(board, thing.cell ?? null);
  remark(board, "");
  const words = carried ? `${carried.action} would be put here` : wordsOf(thing);
  board.say(`rank ${cursor.rank}, slot ${cursor.slot}: ${words}`);
  reveal(board);
}

/** Goes to the next possible action, or back, and chooses it. `by`: 1 or -1.
 * @type {(board: Board, by: number) => void} */
export function next(board, by) {
  const { board: state, brush, cursor } = board.now;
  const all = nextOnAll(state);
  if (!all.length) return;
  const at = all.findIndex(({ action, rank, slot }) =>
    rank === cursor.rank && slot === cursor.slot && (!brush || action === brush));
  const ghost = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : (at + by + all.length) % all.length];
  choose(board, ghost.action);
  goTo(board, { rank: ghost.rank, slot: ghost.slot });
}

/** Chooses an action of a kind. @type {(board: Board, kind: string) => void} */
export function chooseKind(board, kind) {
  const { board: state, brush, cursor } = board.now;
  const found = pick(state, cursor.rank, kind, brush);
  remark(board, found ? "" : `Rank ${cursor.rank} has no ${kind} left to place.`);
  board.say(found ?? board.now.remark);
  if (found) choose(board, found);
}

/** Chooses the next microbatch, or the one before. `by`: 1 or -1. @type {(board: Board, by: number) => void} */
export function turn(board, by) {
  const action = toPlace(board.now);
  if (!action) return;
  choose(board, turned(board.now.board, action, by));
  board.say(board.now.brush ?? "");
}

/** Clears what is chosen, carried or selected; false if nothing was. @type {(board: Board) => boolean} */
export function clear(board) {
  const { carried, drag, brush, chosen } = board.now;
  if (!carried && !drag && !brush && !chosen) return false;
  board.set({ carried: null, drag: null, brush: null });
  select(board, null);
  remark(board, "");
  return true;
}

/** Scrolls to the cursor. @type {(board: Board) => void} */
function reveal({ now, view, scroller, flush }) {
  flush();
  const { x, width } = boxAt(view.layout, now.cursor);
  if (x < scroller.scrollLeft) scroller.scrollLeft = x - width;
  else if (x + 2 * width > scroller.scrollLeft + scroller.clientWidth) {
    scroller.scrollLeft = x + 2 * width - scroller.clientWidth;
  }
}
