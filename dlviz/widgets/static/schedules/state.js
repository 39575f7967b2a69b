// A simulated schedule, read into columns, and as rows of bars.
import { clamp, column } from "../shared/arrays.js";

/** @import { Column } from "../shared/arrays.js" */
/** @import { Rows, Slot, Times } from "../shared/gantt/rows.js" */
/** @import { Style } from "../shared/theme.js" */

/** @typedef {{ rank: number, from: number, to: number, next: number }} Hole seconds; the span that ends it, or -1 */

/** @typedef {{ ratio: number, text: string }} Formula of the bubble ratio */

/**
 * A side of the explorer: a simulated schedule. Spans first[r] to first[r+1]-1 are those of rank r; `source` is the
 * span that a span receives from, or -1; `half` is 1 or 2 in an overlap. Complete without `error`.
 * @typedef {object} Side
 * @property {string} name
 * @property {string} title
 * @property {string} [error] why it cannot be drawn
 * @property {number} count
 * @property {number} ranks
 * @property {number} microbatches
 * @property {number} chunks of a rank
 * @property {number} latency seconds
 * @property {number} makespan seconds
 * @property {number} ratio
 * @property {number} fraction
 * @property {number} inside seconds of idle time between a rank's first and last action
 * @property {number[]} peak of each rank
 * @property {Formula | null} [formula]
 * @property {string} [remark]
 * @property {number[]} counts of each rank's spans
 * @property {number[]} first
 * @property {ArrayLike<number>} rank
 * @property {number[]} start seconds
 * @property {number[]} end
 * @property {number[]} stage
 * @property {string[]} kind
 * @property {number[]} microbatch
 * @property {number[]} half
 * @property {number[]} source
 * @property {number[]} chunk of each stage
 * @property {number[]} path the critical path
 * @property {Record<string, Style[]>} shades of each kind by chunk
 * @property {{ time: number[], many: number[] }[]} held on each rank
 * @property {Hole[]} holes
 */

/** @typedef {{ start: (number | null)[], length: number[] }} Measured of each span, in seconds of the picture */

/** @typedef {{ rows: Rows, times: Times, spans: number[], place: number[] }} Drawn `spans`: the side's span of each
 * drawn one; `place`: the drawn span of each of the side's */

const ROOM = 176; // pixels of all rows together, if they fit
const [LOWEST, HIGHEST] = [8, 24]; // pixels of a bar
/** @type {Record<string, string>} */
export const NAMES = { F: "forward", B: "backward", I: "backward_input", W: "backward_weight" };
export const KINDS = Object.keys(NAMES);

/** A side as Python wrote it: `held` has the times of all ranks one after the other, and the number of times of each
 * rank.
 * @typedef {Omit<Side, "held" | Columns> & Record<Columns | "length", Column<number>> & { held: { counts: number[],
 *   time: Column<number>, many: Column<number> } }} Given */
/** @typedef {"start" | "stage" | "microbatch" | "half" | "source"} Columns */

/** A side, read into columns. @type {(side: Given) => Side} */
export function readSide(side) {
  if (side.error) return /** @type {any} */ (side);
  const count = side.kind.length;
  const first = [0];
  for (const many of side.counts) first.push(first[first.length - 1] + many);
  const rank = new Int32Array(count);
  side.counts.forEach((_, r) => rank.fill(r, first[r], first[r + 1]));
  const start = column(side.start, count);
  const length = column(side.length, count);
  const own = {
    ...side, count, first, rank, start,
    end: start.map((time, i) => time + length[i]),
    stage: column(side.stage, count),
    microbatch: column(side.microbatch, count),
    half: column(side.half, count),
    source: column(side.source, count),
    held: heldBy(side),
  };
  return { ...own, holes: holesOf(own) };
}

/** What each rank holds: times, and the number held from then on. @type {(side: Given) => Side["held"]} */
function heldBy({ held, counts }) {
  const total = held.counts.reduce((sum, many) => sum + many, 0);
  const [time, many] = [column(held.time, total), column(held.many, total)];
  let from = 0;
  return counts.map((_, rank) => {
    const to = from + held.counts[rank];
    const own = { time: time.slice(from, to), many: many.slice(from, to) };
    from = to;
    return own;
  });
}

/** The idle intervals of each rank, until span `next` starts; -1 after its last span.
 * @type {(side: Pick<Side, "first" | "start" | "end" | "makespan" | "ranks">) => Hole[]} */
function holesOf({ first, start, end, makespan, ranks }) {
  const found = [];
  const least = makespan * 1e-7;
  for (let rank = 0; rank < ranks; rank++) {
    let reached = 0;
    for (let i = first[rank]; i < first[rank + 1]; i++) {
      if (start[i] - reached > least) found.push({ rank, from: reached, to: start[i], next: i });
      reached = Math.max(reached, end[i]);
    }
    if (makespan - reached > least) found.push({ rank, from: reached, to: makespan, next: -1 });
  }
  return found;
}

