// Places in the player's pictures of contents: the grid of ranks and chunks, and the strip of all rounds.
import { clamp } from "../shared/arrays.js";
import { messagesIn } from "./state.js";
import { tilesLayout } from "./tiles.js";

/** @import { Frame, Scene } from "./state.js" */

/**
 * The grid: columns and chunks (each followed by a gutter for arrows) from left to right, ranks from top to bottom.
 * @typedef {object} Layout
 * @property {{ x: number, width: number }[]} columns
 * @property {{ x: number, width: number, gutter: number, step: number }[]} chunks `step` pixels between two arrows
 * @property {boolean} single whether each column shows its own contributions
 * @property {number} lines of contributions in a cell
 * @property {number} gap between two ranks
 * @property {number} valueHeight of the numbers in a cell; 0 if none fit
 * @property {number} stripHeight of the contributions in a cell
 * @property {number} rowHeight
 * @property {boolean} [noted] whether a note is under each rank's name
 * @property {number[]} rows
 * @property {{ y: number, group: number }[]} names of groups of ranks, each over the first of its rows
 * @property {(Box | null)[]} [tiles] of an image, by row
 * @property {number} [side] of a cell of a tile
 * @property {number} width
 * @property {number} height
 */

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @typedef {{ from: number, to: number, hold: number }} Run columns that hold the same */
/** @typedef {{ source: number, count: number } & Box} Chip a rank's contribution; source < 0: unknown */

/** What a rank holds of a chunk; `note` is that of the rank in its first one.
 * @typedef {{ rank: number, row: number, chunk: number, note: Frame["notes"][number] | null, runs: Run[], values:
 *   { column: number, text: string, changed: boolean }[] } & Box} Cell */

const LEFT = 50; // pixels of the ranks' names
const TOP = 38; // chunk names and cell numbers above
const NAME = 15; // of a host's or rack's name over its ranks
const GAP = 14; // between two ranks, if it fits
const PAD = 3; // around what a rank holds
const BESIDE = 70; // for messages whose cells are in no watched buffer
const NARROWEST = 10; // of a column; a picture wider than its panel scrolls
const CHARACTER = 6.6; // pixels of a digit
const CHIP = 13; // a contribution's side, if it fits
const THINNEST = 4; // of a row of contributions
const NUMBER = 15; // the height of a number
const NOTE = 24; // the height of a rank's name and a note
const LANES = 5; // arrows beside each other
const PICTURES = 48; // the most rounds with a small picture each

/** Where columns, chunks and ranks lie in a picture `width` pixels wide and, if possible, `tall` pixels high. Cells
 * show numbers that fit. @type {(scene: Scene, width: number, tall?: number) => Layout} */
export function layoutOf(scene, width, tall = Infinity) {
  if (scene.image) return tilesLayout(scene, width, tall);
  const { columns, chunks, wide, right } = acrossOf(scene, width);
  const noted = scene.frames[0].notes.some(([text]) => text);
  const single = noted || wide >= (CHIP * scene.ranks.length) / 2;
  const narrow = single ? wide : chunks.reduce((least, { width: own }) => Math.min(least, own), Infinity);
  const lines = scene.ranks.length ? Math.min(4, chipRows(scene.ranks.length, narrow)) : 0;
  const each = (tall - TOP - NAME * scene.rankGroups.length) / Math.max(scene.rows.length, 1);
  const gap = clamp(each / 5, 4, GAP);
  const room = each - gap - 2 * PAD;
  const longest = scene.values.reduce((most, text) => Math.max(most, text.length), 0);
  const fits = longest && longest * CHARACTER + 3 <= wide && room - NUMBER >= lines * THINNEST;
  const valueHeight = fits ? NUMBER : 0;
  const stripHeight = lines * clamp((room - valueHeight) / lines, THINNEST, CHIP) || 0;
  const rowHeight = Math.max(noted ? NOTE - gap : 12, 2 * PAD + valueHeight + stripHeight);
  /** @type {(row: number) => number} */
  const lower = (row) => NAME * (1 + scene.groupOf[row]);
  const rows = scene.rows.map((_, row) => TOP + row * (rowHeight + gap) + lower(row));
  const first = scene.rankGroups.map((_, group) => scene.groupOf.indexOf(group)).filter((row) => row >= 0);
  return {
    columns, chunks, single, lines, gap, valueHeight, stripHeight, rowHeight, noted, rows,
    names: first.map((row) => ({ y: rows[row] - NAME / 2 - gap / 4, group: scene.groupOf[row] })),
    width: Math.max(right + 4, LEFT + 40),
    height: TOP + scene.rows.length * (rowHeight + gap) + NAME * scene.rankGroups.length,
  };
}

