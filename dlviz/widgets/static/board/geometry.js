// What the drawing board draws, as plain objects: its state and how it is looked at in, boxes out.
import { clamp } from "../shared/arrays.js";

const [LOWEST, HIGHEST] = [21, 40]; // pixels from one rank's row to the next
const GAP = 5; // pixels between two rows
const TOP = 22; // of the slots' numbers
const NARROWEST = 26; // pixels of the shortest action
const WIDEST = 44;
const STRIP = 11; // pixels of a ghost, of several on top of each other in one row
const LIFT = 0.2; // of its row, by which what breaks a rule stands out of it
const LETTER = 7.4; // pixels of a letter
const ACTION = /^(\d+)([FBIW])(\d+)$/;

/** Where slots and rows lie in a grid that is `width` pixels wide and whose rows are `room` high, if they can be. */
export function layoutOf(state, width, room) {
  const shortest = Math.min(...[...state.kinds].flatMap((kind) => state.lasts[kind]));
  const slot = clamp(width / state.columns, NARROWEST / shortest, WIDEST / shortest);
  const columns = Math.max(state.columns, Math.floor(width / slot));
  const pitch = clamp(Math.floor(room / state.ranks), LOWEST, HIGHEST);
  return { slot, columns, pitch, row: pitch - GAP, ranks: state.ranks, width: columns * slot, height: TOP + state.ranks * pitch };
}

/** The rank and slot at a point; null off the grid. */
export function slotAt(layout, x, y) {
  const rank = Math.floor((y - TOP) / layout.pitch);
  const slot = Math.floor(x / layout.slot);
  const inside = rank >= 0 && rank < layout.ranks && slot >= 0 && slot < layout.columns;
  return inside ? { rank, slot } : null;
}

/** All that is drawn, what may come next only with `ghosts`. */
export function drawList(state, layout, ghosts) {
  const box = (one) => boxAt(layout, one, one.slots);
  const full = state.cells.every((cell) => cell.parts.every((part) => fits(longName(part), cell.slots * layout.slot)));
  const name = full ? longName : shortName;
  const idle = state.idle.map((area, index) => ({ ...box({ ...area, slot: area.start, slots: area.end - area.start }), area, index }));
  const cells = state.cells.map((cell) => {
    const whole = box(cell);
    const lift = cell.faults?.length ? Math.round(LIFT * layout.row) : 0;
    const place = { ...whole, y: whole.y + lift, height: whole.height - lift };
    return { ...place, cell, faulty: lift > 0, pending: Boolean(cell.pending), parts: partsOf(cell, place, name) };
  });
  cells.sort((one, other) => Number(one.faulty) - Number(other.faulty));
  return {
    idle, cells,
    ghosts: ghosts ? ghostsOf(state, box, name) : { shown: [], more: [] },
    marks: marksOf(layout),
    rows: Array.from({ length: layout.ranks }, (_, rank) => {
      const { y, height } = boxAt(layout, { rank, slot: 0 });
      return { rank, y, height, middle: y + height / 2 };
    }),
  };
}

/** The box of a slot, or of an action that starts at it. */
export function boxAt(layout, { rank, slot }, slots = 1) {
  return { x: slot * layout.slot, y: TOP + rank * layout.pitch, width: slots * layout.slot, height: layout.row };
}

/** The box of the cursor: all of the action that it is on. */
export function cursorAt(state, layout, cursor) {
  const { cell } = thingAt(state, cursor);
  return cell ? boxAt(layout, cell, cell.slots) : boxAt(layout, cursor);
}

/** Where the cursor comes to from a slot, `by` to the right: over an action in one go. */
export function besides(state, { rank, slot }, by) {
  const { cell } = thingAt(state, { rank, slot });
  if (!cell) return slot + by;
  return by > 0 ? cell.slot + cell.slots : cell.slot - 1;
}

