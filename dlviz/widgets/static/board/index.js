// The drawing board: a schedule put together by hand on a grid of ranks and slots.
//
// The kernel says what a drawing means; here it is shown, and each gesture is drawn at once and sent.
import { clamp } from "../shared/arrays.js";
import { h, oncePerPicture, s, write } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import {
  besides, boxAt, cursorAt, drawList, foreseen, halvesOf, hit, layoutOf, nameOf, nextOn, onOneLine, pick, sameAs, slotAt, slotsOf, thingAt, turned,
} from "./geometry.js";
import { paintBoard, sampleOf, savedBoard } from "./paint.js";
import { save } from "../shared/file.js";
import { FRACTION, RATIO } from "../schedules/words.js";
import { button, toggle } from "../shared/stage.js";

const FAR = 4; // pixels from which on a press is a drag
const EDGE = 24; // pixels from an edge within which a drag scrolls
const DOES = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };
const IDLE = { waiting: "idle: waits", choice: "idle: your choice", done: "idle: nothing left" };
const BACKWARDS = { whole: "B, whole", split: "I and W, split", either: "B, or I and W" };

/** What the keys do; a help may list them. */
export const BOARD_KEYS = [
  ["← → ↑ ↓", "move on the grid"],
  ["n N", "go to the next action that can come, go back"],
  ["f b i w", "choose an action of this kind; press again for the next stage"],
  ["+ -", "choose the next microbatch, the one before"],
  ["Enter", "place the chosen action, or put down the moved one"],
  ["m", "move the action at the cursor"],
  ["Delete", "remove the action at the cursor"],
  ["u r", "undo, redo"],
  ["e", "empty the grid"],
  ["k g h", "check, show what can come next, name a good move"],
].map(([shown, does]) => [shown, does, {}]);

// So that the patterns of each have their own names, beside those of other widgets of the page, each of which has
// loaded this module for itself.
const named = () => `dlv-board-${Math.random().toString(36).slice(2)}`;

/**
 * A drawing board in `el`, whose rows may take `room()` pixels. `say` reads a sentence out, `selected` hears of the action that the reader
 * chose, as {action, rank, stage, kind, microbatch, slot}, or null.
 */