/** Columns and chunks from left to right: `wide` pixels a column, and where the last gutter ends.
 * @type {(scene: Scene, width: number) => Pick<Layout, "columns" | "chunks"> & { wide: number, right: number }} */
function acrossOf(scene, width) {
  const lanes = scene.chunks.map(() => 0);
  scene.frames.forEach((_, number) => {
    for (const { chunk, lane } of lanesOf(scene, number)) lanes[chunk] = Math.max(lanes[chunk], lane + 1);
  });
  const count = scene.columns.length;
  const step = scene.chunks.length > 16 ? 4 : 7;
  const gutters = lanes.map((many) => (many ? 12 : 9) + step * many);
  const beside = scene.chunks.some((chunk) => chunk.from === chunk.to) ? BESIDE : 0;
  const across = width - LEFT - 8 - beside - gutters.reduce((sum, gutter) => sum + gutter, 0);
  const wide = count ? clamp(across / count, NARROWEST, 120) : 0;
  /** @type {Layout["columns"]} */
  const columns = [];
  let x = LEFT + 4;
  const chunks = scene.chunks.map((chunk, place) => {
    const left = x;
    for (let column = chunk.from; column < chunk.to; column++, x += wide) columns.push({ x, width: wide });
    if (chunk.from === chunk.to) x += BESIDE;
    const own = { x: left, width: x - left, gutter: gutters[place], step };
    x += gutters[place];
    return own;
  });
  return { columns, chunks, wide, right: x };
}

/** @type {(ranks: number, width: number) => number} */
function chipRows(ranks, width) {
  return Math.ceil(ranks / Math.max(1, Math.min(ranks, Math.floor(width / CHIP))));
}

/** The lane of each arrow of a frame, beside its last chunk; overlapping arrows take different lanes.
 * @type {(scene: Scene, number: number) => { message: number, chunk: number, lane: number }[]} */
function lanesOf(scene, number) {
  /** @type {Record<number, [low: number, high: number][][]>} */
  const taken = {};
  return messagesIn(scene, number)
    .filter(({ src, dst }) => src !== dst)
    .map(({ message, src, dst, chunks }) => {
      const chunk = chunks[1] - 1;
      const [low, high] = [scene.rowOf[src], scene.rowOf[dst]].sort((a, b) => a - b);
      const own = (taken[chunk] ??= []);
      let lane = own.findIndex((others) => others.every(([from, to]) => to < low || from > high));
      if (lane < 0) lane = own.length < LANES ? own.push([]) - 1 : LANES - 1;
      own[lane].push([low, high]);
      return { message, chunk, lane };
    });
}

/** What each rank holds after the messages of a frame: a cell for each rank and chunk. A cell's runs are its columns
 * one by one if they are wide enough to show contributions, else segments of columns that hold the same.
 * @type {(scene: Scene, layout: Layout, number: number) => Cell[]} */
export function cellsOf(scene, layout, number) {
  const { snapshots, notes } = scene.frames[number];
  const before = number ? scene.frames[number - 1].snapshots : snapshots;
  return scene.rows.flatMap((rank, row) => {
    const held = scene.contents[snapshots[row]];
    const old = scene.contents[before[row]];
    return scene.chunks.map((chunk, place) => {
      const { x, width } = layout.chunks[place];
      const box = { x, y: layout.rows[row], width, height: layout.rowHeight };
      /** @type {Cell} */
      const cell = { rank, row, chunk: place, note: place ? null : (notes[row] ?? null), ...box, values: [], runs: [] };
      for (let column = chunk.from; held && column < chunk.to; column++) {
        if (held.values[column] == null) continue;
        const [value, hold] = [held.values[column], held.holds[column]];
        const changed = old?.values[column] !== value;
        cell.values.push({ column, text: scene.values[value], changed });
        const last = cell.runs.at(-1);
        if (last?.hold === hold && last.to === column && !layout.single) last.to = column + 1;
        else cell.runs.push({ from: column, to: column + 1, hold });
      }
      return cell;
    });
  });
}

/** The contributions in a run of a cell: a box for each, at a place of its own where all may come.
 * @type {(scene: Scene, layout: Layout, cell: Cell, run: Run) => Chip[]} */