/** What lies at a point: {cell}, {ghost}, {idle} or {}; what is drawn last comes first. */
export function hit(list, x, y) {
  const within = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  const cell = list.cells.findLast(within);
  if (cell) return { cell: cell.cell };
  const ghost = list.ghosts.shown.findLast(within);
  if (ghost) return { ghost: ghost.ghost };
  const idle = list.idle.find(within);
  return idle ? { idle: idle.area } : {};
}

/** What starts at, or runs over, a rank and slot: the same without a point. */
export function thingAt(state, { rank, slot }) {
  const over = (one) => one.rank === rank && one.slot <= slot && slot < one.slot + one.slots;
  const cell = state.cells.findLast(over);
  if (cell) return { cell };
  const idle = state.idle.find((one) => one.rank === rank && one.start <= slot && slot < one.end);
  return idle ? { idle } : {};
}

/** The state as it will be once the kernel has answered, as far as that can be drawn. */
export function foreseen(state, pending) {
  let { cells } = state;
  for (const asked of pending) {
    const from = asked.from && sameAs(asked.from);
    if (asked.do === "place" && asked.slot != null) cells = [...cells, cellOf(state, asked)];
    else if (asked.do === "remove") cells = cells.filter((cell) => !from(cell));
    else if (asked.do === "move") cells = cells.map((cell) => (from(cell) ? { ...cell, rank: asked.rank, slot: asked.slot, faults: [], pending: true } : cell));
  }
  const placed = new Set(pending.map(({ action }) => action));
  return pending.length ? { ...state, cells, ghosts: state.ghosts.filter(({ action }) => !placed.has(action)) } : state;
}

/** Whether a cell is the one of this action, rank and slot. */
export function sameAs(one) {
  return (other) => other.action === one.action && other.rank === one.rank && other.slot === one.slot;
}

/** The halves of an action's text; null for what is none of this pipeline's. */
export function halvesOf(state, text) {
  const inner = /^\((.*);(.*)\)OVERLAP_F_B$/.exec(text);
  const halves = (inner ? inner.slice(1) : [text]).map((half) => ACTION.exec(half));
  if (halves.some((half) => !half)) return null;
  const parts = halves.map(([, stage, kind, microbatch]) => ({ stage: Number(stage), kind, microbatch: Number(microbatch) }));
  return parts.every(({ stage, kind }) => stage < state.stages.length && state.lasts[kind]) ? parts : null;
}

/** How many slots an action lasts. */
export function slotsOf(state, text) {
  const ghost = state.ghosts.find(({ action }) => action === text);
  if (ghost) return ghost.slots;
  return halvesOf(state, text)?.reduce((sum, { stage, kind }) => sum + state.lasts[kind][stage], 0) ?? 1;
}

function cellOf(state, { action, rank, slot }) {
  const parts = halvesOf(state, action).map((part) => ({ ...part, chunk: chunkOf(state, part.stage) }));
  return { action, rank, slot, slots: slotsOf(state, action), parts, faults: [], pending: true };
}

function chunkOf({ stages }, stage) {
  return stages.slice(0, stage).filter((rank) => rank === stages[stage]).length;
}

/**
 * The action of a kind that the reader most likely wants on a rank: the one that may come next or, on a
 * rank where none may, the first that is not drawn. Where `before` is of that kind, that of the rank's
 * next stage.
 */
export function pick(state, rank, kind, before) {
  const mine = state.left.filter((one) => one.kind === kind && state.stages[one.stage] === rank);
  if (!mine.length) return null;
  const next = (stage) => state.ghosts.find((ghost) => ghost.lead && ghost.parts.length === 1 && ghost.parts[0].stage === stage && ghost.parts[0].kind === kind);
  const own = before && halvesOf(state, before)?.[0];
  if (own?.kind === kind) {
    const after = mine.find(({ stage }) => stage > own.stage) ?? mine[0];
    return next(after.stage)?.action ?? `${after.stage}${kind}${after.microbatches[0]}`;
  }
  const ready = mine.map(({ stage }) => next(stage)).filter(Boolean);
  ready.sort((one, other) => one.slot - other.slot);
  return ready[0]?.action ?? `${mine[0].stage}${kind}${mine[0].microbatches[0]}`;
}

