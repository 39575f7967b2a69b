// The controls of a drawing board: the whole drawing, actions to place, and help.
import { h, write } from "../shared/dom.js";
import { button, toggle } from "../shared/stage.js";
import { act, check, choose, here, pickUp, place, remove } from "./hand.js";
import { sampleOf } from "./paint.js";
import { makeDraggable } from "./pointer.js";
import { nextOn } from "./state.js";
import { nameOf } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Board } from "./hand.js" */
/** @import { Look } from "./paint.js" */
/** @import { Ghost } from "./state.js" */

/** @typedef {{ bar: HTMLElement, draw: () => void }} Bar */

const BACKWARDS = { whole: "B, whole", split: "I and W, split", either: "B, or I and W" };

/** A group of controls with a name. @type {(name: string, ...children: Child[]) => HTMLElement} */
export function group(name, ...children) {
  return h("span", { role: "group", "aria-label": name }, children);
}

/** Buttons for the whole drawing, and what the pipeline offers. @type {(board: Board) => Bar} */
export function drawingBar(board) {
  const does = (/** @type {string} */ what) => () => act(board, { do: what });
  const undo = button("↶ undo", "undo", does("undo"));
  const redo = button("↷ redo", "redo", does("redo"));
  const empty = button("empty", "empty the grid", does("reset"));
  const tighten = button("⇤ tighten", "tighten: move every action to its earliest slot and keep the order",
    does("tighten"));
  const known = h("select", {
    class: "dlv-boardknown", "aria-label": "start from a known schedule", onchange: () => {
      const name = known.value;
      known.value = "";
      if (name) act(board, { do: "known", name });
    },
  });
  const offer = offerBar(board);
  const bar = h("div", { class: "dlv-toolbar" },
    group("the drawing", undo, redo, empty, tighten, known), offer.bar);

  function draw() {
    const { board: state } = board.now;
    undo.disabled = state.undo === 0;
    redo.disabled = state.redo === 0;
    empty.disabled = tighten.disabled = !state.cells.length;
    known.hidden = state.level != null;
    offer.draw();
    const names = state.zoo.map(({ name }) => name).join();
    if (known.dataset.names === names) return;
    known.dataset.names = names;
    known.replaceChildren(...[{ name: "", title: "start from …" }, ...state.zoo].map(({ name, title }) =>
      h("option", { value: name }, title)));
  }

  return { bar, draw };
}

/** @type {(board: Board) => Bar} */
function offerBar(board) {
  const backward = h("select", {
    "aria-label": "backward", onchange: () => act(board, { do: "set", backward: backward.value }),
  }, Object.entries(BACKWARDS).map(([value, words]) => h("option", { value }, words)));
  const limit = h("input", {
    type: "text", inputmode: "numeric", size: 3, placeholder: "none",
    "aria-label": "most that a rank may hold in flight",
    onchange: () => act(board, { do: "set", limit: limit.value.trim() ? numberIn(limit.value.trim()) : null }),
  });
  const overlaps = toggle("F&B", "allow a forward and a backward at the same time", false, (on) => {
    if (board.now.board.overlaps !== on) act(board, { do: "set", overlaps: on });
  });
  const chosen = h("label", {}, "backward ", backward);
  const bar = group("options", chosen, overlaps, h("label", {}, "at most ", limit, " in flight"));

  function draw() {
    const { board: state } = board.now;
    backward.value = state.backward;
    chosen.hidden = overlaps.hidden = state.backward === "none";
    overlaps.setAttribute("aria-pressed", String(state.overlaps));
    if (document.activeElement !== limit) limit.value = String(state.limit ?? "");
    bar.hidden = state.level != null;
  }

  return { bar, draw };
}

/** The actions to place, and help. @type {(board: Board, look: Omit<Look, "colors" | "shades">) => Bar} */
export function placingBar(board, look) {
  const typed = h("input", {
    type: "text", size: 6, placeholder: "2F0", spellcheck: "false", autocomplete: "off",
    "aria-label": "actions to place, such as 2F0",
    oninput: () => choose(board, typed.value.trim(), true),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") placeNow();
    },
  });
  const put = button("place", "place the chosen action", placeNow);
  const carry = button("move", "move the action at the cursor", () => pickUp(board));
  const away = button("remove", "remove the action at the cursor", () => remove(board));
  const ghosts = toggle("show next", "show next: what can come next", true, (on) => board.set({ ghosts: on }));
  const advise = button("a good move", "name a good move and what others cost", () => act(board, { do: "advise" }));
  const chips = h("span", { class: "dlv-boardchips", role: "group", "aria-label": "can come next on this rank" });
  const bar = h("div", { class: "dlv-toolbar" },
    group("place an action", typed, put, carry, away),
    group("help", button("check", "check what I did", () => check(board)), ghosts, advise), chips);

  function placeNow() {
    place(board);
    if (!board.now.brush) typed.value = "";
  }

  function draw() {
    const { board: state, brush, carried, cursor, drag, ghosts: shown } = board.now;
    if (document.activeElement !== typed) typed.value = brush ?? "";
    write(put, carried ? "put down" : `place ${brush ?? ""}`.trim());
    carry.disabled = away.disabled = !here(board.now);
    ghosts.setAttribute("aria-pressed", String(shown));
    if (drag?.chip) return;
    const style = { ...look, shades: state.shades, prefix: `${look.prefix}chip` };
    refill(chips, nextOn(state, cursor.rank).map((ghost) => chipOf(board, ghost, style)));
  }

  return { bar, draw };
}

/** A button of an action that may come next, to be pressed or dragged onto the grid.
 * @type {(board: Board, ghost: Ghost, look: Omit<Look, "colors">) => HTMLButtonElement} */
function chipOf(board, ghost, look) {
  const name = nameOf(ghost);
  const pressed = board.now.brush === ghost.action;
  const chip = h("button", {
    type: "button", "aria-pressed": String(pressed), "aria-label": `choose ${name}`,
    title: `${ghost.action}, at slot ${ghost.slot}`,
    onclick: (/** @type {MouseEvent} */ event) => {
      if (event.detail === 0) choose(board, pressed ? null : ghost.action); // by key: the pointer drags
    },
  }, sampleOf(ghost.parts[0], look), name);
  makeDraggable(board, chip, ghost);
  return chip;
}

/** The whole number typed; other text unchanged, to be refused with an error.
 * @type {(typed: string) => number | string} */
function numberIn(typed) {
  return /^\d{1,9}$/.test(typed) ? Number(typed) : typed;
}

/** Replaces the buttons of a group; the focus stays on the button of the same name.
 * @type {(holder: HTMLElement, buttons: HTMLElement[]) => void} */
function refill(holder, buttons) {
  const active = document.activeElement;
  const name = active && holder.contains(active) ? active.getAttribute("aria-label") : null;
  holder.replaceChildren(...buttons);
  if (name) (buttons.find((one) => one.getAttribute("aria-label") === name) ?? buttons[0])?.focus();
}