export function chipsOf(scene, layout, cell, run) {
  const { counts } = scene.holds[run.hold];
  const many = scene.ranks.length;
  const [first, last] = [layout.columns[run.from], layout.columns[run.to - 1]];
  const wide = last.x + last.width - first.x - 2;
  const top = cell.y + PAD + layout.valueHeight;
  if (!many) return [];
  if (!counts) return [{ source: -1, count: 1, x: first.x + 1, y: top, width: wide, height: layout.stripHeight }];
  if (layout.noted) { // few of many: they share the cell
    const high = layout.stripHeight / counts.length;
    return counts.map(([source, count], i) => ({
      source, count, x: first.x + 1, y: top + i * high, width: wide, height: high,
    }));
  }
  const lines = wide / Math.ceil(many / layout.lines) >= 3 ? layout.lines : chipRows(many, wide + 2);
  const each = Math.ceil(many / lines);
  const [width, height] = [wide / each, layout.stripHeight / Math.ceil(many / each)];
  return counts.map(([source, count]) => ({
    source,
    count,
    x: first.x + 1 + (source % each) * width,
    y: top + Math.floor(source / each) * height,
    width,
    height,
  }));
}

/** The label of a contribution's box, as far as it fits. @type {(chip: Chip) => string} */
export function chipLabel({ source, count, width, height }) {
  if (height < 8.5) return "";
  const texts =
    source < 0 ? ["?"] : count > 1 ? [`${source} ×${count}`, `${source}×${count}`, `×${count}`] : [`${source}`];
  return texts.find((text) => text.length * CHARACTER + 1.5 <= width) ?? "";
}

/** The outlines of the cells that a frame's messages left and reached, and an arrow for each.
 * @type {(scene: Scene, layout: Layout, number: number) => { boxes: ({ message: number, what: string, out: number }
 *   & Box)[], arrows: { message: number, never: boolean, points: [x: number, y: number][] }[] }} */
export function movesOf(scene, layout, number) {
  const lanes = Object.fromEntries(lanesOf(scene, number).map(({ message, lane }) => [message, lane]));
  const moves = messagesIn(scene, number).map(({ message, src, dst, chunks, received }) => {
    const [first, last] = [layout.chunks[chunks[0]], layout.chunks[chunks[1] - 1]];
    const right = last.x + last.width;
    const [from, to] = [src, dst].map((rank) => layout.rows[scene.rowOf[rank]]);
    return { message, src, dst, received, first, last, right, from, to };
  });
  return {
    boxes: moves.flatMap(({ message, received, first, right, from, to }) => {
      const shape = { message, x: first.x, width: right - first.x, height: layout.rowHeight };
      const sent = { ...shape, what: "sent", y: from, out: 2 };
      const out = Math.min(4.5, layout.gap / 2 + 1);
      return received == null ? [sent] : [sent, { ...shape, what: "received", y: to, out }];
    }),
    arrows: moves.filter(({ src, dst }) => src !== dst).map(({ message, received, last, right, from, to }) => {
      const lane = right + 12 + lanes[message] * last.step;
      const [leaves, enters] = [from + layout.rowHeight / 2 + 4, to + layout.rowHeight / 2 - 4];
      const never = received == null;
      return { message, never, points: [[right + 2, leaves], [lane, leaves], [lane, enters], [right + 5, enters]] };
    }),
  };
}

/** Small pictures of all rounds side by side: the place of each, and for each share of the ranks (0 to 1; -1: wrong)
 * the boxes of the cells that hold the numbers of so many. None if the contents are unknown or the rounds too many.
 * @type {(scene: Scene, width: number, height: number) => { x: number, width: number, shares: Map<number, Box[]>
 *   }[]} */
export function stripOf(scene, width, height) {
  const many = scene.frames.length;
  const count = scene.columns.length;
  if (many < 2 || many > PICTURES || !scene.ranks.length || !count || scene.image) return [];
  const wide = Math.min(110, width / many);
  const [across, down] = [(wide - 6) / count, height / scene.rows.length];
  return scene.frames.map((frame, number) => {
    const x = number * wide;
    const shares = new Map();
    frame.snapshots.forEach((snapshot, row) => {
      for (const { share, from, to } of sharesIn(scene, snapshot)) {
        const box = { x: x + 3 + from * across, y: row * down + 0.5, width: (to - from) * across, height: down - 1 };
        shares.set(share, [...(shares.get(share) ?? []), box]);
      }
    });
    return { x, width: wide, shares };
  });
}

/** The segments of columns of a snapshot that hold the numbers of equally many ranks.
 * @type {(scene: Scene, snapshot: number) => { share: number, from: number, to: number }[]} */
function sharesIn({ contents, holds, ranks }, snapshot) {
  /** @type {ReturnType<typeof sharesIn>} */
  const found = [];
  (contents[snapshot]?.holds ?? []).forEach((hold, column) => {
    const { counts } = holds[hold];
    const share = !counts || counts.some(([, times]) => times > 1) ? -1 : counts.length / ranks.length;
    const last = found.at(-1);
    if (last?.share === share && last.to === column) last.to = column + 1;
    else found.push({ share, from: column, to: column + 1 });
  });
  return found;
}
