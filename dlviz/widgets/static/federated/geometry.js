// A row for each client, as plain objects: a prediction and a run in, positions out.
import { clamp } from "../shared/arrays.js";

/** @import { Predicted, Run } from "./state.js" */

/** @typedef {{ x: number, y: number, width: number, height: number }} Box pixels */

/**
 * The rows of the clients: cells of labels or of a histogram, bars of seconds, marks of rounds.
 * @typedef {object} Rows
 * @property {number} width
 * @property {number} height
 * @property {number} tall of a row
 * @property {boolean} words whether a row has room for words
 * @property {(client: number) => number} y
 * @property {(Box & { client: number, column: number, value: number, share: number })[]} cells
 * @property {(Box & { client: number, late: boolean })[]} bars
 * @property {number} limit x of the deadline, -1 without one
 * @property {(Box & { client: number, round: number, fate: number })[]} marks
 * @property {number} step pixels of a round
 */

const [NAMES, CELLS, GAP, BARS] = [80, 200, 16, 146]; // pixels of the columns
export const HEAD = 16; // pixels above the rows, and below them
const WORDS = 62; // pixels beside a bar
const [ROOM, LEAST] = [140, 11]; // pixels of all rows, of one with words
export const COLUMNS = { cells: NAMES, bars: NAMES + CELLS + GAP, rounds: NAMES + CELLS + BARS + 2 * GAP };

/** The rows: each client's labels or, with `saw`, what the server saw of it; its seconds; its rounds of a run.
 * @type {(predicted: Predicted, run: Run | null, how: { saw: boolean, parts: number, deadline: number | null,
 *   rounds: number, width: number }) => Rows} */
export function rowsOf(predicted, run, { saw, parts, deadline, rounds, width }) {
  const { table, seconds, late } = predicted;
  const tall = ROOM / table.length;
  /** @type {(client: number) => number} */
  const y = (client) => HEAD + client * tall;
  const gap = tall >= LEAST ? 1 : 0;
  const columns = saw ? parts : table[0].length;
  const cell = CELLS / columns;
  const most = Math.max(...(saw ? Object.values(run?.saw ?? {}) : table).flat(), 1);
  const cells = table.flatMap((row, client) => (saw ? run?.saw[client] ?? [] : row).map((value, column) => {
    const share = value / most;
    const height = (tall - gap) * (saw ? share : 1);
    return {
      client, column, value, share, x: COLUMNS.cells + column * cell, width: cell - gap,
      y: y(client) + tall - gap - height, height,
    };
  }));
  const last = Math.max(...seconds, deadline ?? 0) || 1;
  const step = (width - COLUMNS.rounds) / rounds;
  /** @type {(took: number) => number} */
  const bar = (took) => (took / last) * (BARS - WORDS);
  return {
    width, tall, y, cells, step, height: 2 * HEAD + ROOM, words: tall >= LEAST,
    bars: seconds.map((took, client) => ({
      client, late: late.includes(client), x: COLUMNS.bars, y: y(client), width: bar(took), height: tall - gap,
    })),
    limit: deadline == null ? -1 : COLUMNS.bars + bar(deadline),
    marks: (run?.fates ?? []).flatMap((row, client) => row.flatMap((fate, round) => (fate < 0 ? [] : [{
      client, round, fate, x: COLUMNS.rounds + round * step, y: y(client), width: step - Math.min(1, step / 5),
      height: tall - gap,
    }]))),
  };
}

/** What lies at a point of the rows.
 * @type {(rows: Rows, clients: number, rounds: number, x: number, y: number) => { client: number, column: "cells" |
 *   "bars" | "rounds" | "name", round: number } | null} */
export function rowAt({ tall, step }, clients, rounds, x, y) {
  const client = Math.floor((y - HEAD) / tall);
  if (client < 0 || client >= clients) return null;
  const round = clamp(Math.floor((x - COLUMNS.rounds) / step), 0, rounds - 1);
  if (x >= COLUMNS.rounds) return { client, column: "rounds", round };
  if (x >= COLUMNS.bars) return { client, column: "bars", round: -1 };
  return { client, column: x >= COLUMNS.cells && x < COLUMNS.cells + CELLS ? "cells" : "name", round: -1 };
}

/** The outline of a fate's mark, for a filled path: a square, a cross, a bar, a diamond, an upright cross; a box
 * where these do not fit. @type {(fate: number, box: Box) => string} */
export function markOf(fate, { x, y, width, height }) {
  const size = Math.min(width, height, 11);
  if (fate === 0 || size < 6) {
    const share = fate === 2 ? 0.5 : 1; // busy
    return `M${x} ${y + (height * (1 - share)) / 2}h${width}v${height * share}h${-width}z`;
  }
  const [cx, cy, r, t] = [x + width / 2, y + height / 2, size / 2, size / 7];
  if (fate === 1) {
    const [left, right, top, bottom] = [cx - r, cx + r, cy - r, cy + r];
    return `M${left} ${top + t}l${t} ${-t}L${right} ${bottom - t}l${-t} ${t}z`
      + `M${right - t} ${top}l${t} ${t}L${left + t} ${bottom}l${-t} ${-t}z`;
  }
  const across = `M${cx - r} ${cy - t}h${2 * r}v${2 * t}h${-2 * r}z`;
  if (fate === 2) return across;
  if (fate === 3) return `M${cx} ${cy - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`;
  return `${across}M${cx - t} ${cy - r}h${2 * t}v${2 * r}h${-2 * t}z`;
}
