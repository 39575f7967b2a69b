// The drawing board: a schedule put together by hand on a grid of ranks and slots.
//
// rules.js says what a drawing means; this module shows it, draws each gesture immediately and sends it.
import { h, s, write } from "../shared/dom.js";
import { state } from "../shared/state.js";
import { drawingBar, group, placingBar } from "./controls.js";
import { boxAt, cursorAt, drawList, hit, layoutOf } from "./geometry.js";
import { report, take, toPlace } from "./hand.js";
import { listenToKeys, press } from "./keys.js";
import { paintBoard } from "./paint.js";
import { knownPanel, legendOf, savingButton, sharePanel } from "./panels.js";
import { listenToPointer } from "./pointer.js";
import { session } from "./session.js";
import { halvesOf, placeOf, slotsOf, thingAt } from "./state.js";
import { nameOf, scoreWords, wordsOf } from "./words.js";

/** @import { State } from "../shared/state.js" */
/** @import { Board, Now, View } from "./hand.js" */
/** @import { Colors, Look } from "./paint.js" */
/** @import { Opened } from "./panels.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Part, Place, Style } from "./state.js" */

/** @typedef {{ font: string, kinds: Record<string, Style>, marks: Colors }} OwnLook */

/**
 * @typedef {object} DrawingBoard
 * @property {HTMLElement} root
 * @property {HTMLElement[]} openers the buttons that open a panel
 * @property {(colors: Colors) => void} colors
 * @property {(action: Omit<Part, "chunk"> | null) => void} choose marks an action
 * @property {(event: KeyboardEvent) => void} press handles a key pressed around the board, and takes the focus
 * @property {() => void} turnOff no kernel answers any more: the page's rules do
 * @property {() => void} stop
 */

const LEAST = 200; // pixels of a grid

/**
 * A drawing board in `el`.
 * @param {object} own
 * @param {Model} own.model
 * @param {HTMLElement} own.el
 * @param {OwnLook} own.look
 * @param {() => number} [own.room] pixels that the rows may take
 * @param {(words: string) => void} [own.say] reads a sentence out
 * @param {Board["selected"]} [own.selected] receives the action that the reader selects
 * @param {Opened} [own.opened] receives the opener of the panel that was opened
 * @returns {DrawingBoard}
 */
export function drawingBoard({
  model, el, look, room = () => 168, say = () => {}, selected = () => {}, opened = () => {},
}) {
  const gestures = session(model, (done) => {
    take(board, gestures.shown());
    if (done) report(board, done);
    if (done?.do === "reset") shown.set({ cursor: { rank: 0, slot: 0 }, brush: null });
    shown.flush();
  });
  const shown = state(firstOf(gestures.shown()));
  const grid = s("svg", { class: "dlv-boardgrid", "aria-hidden": "true" });
  const names = s("svg", { class: "dlv-boardnames", "aria-hidden": "true" });
  const scroller = h("div", {
    class: "dlv-boardscroll", tabindex: "0", role: "application", "aria-roledescription": "grid of ranks and slots",
    "aria-label": "the grid: arrows move, f b i w choose an action, Enter places it, Delete removes one, Tab leaves",
    "data-lm-suppress-shortcuts": "true",
  }, grid);
  const first = gestures.shown();
  const layout = layoutOf(first, LEAST, room());
  /** @type {View} */
  const view = { layout, list: drawList(first, layout, false), pointed: {} };
  /** @type {Board} */
  const board = {
    now: shown.now, set: shown.set, flush: shown.flush, view, send: gestures.send, say, selected, grid, scroller,
  };
  const own = { idle: look.kinds.idle, prefix: named() };
  const { root, openers } = parts(board, { names, look, own, opened, paints: shown.paints, room });
  el.append(root);
  listenToPointer(board);
  listenToKeys(board, root);
  for (const event of ["click", "change", "input"]) root.addEventListener(event, () => shown.flush());
  const resized = new ResizeObserver(() => {
    shown.stale();
    shown.flush();
  });
  resized.observe(scroller);
  return {
    root,
    openers,
    colors: (colors) => shown.show({ colors: { ...colors, ...look.marks } }),
    choose: (action) => {
      const is = (/** @type {Part} */ { stage, kind, microbatch }) =>
        stage === action?.stage && kind === action.kind && microbatch === action.microbatch;
      const cell = action && board.now.board.cells.find((one) => one.parts.some(is));
      shown.show({ chosen: cell ? placeOf(cell) : null });
    },
    press: (event) => void (press(board, event) && scroller.focus({ preventScroll: true })),
    turnOff: gestures.turnOff,
    stop: () => {
      resized.disconnect();
      shown.stop();
      gestures.stop();
    },
  };
}