export function drawingBoard({ model, el, look, room = () => 168, say = () => {}, selected = () => {}, opened = () => {} }) {
  let live = model.get("live") !== false;
  const prefix = named();
  const read = () => JSON.parse(model.get("board"));
  let state = read();
  let pending = []; // gestures that the kernel has not answered
  let later = []; // what keys ask for until then: they go by what is drawn
  let last = state.answer;
  let colors = null;
  let layout = null;
  let list = null;
  let cursor = { rank: 0, slot: 0 };
  let brush = null; // the action that the reader chose to place
  let byName = false; // whether the reader typed it: it then goes where it can run first
  let chosen = null; // the cell that is selected, by action, rank and slot
  let carried = null; // the cell that the keys move
  let drag = null;
  let pointer = null; // where it is over the grid
  let pointed = {};
  let hovered = false; // whether it went to another thing since `note` came up
  let note = ""; // what was last asked for, until the next gesture
  let grave = false; // whether that is a fault
  let looked = false; // whether the reader moved the cursor since

  // The picture

  const grid = s("svg", { class: "dlv-boardgrid", "aria-hidden": "true" });
  const names = s("svg", { class: "dlv-boardnames", "aria-hidden": "true" });
  const scroller = h("div", {
    class: "dlv-boardscroll", tabindex: "0", role: "application", "aria-roledescription": "grid of ranks and slots",
    "aria-label": "the grid: arrows move, f b i w choose an action, Enter places it, Delete removes one, Tab leaves",
    "data-lm-suppress-shortcuts": "true",
  }, grid);
  const told = h("p", { class: "dlv-boardtold" });
  const score = h("p", { class: "dlv-boardscore" });

  // Controls

  const undo = button("↶ undo", "undo", () => send({ do: "undo" }));
  const redo = button("↷ redo", "redo", () => send({ do: "redo" }));
  const empty = button("empty", "empty the grid", () => send({ do: "reset" }));
  const tighten = button("⇤ tighten", "move every action to its earliest slot and keep the order", () => send({ do: "tighten" }));
  const known = h("select", { class: "dlv-boardknown", "aria-label": "start from a known schedule", onchange: startFrom });
  const chips = h("span", { class: "dlv-boardchips", role: "group", "aria-label": "can come next on this rank" });
  const typed = h("input", {
    type: "text", size: 6, placeholder: "2F0", spellcheck: "false", autocomplete: "off", "aria-label": "actions to place, such as 2F0",
    oninput: () => choose(typed.value.trim(), true), onkeydown: (event) => event.key === "Enter" && place(),
  });
  const put = button("place", "place the chosen action", () => place());
  const carry = button("move", "move the action at the cursor", () => pickUp());
  const remove = button("remove", "remove the action at the cursor", () => removeHere());
  const check = button("check", "check what I did", () => checked());
  const ghosts = toggle("show next", "show what can come next", true, () => draw());
  const advise = button("a good move", "name a good move and what others cost", () => send({ do: "advise" }));
  const backward = h("select", { "aria-label": "backward", onchange: () => send({ do: "set", backward: backward.value }) },
    Object.entries(BACKWARDS).map(([value, words]) => h("option", { value }, words)));
  const limit = h("input", {
    type: "text", inputmode: "numeric", size: 3, placeholder: "none", "aria-label": "most that a rank may hold in flight",
    onchange: () => send({ do: "set", limit: limit.value.trim() ? numberIn(limit.value.trim()) : null }),
  });
  const overlaps = toggle("F&B", "allow a forward and a backward at the same time", false, (on) => state.overlaps !== on && send({ do: "set", overlaps: on }));
  const svg = button("SVG", "save the grid as an SVG file", () => saveSvg());
  const text = h("textarea", { rows: 4, spellcheck: "false", "aria-label": "the drawing as text" });
  const take = button("draw this", "draw what the text says", () => send({ do: "csv", text: text.value }));
  const copyLine = button("copy on one line", "copy the drawing on one line, for a chat", copied);
  const sheet = h("div", { class: "dlv-boardcsv dlv-opened", hidden: true }, h("div", {}, text, take, " ", copyLine),
    h("p", {}, "A line for each rank, its actions in order: the CSV of torch.distributed.pipelining. Paste a CSV or a copied line, then press draw this; each action is drawn at its earliest slot."));
  const share = toggle("share", "share the drawing as text", false, (on) => {
    sheet.hidden = !on;
    opened(on ? share : null);
  });
  const group = (name, ...children) => h("span", { role: "group", "aria-label": name }, children);
  const options = group("options", h("label", {}, "backward ", backward), overlaps, h("label", {}, "at most ", limit, " in flight"));
  const tools = h("div", { class: "dlv-toolbar" }, group("the drawing", undo, redo, empty, tighten, known), options);
  const palette = h("div", { class: "dlv-toolbar" },
    group("place an action", typed, put, carry, remove),
    group("help", check, ghosts, advise), chips);
  const legend = h("p", { class: "dlv-boardlegend", "aria-hidden": "true" });
  const table = h("div", { class: "dlv-opened", hidden: true });
  const compared = toggle("known", "show the known schedules of this size", false, (on) => {
    table.hidden = !on;
    opened(on ? compared : null);
  });
  const root = h("div", { class: "dlv-board", role: "group", "aria-label": "drawing board" },
    tools, palette,
    h("div", { class: "dlv-boardframe" }, told, h("div", { class: "dlv-boardrows" }, names, scroller)),
    h("div", { class: "dlv-boardfoot" }, score, group("show and share", compared, svg, share)), legend, sheet, table);
  const writing = [undo, redo, empty, tighten, known, put, carry, remove, advise, backward, limit, overlaps, take];
  el.append(root);

  // Gestures: drawn at once, sent until they are answered

  function send(asked) {
    if (!live) return;
    pending.push({ n: (last += 1), ...asked });
    remark("");
    looked = false;
    model.set("gesture", JSON.stringify(pending));
    model.save_changes();
    draw();
  }

  function answered() {
    const asked = pending;
    state = read();
    last = Math.max(last, state.answer);
    pending = pending.filter(({ n }) => n > state.answer);
    const done = asked.filter(({ n }) => n <= state.answer).at(-1);
    if (done) tell(done);
    if (done?.do === "reset") [cursor, brush] = [{ rank: 0, slot: 0 }, null];
    if (brush && !halvesOf(state, brush)) brush = null;
    if (chosen && !state.cells.some(sameAs(chosen))) select(null);
    if (carried && !state.cells.some(sameAs(carried))) carried = null;
    cursor = { rank: Math.min(cursor.rank, state.ranks - 1), slot: cursor.slot };
    draw();
    while (later.length && !pending.length) later.shift()();
  }

  /** Says what came of a gesture. */
  function tell(asked) {
    const at = asked.do === "place" ? state.cells.at(-1) : asked.do === "move" ? { ...asked.from, rank: asked.rank, slot: asked.slot } : null;
    const cell = at && state.cells.find(sameAs(at));
    if (state.said) remark(state.said, true);
    else if (asked.do === "advise" && state.advice) {
      remark(state.advice.words);
      if (state.advice.move) {
        brush = state.advice.move.action;
        cursor = { rank: state.advice.move.rank, slot: state.advice.move.slot };
      }
    } else if (cell?.faults.length) remark(cell.faults.join(" "), true);
    const words = { place: cell && `${asked.action} placed`, move: cell && `${cell.action} moved`, remove: asked.from && `${asked.from.action} removed` }[asked.do];
    say(note || `${words ?? asked.do}. ${state.verdict} ${scoreWords(state)}`);
  }

  function choose(action, written = false) {
    brush = action;
    byName = written;
    draw();
  }

  /** The action that Enter places: the one chosen, else what may come next on the cursor's rank. */
  function toPlace() {
    if (brush) return brush;
    const next = nextOn(state, cursor.rank);
    return (next.find((ghost) => ghost.slot === cursor.slot) ?? next[0])?.action ?? null;
  }

  function place(action = toPlace(), { rank, slot } = cursor) {
    if (carried) return putDown();
    const all = byName ? action.split(/[\s,]+/) : [action];
    const wrong = all.find((one) => !one || !halvesOf(state, one));
    if (wrong !== undefined) {
      const kinds = [...state.kinds].join(", ");
      remark(wrong ? `${wrong} is no action of this pipeline: write stage, kind (${kinds}) and microbatch, as in 0F0.` : "No action is chosen: press f or b, or write an action.");
      say(note);
      return draw();
    }
    if (byName) for (const one of all) send({ do: "place", action: one });
    else {
      send({ do: "place", action, rank, slot });
      cursor = { rank, slot };
    }
    brush = null;
    byName = false;
    typed.value = "";
    select(null);
    draw();
  }

  function pickUp() {
    const cell = here();
    if (carried) return putDown();
    if (!cell || !live) return;
    carried = cell;
    remark(`${cell.action} is picked up: choose a slot with the arrows, press Enter to put it down, Escape to leave it.`);
    say(note);
    draw();
  }

  function putDown() {
    const { action, rank, slot } = carried;
    carried = null;
    if (rank !== cursor.rank || slot !== cursor.slot) send({ do: "move", from: { action, rank, slot }, ...cursor });
    draw();
  }

  function removeHere() {
    const cell = here();
    if (cell) removeCell(cell);
  }

  function removeCell({ action, rank, slot }) {
    send({ do: "remove", from: { action, rank, slot } });
  }

  /** The cell that is selected or, without one, that at the cursor. */
  function here() {
    const cells = foreseen(state, pending).cells;
    return (chosen && cells.find(sameAs(chosen))) ?? thingAt({ ...state, cells }, cursor).cell ?? null;
  }

  function startFrom() {
    const name = known.value;
    known.value = "";
    if (name) send({ do: "known", name });
  }

  function checked() {
    remark(state.verdict, state.broken > 0);
    const wrong = state.cells.find(({ faults }) => faults.length);
    if (wrong) {
      cursor = { rank: wrong.rank, slot: wrong.slot };
      select(wrong);
    }
    say(note);
    draw();
    reveal();
  }

  function select(cell) {
    const before = JSON.stringify(chosen);
    chosen = cell && { action: cell.action, rank: cell.rank, slot: cell.slot };
    if (JSON.stringify(chosen) === before) return;
    const { stage, kind, microbatch } = cell?.parts[0] ?? {};
    selected(cell ? { ...chosen, stage, kind, microbatch } : null);
  }

  function copied() {
    const line = onOneLine(state.csv);
    text.value = line;
    text.select();
    navigator.clipboard?.writeText(line);
    say("copied");
  }

  function saveSvg() {
    save(new XMLSerializer().serializeToString(savedBoard(foreseen(state, pending), colors, look)), "schedule.svg");
  }

  // Keys

  const step = (rank, by) => () => {
    const slot = by && !carried ? besides(state, cursor, by) : cursor.slot + by;
    cursor = { rank: clamp(cursor.rank + rank, 0, state.ranks - 1), slot: clamp(slot, 0, layout.columns - 1) };
    moved();
  };

  function moved() {
    const { cell } = thingAt(state, cursor);
    if (!carried) select(cell ?? null);
    looked = true;
    remark("");
    say(`rank ${cursor.rank}, slot ${cursor.slot}: ${carried ? `${carried.action} would be put here` : wordsOf(thingAt(state, cursor))}`);
    draw();
    reveal();
  }

  function next(by) {
    const all = nextOnAll();
    if (!all.length) return;
    const at = all.findIndex(({ action, rank, slot }) => rank === cursor.rank && slot === cursor.slot && (!brush || action === brush));
    const ghost = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : (at + by + all.length) % all.length];
    cursor = { rank: ghost.rank, slot: ghost.slot };
    [brush, byName] = [ghost.action, false];
    moved();
  }

  function nextOnAll() {
    const all = Array.from({ length: state.ranks }, (_, rank) => nextOn(state, rank)).flat();
    return all.sort((one, other) => one.slot - other.slot || one.rank - other.rank);
  }

  const kind = (letter) => () => {
    const found = pick(state, cursor.rank, letter, brush);
    remark(found ? "" : `Rank ${cursor.rank} has no ${letter} left to place.`);
    say(found ?? note);
    if (found) choose(found);
    else draw();
  };
  const turn = (by) => () => {
    const action = toPlace();
    if (!action) return;
    choose(turned(state, action, by));
    say(brush);
  };
  const KEYS = {
    ArrowLeft: step(0, -1), ArrowRight: step(0, 1), ArrowUp: step(-1, 0), ArrowDown: step(1, 0),
    Home: () => { cursor = { ...cursor, slot: 0 }; moved(); },
    End: () => { cursor = { ...cursor, slot: state.end }; moved(); },
    n: () => next(1), N: () => next(-1),
    f: kind("F"), b: kind("B"), i: kind("I"), w: kind("W"),
    "+": turn(1), "=": turn(1), "-": turn(-1),
    Enter: () => place(), " ": () => place(),
    m: pickUp, Delete: removeHere, Backspace: removeHere,
    u: () => send({ do: "undo" }), r: () => send({ do: "redo" }), e: () => send({ do: "reset" }),
    k: checked, g: () => ghosts.turn(), h: () => send({ do: "advise" }),
    Escape: () => {
      if (!carried && !drag && !brush && !chosen && !later.length) return false;
      carried = drag = brush = null;
      later = [];
      select(null);
      remark("");
      draw();
      return true;
    },
  };

  root.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (key === "Tab" || event.altKey) return;
    if (target.matches("input, textarea, select")) return;
    if (target.closest("button, summary") && ["Enter", " "].includes(key)) return;
    pointer = null; // words are for what the keys are at, wherever the pointer was left
    pointed = {};
    if (event.ctrlKey || event.metaKey) {
      if (key.toLowerCase() !== "z") return;
      send({ do: event.shiftKey ? "redo" : "undo" });
    } else {
      const action = KEYS[key] ?? KEYS[key.toLowerCase()];
      if (!action) return;
      if (pending.length && key !== "Escape") later.push(action);
      else if (action() === false) return;
    }
    event.preventDefault();
    event.stopPropagation();
  });

  // The pointer

  const at = ({ clientX, clientY }) => {
    const box = grid.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  };

  grid.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x, y] = at(event);
    const found = hit(list, x, y);
    const piece = found.cell ?? found.ghost;
    scroller.focus({ preventScroll: true });
    const held = piece ? Math.floor(x / layout.slot) - piece.slot : 0;
    begin(event, grid, { piece, cell: found.cell, ghost: found.ghost, held, empty: piece ? null : slotAt(layout, x, y) });
  });
  grid.addEventListener("pointerleave", () => point(null));
  grid.addEventListener("pointermove", (event) => {
    if (!drag) point(at(event));
  });

  function begin(event, holder, what) {
    drag = { ...what, x: event.clientX, y: event.clientY, far: false, target: null };
    holder.setPointerCapture(event.pointerId);
    const end = ({ type }) => {
      for (const [name, call] of calls) holder.removeEventListener(name, call);
      if (type === "pointerup") dropped();
      drag = null;
      draw();
    };
    const calls = [["pointermove", dragged], ["pointerup", end], ["pointercancel", end]];
    for (const [name, call] of calls) holder.addEventListener(name, call);
  }

  function dragged(event) {
    if (!drag) return;
    drag.far ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > FAR;
    if (!drag.far || !drag.piece || !live) return;
    const frame = scroller.getBoundingClientRect();
    const inside = event.clientX >= frame.left && event.clientX <= frame.right && event.clientY >= frame.top && event.clientY <= frame.bottom;
    if (inside && event.clientX > frame.right - EDGE) scroller.scrollLeft += EDGE / 2;
    else if (inside && event.clientX < frame.left + EDGE) scroller.scrollLeft -= EDGE / 2;
    const [x, y] = at(event);
    const over = inside ? slotAt(layout, x, y) : null;
    drag.target = over && { rank: over.rank, slot: Math.max(0, over.slot - drag.held) };
    remark(drag.target
      ? `${drag.piece.action} to rank ${drag.target.rank}, slot ${drag.target.slot}.`
      : drag.cell ? `Let go and ${drag.piece.action} is removed.` : `Let go and ${drag.piece.action} is not placed.`);
    drawSoon();
  }

  function dropped() {
    const { far, target, cell, piece, empty: free, ghost, chip } = drag;
    remark("");
    if (!far) {
      if (ghost) place(ghost.action, ghost);
      else if (chip) choose(brush === chip.action ? null : chip.action);
      else if (cell) {
        cursor = { rank: cell.rank, slot: cell.slot };
        looked = true;
        select(cell);
      } else if (free) {
        cursor = free;
        looked = true;
        select(null);
      }
    } else if (piece && live) {
      if (!target && cell) removeCell(cell);
      else if (target && cell) {
        const { action, rank, slot } = cell;
        cursor = target;
        if (rank !== target.rank || slot !== target.slot) send({ do: "move", from: { action, rank, slot }, ...target });
      } else if (target) place(piece.action, target);
    }
  }

  function point(where) {
    const before = wordsOf(pointed);
    pointer = where;
    pointed = where ? hit(list, ...where) : {};
    if (wordsOf(pointed) === before) return;
    hovered = true;
    drawTold();
  }

  function remark(words, wrong = false) {
    note = words;
    grave = wrong;
    hovered = false;
  }

  // Drawing

  const showsNext = () => ghosts.getAttribute("aria-pressed") === "true";

  const drawSoon = oncePerPicture(() => draw());

  function draw() {
    if (!colors) return;
    const shown = foreseen(state, pending);
    layout = layoutOf(shown, Math.max(200, scroller.clientWidth || 600), room());
    list = drawList(shown, layout, showsNext());
    grid.dataset.slot = layout.slot;
    const moving = drag?.far && drag.piece ? drag : carried && { piece: carried, target: cursor };
    const action = moving ? moving.piece.action : toPlace();
    const spot = moving?.target ?? (byName ? state.ghosts.find((ghost) => ghost.action === action) : cursor);
    const shows = spot && (moving?.target || (brush && live));
    paintBoard({ grid, names, list, layout, colors, shades: state.shades, idle: look.kinds.idle, prefix,
      cursor: carried ? boxAt(layout, cursor, carried.slots) : cursorAt(shown, layout, cursor),
      brush: shows ? { ...boxAt(layout, spot, slotsOf(state, action)), label: nameOf({ action, parts: halvesOf(state, action) ?? [] }) } : null,
      chosen, faded: moving?.piece ?? null,
      advised: state.advice?.move ?? null,
    });
    pointed = pointer && !drag ? hit(list, ...pointer) : {};
    drawControls(shown);
    drawTold();
    drawScore();
  }

  function drawTold() {
    const words = (!hovered && note) || wordsOf(pointed) || note || (looked ? wordsOf(thingAt(state, cursor)) : "") || state.verdict;
    write(told, words);
    const thing = words === note ? {} : pointed.cell ?? (looked ? thingAt(state, cursor).cell : null) ?? {};
    told.classList.toggle("dlv-boardwrong", words === note ? grave : thing.faults?.length > 0 || (words === state.verdict && state.broken > 0));
  }

  /** What is said of a thing on the grid. */
  function wordsOf({ cell, ghost, idle }) {
    if (cell) {
      const does = cell.parts.map(({ kind, microbatch, stage }) => `${DOES[kind]} of microbatch ${microbatch} through stage ${stage}`).join(" and ");
      return cell.faults.length ? cell.faults.join(" ") : `${cell.action}: ${does}, on rank ${cell.rank}, ${slots(cell.slot, cell.slot + cell.slots)}.`;
    }
    if (ghost) return `${ghost.action} can come next, on rank ${ghost.rank} at slot ${ghost.slot}.${live ? " Click to place this action." : ""}`;
    if (idle) return `Rank ${idle.rank}, ${slots(idle.start, idle.end)}: ${idle.words}.`;
    return "";
  }

  function slots(from, to) {
    return to - from === 1 ? `slot ${from}` : `slots ${from} to ${to - 1}`;
  }

  function drawControls(shown) {
    const next = nextOn(state, cursor.rank);
    const shownChips = next.map((ghost) => {
      const chip = h("button", { type: "button", "aria-pressed": String(brush === ghost.action), "aria-label": `choose ${nameOf(ghost)}`, title: `${ghost.action}, at slot ${ghost.slot}`, onclick: (event) => event.detail === 0 && choose(brush === ghost.action ? null : ghost.action) },
        sampleOf(ghost.parts[0], state.shades, look.kinds.idle, `${prefix}chip`), nameOf(ghost));
      chip.addEventListener("pointerdown", (event) => event.button === 0 && begin(event, chip, { piece: ghost, chip: ghost, held: 0 }));
      return chip;
    });
    if (!drag?.chip) refill(chips, shownChips);
    if (root.ownerDocument.activeElement !== typed) typed.value = brush ?? "";
    const cell = here();
    write(put, carried ? "put down" : `place ${brush ?? ""}`.trim());
    for (const control of writing) control.disabled = !live;
    undo.disabled = !live || (state.undo === 0 && !pending.length);
    redo.disabled = !live || state.redo === 0;
    empty.disabled = !live || !shown.cells.length;
    tighten.disabled = !live || !shown.cells.length;
    carry.disabled = remove.disabled = !live || !cell;
    backward.value = state.backward;
    backward.parentElement.hidden = state.backward === "none";
    overlaps.hidden = state.backward === "none";
    overlaps.setAttribute("aria-pressed", String(state.overlaps));
    if (root.ownerDocument.activeElement !== limit) limit.value = state.limit ?? "";
    known.hidden = options.hidden = compared.hidden = state.level != null;
    if (root.ownerDocument.activeElement !== text && text.dataset.drawn !== state.csv) text.value = text.dataset.drawn = state.csv;
    const names = state.zoo.map(({ name }) => name).join();
    if (known.dataset.names !== names) {
      known.dataset.names = names;
      known.replaceChildren(...[{ name: "", title: "start from …" }, ...state.zoo].map(({ name, title }) => h("option", { value: name }, title)));
    }
  }

  function drawScore() {
    write(score, scoreWords(state));
    const kinds = [...new Set([...state.kinds, ...state.cells.flatMap(({ parts }) => parts.map(({ kind: one }) => one))])];
    const key = JSON.stringify([kinds, state.shades, state.zoo, state.slot]);
    if (legend.dataset.key === key) return;
    legend.dataset.key = key;
    const sample = (what, words) => h("span", {}, sampleOf(what, state.shades, look.kinds.idle, `${prefix}key`), ` ${words}`);
    legend.replaceChildren(
      ...kinds.map((one) => sample({ kind: one }, `${one} ${DOES[one]}`)),
      ...Object.entries(IDLE).map(([cause, words]) => sample({ cause }, words)),
      h("span", {}, `1 slot = ${state.slot} s${state.stages.length > state.ranks ? "; small letters, lighter: a rank's later chunks" : ""}`),
    );
    table.replaceChildren(h("table", {},
      h("caption", { class: "dlv-spoken" }, "known schedules of this size"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "schedule"), ["slots", RATIO, FRACTION, "most in flight"].map((name) => h("th", { scope: "col", class: "dlv-amount" }, name)))),
      h("tbody", {}, state.zoo.map((one) => h("tr", {}, h("th", { scope: "row" }, one.title),
        [one.slots, digits(one.ratio), `${digits(100 * one.fraction)} %`, Math.max(...one.peak)].map((value) => h("td", { class: "dlv-amount" }, value)))))));
  }

  /** Scrolls so that the cursor is seen. */
  function reveal() {
    const { x, width } = boxAt(layout, cursor);
    if (x < scroller.scrollLeft) scroller.scrollLeft = x - width;
    else if (x + 2 * width > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = x + 2 * width - scroller.clientWidth;
  }

  const resized = new ResizeObserver(() => draw());
  resized.observe(scroller);
  model.on("change:board", answered);
  return {
    root,
    openers: [compared, share],
    colors(now) {
      colors = now;
      draw();
    },
    choose(action) {
      const cell = action && state.cells.find(({ parts }) => parts.some((part) => part.stage === action.stage && part.kind === action.kind && part.microbatch === action.microbatch));
      chosen = cell ? { action: cell.action, rank: cell.rank, slot: cell.slot } : null;
      draw();
    },
    /** No kernel answers any more: what it has not answered is taken back. */
    turnOff() {
      live = false;
      pending = [];
      draw();
    },
    stop() {
      resized.disconnect();
      drawSoon.cancel();
      model.off("change:board", answered);
    },
  };
}