/** The same action of the next microbatch, or the one before, that is not drawn. */
export function turned(state, action, by) {
  const [own, other] = halvesOf(state, action) ?? [];
  const all = !other && own && state.left.find(({ stage, kind }) => stage === own.stage && kind === own.kind)?.microbatches;
  if (!all?.length) return action;
  const at = all.indexOf(own.microbatch);
  const place = at < 0 ? 0 : (at + by + all.length) % all.length;
  return `${own.stage}${own.kind}${all[place]}`;
}

/** A CSV on one line, as a chat or a cell keeps it. */
export function onOneLine(csv) {
  return csv.trimEnd().split("\n").map((row) => row.replaceAll(",", " ")).join(" / ");
}

/** An action in a few letters: its text, or of an overlap its halves. */
export function nameOf({ action, parts }) {
  return parts.length > 1 ? parts.map(longName).join("&") : action;
}

/** The ghosts of a rank that lead, those that may start first in front: the palette. */
export function nextOn(state, rank) {
  return state.ghosts.filter((ghost) => ghost.lead && ghost.rank === rank).sort((one, other) => one.slot - other.slot);
}

function partsOf(cell, place, name) {
  const height = place.height / cell.parts.length;
  return cell.parts.map((part, number) => ({
    x: place.x, y: place.y + number * height, width: place.width, height,
    kind: part.kind,
    chunk: part.chunk,
    label: name(part),
  }));
}

function fits(text, width) {
  return text.length * LETTER + 3 <= width;
}

function longName({ stage, kind, microbatch }) {
  return `${stage}${kind}${microbatch}`;
}

/** Without the stage, which the row tells: of a rank's second chunk in small letters, f3, then f3', ... */
function shortName({ kind, microbatch, chunk }) {
  return `${chunk ? kind.toLowerCase() : kind}${microbatch}${"'".repeat(Math.max(0, chunk - 1))}`;
}

/** The leading ghosts of each row, side by side where they overlap; `more` is how many did not fit. */
function ghostsOf(state, box, name) {
  const shown = [];
  const more = [];
  for (let rank = 0; rank < state.ranks; rank++) {
    let cluster = [];
    let end = 0;
    const close = () => {
      const lanes = [];
      const placed = cluster.map((ghost) => {
        let lane = lanes.findIndex((until) => until <= ghost.slot);
        if (lane < 0) lane = lanes.push(0) - 1;
        lanes[lane] = ghost.slot + ghost.slots;
        return { ghost, lane };
      });
      const many = Math.min(lanes.length, Math.max(1, Math.floor(box(cluster[0]).height / STRIP)));
      for (const { ghost, lane } of placed.filter((one) => one.lane < many)) {
        const whole = box(ghost);
        const height = whole.height / many;
        const part = { ...whole, y: whole.y + lane * height, height };
        shown.push({ ...part, ghost, label: ghost.parts.map(ghost.parts.length > 1 ? shortName : name).join("&") });
      }
      const hidden = placed.filter((one) => one.lane >= many);
      if (hidden.length) more.push({ ...box(hidden[0].ghost), count: hidden.length });
      cluster = [];
    };
    for (const ghost of nextOn(state, rank)) {
      if (cluster.length && ghost.slot >= end) close();
      end = Math.max(cluster.length ? end : 0, ghost.slot + ghost.slots);
      cluster.push(ghost);
    }
    if (cluster.length) close();
  }
  return { shown, more };
}

/** The slots that bear a number: each, or so many that they stand apart. */
function marksOf({ slot, columns }) {
  const every = [1, 2, 5, 10, 20, 50, 100].find((step) => step * slot >= 36) ?? 200;
  return Array.from({ length: Math.ceil(columns / every) }, (_, i) => ({ slot: i * every, x: i * every * slot }));
}
