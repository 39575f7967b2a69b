// The pointer on a drawing board: hover, click, drag.
import { hit, slotAt } from "./geometry.js";
import { choose, move, place, remark, remove, select } from "./hand.js";

/** @import { Board, Drag } from "./hand.js" */
/** @import { Ghost } from "./state.js" */

const FAR = 4; // pixels of movement that make a press a drag
const EDGE = 24; // pixels from an edge within which a drag scrolls

/** Handles the pointer on the grid. @type {(board: Board) => void} */
export function listenToPointer(board) {
  const { grid, scroller } = board;
  grid.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const { layout, list } = board.view;
    const [x, y] = pointOf(board, event);
    const { cell, ghost } = hit(list, x, y);
    const piece = cell ?? ghost ?? null;
    scroller.focus({ preventScroll: true });
    const held = piece ? Math.floor(x / layout.slot) - piece.slot : 0;
    begin(board, event, grid, { piece, cell, ghost, held, free: piece ? null : slotAt(layout, x, y) });
  });
  grid.addEventListener("pointerleave", () => point(board, null));
  grid.addEventListener("pointermove", (event) => {
    if (!board.now.drag) point(board, pointOf(board, event));
  });
}

/** Makes a button draggable onto the grid, to place its action.
 * @type {(board: Board, button: HTMLElement, chip: Ghost) => void} */
export function makeDraggable(board, button, chip) {
  button.addEventListener("pointerdown", (event) => {
    if (event.button === 0) begin(board, event, button, { piece: chip, chip, held: 0 });
  });
}

/** The point of an event on the grid, in pixels.
 * @type {(board: Board, event: PointerEvent) => [x: number, y: number]} */
function pointOf({ grid }, { clientX, clientY }) {
  const box = grid.getBoundingClientRect();
  return [clientX - box.left, clientY - box.top];
}

/** @type {(board: Board, pointer: [x: number, y: number] | null) => void} */
function point(board, pointer) {
  const before = thing(board);
  board.view.pointed = pointer ? hit(board.view.list, ...pointer) : {};
  board.set({ pointer });
  if (thing(board) !== before) board.set({ hovered: true });
  board.flush();
}

/** @param {Board} board */
function thing({ view: { pointed } }) {
  return pointed.cell ?? pointed.ghost ?? pointed.idle;
}

/** Follows the pointer from a press on `holder` to its release.
 * @type {(board: Board, event: PointerEvent, holder: Element, what: Omit<Drag, "x" | "y" | "far" | "target">) =>
 *   void} */
function begin(board, event, holder, what) {
  board.set({ drag: { ...what, x: event.clientX, y: event.clientY, far: false, target: null } });
  holder.setPointerCapture(event.pointerId);
  const listening = new AbortController();
  const { signal } = listening;
  const on = (/** @type {string} */ name, /** @type {(event: any) => void} */ call) =>
    holder.addEventListener(name, call, { signal });
  const end = (/** @type {PointerEvent} */ { type }) => {
    listening.abort();
    const { drag } = board.now;
    if (type === "pointerup" && drag) dropped(board, drag);
    board.set({ drag: null });
    board.flush();
  };
  on("pointermove", (now) => dragged(board, now));
  on("pointerup", end);
  on("pointercancel", end);
}

/** @type {(board: Board, event: PointerEvent) => void} */
function dragged(board, event) {
  const { drag } = board.now;
  if (!drag) return;
  const far = drag.far || Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > FAR;
  if (far !== drag.far) board.set({ drag: { ...drag, far } });
  if (!far || !drag.piece) return;
  const over = scrolledTo(board, event) ? slotAt(board.view.layout, ...pointOf(board, event)) : null;
  const target = over && { rank: over.rank, slot: Math.max(0, over.slot - drag.held) };
  const { action } = drag.piece;
  board.set({ drag: { ...drag, far, target } });
  remark(board, target ? `${action} to rank ${target.rank}, slot ${target.slot}.`
    : `Let go and ${action} is ${drag.cell ? "removed" : "not placed"}.`);
}

/** Whether the pointer is within the frame; near an edge it scrolls.
 * @type {(board: Board, event: PointerEvent) => boolean} */
function scrolledTo({ scroller }, { clientX, clientY }) {
  const frame = scroller.getBoundingClientRect();
  const { left, right, top, bottom } = frame;
  if (clientX < left || clientX > right || clientY < top || clientY > bottom) return false;
  if (clientX > right - EDGE) scroller.scrollLeft += EDGE / 2;
  else if (clientX < left + EDGE) scroller.scrollLeft -= EDGE / 2;
  return true;
}

/** @type {(board: Board, drag: Drag) => void} */
function dropped(board, { far, target, cell, piece, free, ghost, chip }) {
  remark(board, "");
  if (!far) {
    const spot = cell ?? free;
    if (ghost) place(board, ghost.action, ghost);
    else if (chip) choose(board, board.now.brush === chip.action ? null : chip.action);
    else if (spot) {
      board.set({ cursor: { rank: spot.rank, slot: spot.slot }, looked: true });
      select(board, cell ?? null);
    }
  } else if (piece) {
    if (target && cell) {
      board.set({ cursor: target });
      move(board, cell, target);
    } else if (target) place(board, piece.action, target);
    else if (cell) remove(board, cell);
  }
}