/** What is shown first. @type {(board: Now["board"]) => Now} */
function firstOf(board) {
  return {
    board, cursor: { rank: 0, slot: 0 }, brush: null, byName: false, chosen: null, carried: null, drag: null,
    pointer: null, hovered: false, remark: "", grave: false, looked: false, ghosts: true, colors: null,
  };
}

/** A prefix for the patterns of one board, unique on the page: each widget loads its own copy of this module.
 * @type {() => string} */
function named() {
  return `dlv-board-${Math.random().toString(36).slice(2)}`;
}

/** What the parts of a board need. `names` are the ranks'. @typedef {{ names: SVGSVGElement, look: OwnLook, own:
 * Omit<Look, "colors" | "shades">, opened: Opened, paints: State<Now>["paints"], room: () => number }} Frame */

/** The parts of a board, each repainted when what it shows changes.
 * @type {(board: Board, frame: Frame) => { root: HTMLElement, openers: HTMLElement[] }} */
function parts(board, { names, look, own, opened, paints, room }) {
  const drawing = drawingBar(board);
  const placing = placingBar(board, own);
  const words = h("p", { class: "dlv-boardwords" });
  const score = h("p", { class: "dlv-boardscore" });
  const known = knownPanel(board, opened);
  const share = sharePanel(board, opened);
  const legend = legendOf(board, own);
  paints(
    ["board", "cursor", "brush", "byName", "chosen", "carried", "drag", "ghosts", "colors"],
    () => drawGrid(board, names, own, room()));
  paints(["board"], drawing.draw);
  paints(["board", "brush", "carried", "chosen", "cursor", "drag", "ghosts"], placing.draw);
  paints(["board", "pointer", "hovered", "remark", "grave", "looked", "cursor", "drag"],
    () => drawWords(board, words));
  paints(["board"], () => {
    write(score, scoreWords(board.now.board));
    legend.draw();
    known.draw();
  });
  paints(["board"], share.draw);
  const root = h("div", { class: "dlv-board", role: "group", "aria-label": "drawing board" },
    drawing.bar, placing.bar,
    h("div", { class: "dlv-boardframe" }, words, h("div", { class: "dlv-boardrows" }, names, board.scroller)),
    h("div", { class: "dlv-boardfoot" }, score,
      group("show and share", known.opener, savingButton(board, look), share.opener)),
    legend.element, share.panel, known.panel);
  return { root, openers: [known.opener, share.opener] };
}

/** @type {(board: Board, names: SVGSVGElement, own: Omit<Look, "colors" | "shades">, room: number) => void} */
function drawGrid({ now, view, grid, scroller }, names, own, room) {
  const { board, colors, cursor, brush, byName, chosen, carried, drag, pointer } = now;
  if (!colors) return;
  view.layout = layoutOf(board, Math.max(LEAST, scroller.clientWidth || 600), room);
  view.list = drawList(board, view.layout, now.ghosts);
  view.pointed = pointer && !drag ? hit(view.list, ...pointer) : {};
  grid.dataset.slot = String(view.layout.slot);
  const moving = drag?.far && drag.piece ? drag : carried ? { piece: carried, target: cursor } : null;
  const action = moving?.piece ? moving.piece.action : toPlace(now);
  const spot = moving?.target ?? (byName ? board.ghosts.find((ghost) => ghost.action === action) : cursor);
  const shows = action && spot && (moving?.target || brush);
  paintBoard(grid, names, { ...own, colors, shades: board.shades }, {
    list: view.list,
    layout: view.layout,
    cursor: carried ? boxAt(view.layout, cursor, carried.slots) : cursorAt(board, view.layout, cursor),
    brush: shows ? {
      ...boxAt(view.layout, spot, slotsOf(board, action)),
      label: nameOf({ action, parts: halvesOf(board, action) ?? [] }),
    } : null,
    chosen,
    faded: moving?.piece ?? null,
    advised: board.advice?.move ?? null,
  });
}

/** @type {(board: Board, element: HTMLElement) => void} */
function drawWords({ now, view }, element) {
  const { board, cursor, hovered, remark, grave, looked } = now;
  const at = looked ? thingAt(board, cursor) : {};
  const words = (!hovered && remark) || wordsOf(view.pointed) || remark || wordsOf(at) || board.verdict;
  write(element, words);
  const cell = words === remark ? null : view.pointed.cell ?? at.cell;
  const wrong = words === remark ? grave : cell?.faults.length || (words === board.verdict && board.broken > 0);
  element.classList.toggle("dlv-boardwrong", Boolean(wrong));
}
