// Where the parts of the drawing board lie, as plain objects: state and view in, boxes out.
import { clamp } from "../shared/arrays.js";
import { nextOn, thingAt } from "./state.js";
import { longName, shortName } from "./words.js";

/** @import { BoardState, Cell, Ghost, Idle, Part, Piece, Spot } from "./state.js" */

/** @typedef {{ x: number, y: number, width: number, height: number }} Box pixels */
/**
 * @typedef {object} Layout
 * @property {number} slot pixels of a slot
 * @property {number} columns
 * @property {number} pitch pixels from one row to the next
 * @property {number} row pixels of a row
 * @property {number} ranks
 * @property {number} width
 * @property {number} height
 */
/** @typedef {Box & { kind: string, chunk: number, label: string }} PartBox */
/** @typedef {Box & { cell: Cell, faulty: boolean, parts: PartBox[] }} CellBox */
/** @typedef {Box & { ghost: Ghost, label: string }} GhostBox */
/** @typedef {Box & { count: number }} MoreBox */
/** @typedef {Box & { area: Idle, index: number }} IdleBox */
/** All that is drawn. `cells`: cells that break a rule last, so that they are painted in front.
 * @typedef {{ idle: IdleBox[], cells: CellBox[], ghosts: { shown: GhostBox[], more: MoreBox[] }, marks: { slot:
 *   number, x: number }[], rows: { rank: number, y: number, height: number, middle: number }[] }} List */

const [LOWEST, HIGHEST] = [21, 40]; // pixels from one rank's row to the next
const GAP = 5; // pixels between two rows
const TOP = 22; // of the slots' numbers
const NARROWEST = 26; // pixels of the shortest action
const WIDEST = 44;
const STRIP = 11; // pixels of a ghost, of several on top of each other in one row
const LIFT = 0.2; // of its row, by which a cell that breaks a rule sticks out
const CHARACTER = 7.4; // pixels of a character

/** Where slots and rows lie in a grid `width` pixels wide, with rows that fit into `room` pixels if possible.
 * @type {(state: BoardState, width: number, room: number) => Layout} */
export function layoutOf(state, width, room) {
  const shortest = Math.min(...[...state.kinds].flatMap((kind) => state.lasts[kind]));
  const slot = clamp(width / state.columns, NARROWEST / shortest, WIDEST / shortest);
  const columns = Math.max(state.columns, Math.floor(width / slot));
  const pitch = clamp(Math.floor(room / state.ranks), LOWEST, HIGHEST);
  const [row, height] = [pitch - GAP, TOP + state.ranks * pitch];
  return { slot, columns, pitch, row, ranks: state.ranks, width: columns * slot, height };
}

/** The rank and slot at a point; null off the grid. @type {(layout: Layout, x: number, y: number) => Spot | null} */
export function slotAt(layout, x, y) {
  const rank = Math.floor((y - TOP) / layout.pitch);
  const slot = Math.floor(x / layout.slot);
  const inside = rank >= 0 && rank < layout.ranks && slot >= 0 && slot < layout.columns;
  return inside ? { rank, slot } : null;
}

/** All that is drawn; what may come next only with `ghosts`.
 * @type {(state: BoardState, layout: Layout, ghosts: boolean) => List} */
export function drawList(state, layout, ghosts) {
  const full = state.cells.every((cell) => cell.parts.every((part) => fits(longName(part), cell.slots * layout.slot)));
  const name = full ? longName : shortName;
  const idle = state.idle.map((area, index) => {
    const { rank, start, end } = area;
    return { ...boxAt(layout, { rank, slot: start }, end - start), area, index };
  });
  const cells = state.cells.map((cell) => cellBox(layout, cell, name));
  cells.sort((one, other) => Number(one.faulty) - Number(other.faulty));
  const rows = Array.from({ length: layout.ranks }, (_, rank) => {
    const { y, height } = boxAt(layout, { rank, slot: 0 });
    return { rank, y, height, middle: y + height / 2 };
  });
  return {
    idle, cells, rows, marks: marksOf(layout),
    ghosts: ghosts ? ghostsOf(state, layout, name) : { shown: [], more: [] },
  };
}

/** The box of a slot, or of an action that starts at it. @type {(layout: Layout, spot: Spot, slots?: number) => Box} */
export function boxAt(layout, { rank, slot }, slots = 1) {
  const [x, y] = [slot * layout.slot, TOP + rank * layout.pitch];
  return { x, y, width: slots * layout.slot, height: layout.row };
}