/** The heights of the rows of one of `sides` sides, with the measurement below each row.
 * @type {(ranks: number, sides: number, measured: boolean) => { bar: number, below: number, row: number }} */
function heights(ranks, sides, measured) {
  const gap = ranks > 8 ? 2 : 5;
  const room = sides > 1 ? (measured ? 0.5 : 0.45) * ROOM : ROOM;
  const bar = Math.round(clamp(Math.floor((room / ranks - gap) / (measured ? 1.8 : 1)), LOWEST, HIGHEST));
  const below = measured ? Math.max(Math.round(bar * 0.72), 4) : 0;
  return { bar, below, row: bar + (measured ? below + 1 : 0) + gap };
}

/** A side as rows of bars: a row for each rank, with a slot for whole actions and one for each half of overlaps, and
 * below them the same for the measurement; `sides` are shown.
 * @type {(side: Side, sides: number, run: Measured | null) => Drawn} */
export function drawnOf(side, sides, run) {
  const { ranks, half, path, holes, makespan } = side;
  const { bar, below, row } = heights(ranks, sides, run != null);
  /** @type {(i: number) => number} */
  const ran = (i) => run?.start[i] ?? NaN;
  /** @type {Rows["slots"]} */
  const slots = [];
  /** @type {number[]} */
  const spans = [];
  /** @type {boolean[]} */
  const measured = [];
  /** Puts the spans of a rank of this half into their own slot.
   * @type {(rank: number, number: number, top: number, bottom: number, isRun: boolean) => void} */
  const put = (rank, number, top, bottom, isRun) => {
    const own = [];
    for (let i = side.first[rank]; i < side.first[rank + 1]; i++) {
      if (half[i] === number && !(isRun && Number.isNaN(ran(i)))) own.push(i);
    }
    if (!own.length) return;
    if (isRun) own.sort((a, b) => ran(a) - ran(b));
    slots.push({ row: rank, first: spans.length, after: spans.length + own.length, top, bottom });
    spans.push(...own);
    measured.push(...own.map(() => isRun));
  };
  for (let rank = 0; rank < ranks; rank++) {
    for (const isRun of run ? [false, true] : [false]) {
      const [top, height] = isRun ? [rank * row + bar + 1, below] : [rank * row, bar];
      const [middle, bottom] = [top + Math.round(height / 2), top + height];
      put(rank, 0, top, bottom, isRun);
      put(rank, 1, top, middle, isRun);
      put(rank, 2, middle, bottom, isRun);
    }
  }
  /** @type {number[]} */
  const place = [];
  spans.forEach((i, at) => {
    if (!measured[at]) place[i] = at;
  });
  const slotOf = new Int32Array(spans.length);
  slots.forEach((slot, number) => slotOf.fill(number, slot.first, slot.after));
  const rows = rowsOf(side, { bar, below, row }, { slots, slotOf, spans, measured });
  const times = {
    start: spans.map((i, at) => (measured[at] ? ran(i) : side.start[i])),
    end: spans.map((i, at) => (measured[at] ? ran(i) + (run?.length[i] ?? 0) : side.end[i])),
    low: 0, high: makespan, quantum: makespan * 1e-7, memory: false, sent: [], received: [], waited: new Map(),
    lost: [],
    idle: {
      row: holes.map(({ rank }) => rank), start: holes.map(({ from }) => from), end: holes.map(({ to }) => to),
      count: holes.length,
    },
    gaps: { row: [], start: [], end: [], count: 0 },
    critical: path.map((i) => place[i]),
    path: { start: path.map((i) => side.start[i]), end: path.map((i) => side.end[i]) },
  };
  return { rows, times, spans, place };
}

/** @type {(side: Side, room: ReturnType<typeof heights>, drawn: { slots: Slot[], slotOf: Int32Array, spans:
 *   number[], measured: boolean[] }) => Rows} */
function rowsOf({ ranks, kind, chunk, stage, microbatch }, { bar, below, row }, { slots, slotOf, spans, measured }) {
  return {
    rows: Array.from({ length: ranks }, (_, rank) => {
      const [top, middle] = [rank * row, rank * row + bar / 2];
      const also = below > 9 ? [{ label: "measured", middle: top + bar + 1 + below / 2 }] : [];
      return { rank, label: `rank ${rank}`, top, bottom: top + bar, middle, also };
    }),
    shown: Array.from({ length: ranks }, (_, rank) => rank),
    slots, slotOf, count: spans.length,
    kindOf: spans.map((i) => KINDS.indexOf(kind[i])), kinds: KINDS.length, holds: KINDS.map(() => false),
    labels: spans.map((i, at) => (measured[at] ? [] : [String(microbatch[i])])),
    chunk: spans.map((i) => chunk[stage[i]]),
    open: new Set(), heads: [], headOf: new Map(), cycle: [],
    above: 0, pinned: 0, height: ranks * row - 4, strip: 0, peak: 1,
    arrows: { tail: [], head: [], flow: [], count: 0 },
  };
}