/** What a drawing comes to, beside the best known schedule of its size. */
export function scoreWords({ score, broken, complete, level, best, zoo, beaten, held, cells }) {
  const found = zoo.find(({ name }) => name === best);
  const words = [];
  if (beaten) words.push("★ Better than the best known schedule!");
  if (broken) words.push(`This drawing does not count: ${broken === 1 ? "1 rule is" : `${broken} rules are`} broken.`);
  else if (cells.length) words.push(`${complete ? "Now" : "So far"} ${scoreOf(score)}, at most ${Math.max(...score.peak)}${held === "chunks" ? " chunks" : ""} in flight.`);
  if (found) words.push(`Best known: ${found.title} with ${found.slots} slots, ${Math.max(...found.peak)} in flight.`);
  else if (!level) words.push("No known schedule keeps this limit.");
  return words.join(" ");
}

function scoreOf({ slots, ratio }) {
  return `${slots} ${slots === 1 ? "slot" : "slots"}, bubble ratio ${digits(ratio)}`;
}

/** A whole number that was typed; other text as it is, for the kernel to refuse in words. */
function numberIn(typed) {
  return /^\d{1,9}$/.test(typed) ? Number(typed) : typed;
}

/** Puts buttons into a group; the focus stays where it was, by name. */
function refill(holder, buttons) {
  const active = holder.ownerDocument.activeElement;
  const name = holder.contains(active) ? active.getAttribute("aria-label") : null;
  holder.replaceChildren(...buttons);
  if (name) (buttons.find((one) => one.getAttribute("aria-label") === name) ?? buttons[0])?.focus();
}