/** The box of the cursor: the whole action under it.
 * @type {(state: BoardState, layout: Layout, cursor: Spot) => Box} */
export function cursorAt(state, layout, cursor) {
  const { cell } = thingAt(state, cursor);
  return cell ? boxAt(layout, cell, cell.slots) : boxAt(layout, cursor);
}

/** What lies at a point: {cell}, {ghost}, {idle} or {}; the topmost wins.
 * @type {(list: List, x: number, y: number) => { cell?: Cell, ghost?: Ghost, idle?: Idle }} */
export function hit(list, x, y) {
  /** @param {Box} box */
  const within = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  const cell = list.cells.findLast(within);
  if (cell) return { cell: cell.cell };
  const ghost = list.ghosts.shown.findLast(within);
  if (ghost) return { ghost: ghost.ghost };
  const idle = list.idle.find(within);
  return idle ? { idle: idle.area } : {};
}

/** @type {(layout: Layout, cell: Cell, name: (part: Part) => string) => CellBox} */
function cellBox(layout, cell, name) {
  const whole = boxAt(layout, cell, cell.slots);
  const lift = cell.faults.length ? Math.round(LIFT * layout.row) : 0;
  const place = { ...whole, y: whole.y + lift, height: whole.height - lift };
  const height = place.height / cell.parts.length;
  const parts = cell.parts.map((part, number) => ({
    x: place.x, y: place.y + number * height, width: place.width, height,
    kind: part.kind, chunk: part.chunk, label: name(part),
  }));
  return { ...place, cell, faulty: lift > 0, parts };
}

/** @type {(text: string, width: number) => boolean} */
function fits(text, width) {
  return text.length * CHARACTER + 3 <= width;
}

/** The leading ghosts of each row, side by side where they overlap; `more` is how many did not fit.
 * @type {(state: BoardState, layout: Layout, name: (part: Part) => string) => List["ghosts"]} */
function ghostsOf(state, layout, name) {
  /** @type {List["ghosts"]} */
  const found = { shown: [], more: [] };
  for (let rank = 0; rank < state.ranks; rank++) {
    for (const cluster of clustersOf(nextOn(state, rank))) {
      const { shown, more } = stacked(cluster, layout, name);
      found.shown.push(...shown);
      found.more.push(...more);
    }
  }
  return found;
}

/** The ghosts of a row by slot, in groups that overlap. @type {(ghosts: Ghost[]) => Ghost[][]} */
function clustersOf(ghosts) {
  /** @type {Ghost[][]} */
  const clusters = [];
  let end = 0;
  for (const ghost of ghosts) {
    if (!clusters.length || ghost.slot >= end) clusters.push([]);
    clusters.at(-1)?.push(ghost);
    end = Math.max(end, ghost.slot + ghost.slots);
  }
  return clusters;
}

/** Overlapping ghosts, stacked.
 * @type {(cluster: Ghost[], layout: Layout, name: (part: Part) => string) => List["ghosts"]} */
function stacked(cluster, layout, name) {
  /** @type {number[]} */
  const lanes = []; // where each ends
  const placed = cluster.map((ghost) => {
    const free = lanes.findIndex((until) => until <= ghost.slot);
    const lane = free < 0 ? lanes.length : free;
    lanes[lane] = ghost.slot + ghost.slots;
    return { ghost, lane };
  });
  const many = Math.min(lanes.length, Math.max(1, Math.floor(layout.row / STRIP)));
  const height = layout.row / many;
  const shown = placed.filter(({ lane }) => lane < many).map(({ ghost, lane }) => {
    const whole = boxAt(layout, ghost, ghost.slots);
    const label = ghost.parts.map(ghost.parts.length > 1 ? shortName : name).join("&");
    return { ...whole, y: whole.y + lane * height, height, ghost, label };
  });
  const hidden = placed.filter(({ lane }) => lane >= many).map(({ ghost }) => ghost);
  const more = hidden.length ? [{ ...boxAt(layout, hidden[0], hidden[0].slots), count: hidden.length }] : [];
  return { shown, more };
}

/** The slots with a number: each, or every so many so that the numbers do not touch.
 * @type {(layout: Layout) => { slot: number, x: number }[]} */
function marksOf({ slot, columns }) {
  const every = [1, 2, 5, 10, 20, 50, 100].find((step) => step * slot >= 36) ?? 200;
  return Array.from({ length: Math.ceil(columns / every) }, (_, i) => ({ slot: i * every, x: i * every * slot }));
}
