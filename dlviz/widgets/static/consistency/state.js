// A prediction or a run, read into columns, and as rows of bars.
import { column } from "../shared/arrays.js";

/** @import { Column } from "../shared/arrays.js" */
/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Rows, Times } from "../shared/gantt/rows.js" */
/** @import { Viewport } from "../shared/viewport.js" */

/** The averages of one worker while all are at work; `staleness` may be null.
 * @typedef {{ rate: number, staleness: number | null, waiting: number }} Worker */

/**
 * Spans first[r] to first[r+1]-1 are those of rank r, in order of time; `kind` is an index into the data's `shown`. A
 * span waits until `waited`. `edges` are the moments at which messages leave and arrive, `aloft` how many are in
 * transit from each of them on. `last` is the end of all.
 * @typedef {object} Side
 * @property {number} ranks
 * @property {number} count
 * @property {number[]} first
 * @property {number[]} rank of each span
 * @property {number[]} kind
 * @property {number[]} start seconds
 * @property {number[]} end
 * @property {number[]} waited
 * @property {{ src: number[], dst: number[], sent: number[], arrived: number[], received: number[] }} messages
 * @property {{ rank: number[], time: number[], staleness: number[] }} applied
 * @property {number} rate gradients per second
 * @property {number | null} staleness
 * @property {Worker[]} workers
 * @property {number[]} edges
 * @property {number[]} aloft
 * @property {number} last
 */

/** A side as the kernel sends it; `counts` are the spans of each rank.
 * @typedef {Pick<Side, "start" | "end" | "waited" | "rate" | "staleness" | "workers"> & { counts: number[], kind:
 *   Column<number>, applied: { time: number[], rank: Column<number>, staleness: Column<number> }, messages:
 *   Pick<Side["messages"], "sent" | "arrived" | "received"> & { src: Column<number>, dst: Column<number> } }}
 *   SideData */

/** @typedef {{ side?: SideData, late?: string, summary: string[], error?: string, stopped?: string }} Run */

/** @typedef {Answer & { shown: string[], predicted: SideData, run: Run | null, ran: number }} Data */

/** @typedef {"predicted" | "measured"} Which */

/** Further state: the sides, which of them is animated, and the moment (s); `from` and `to` are the part of the
 * timeline in view.
 * @typedef {{ predicted: Side, measured: Side | null, which: Which, at: number, playing: boolean, from: number, to:
 *   number }} More */

/** @typedef {Explorer<Data, More> & { part: Viewport }} Consistency */

const ROOM = 152; // pixels of all rows together
const [GAP, MOST] = [3, 26]; // pixels between two rows, of a row

/** Reads a side into columns. @type {(data: SideData) => Side} */
export function readSide(data) {
  const { counts, messages, applied } = data;
  const count = data.start.length;
  const first = [0];
  for (const many of counts) first.push(first[first.length - 1] + many);
  const sends = messages.sent.length;
  const read = {
    ...messages, src: column(messages.src, sends), dst: column(messages.dst, sends),
  };
  const rows = applied.time.length;
  return {
    ...data, count, first, ranks: counts.length,
    rank: counts.flatMap((many, rank) => new Array(many).fill(rank)),
    kind: column(data.kind, count),
    messages: read,
    applied: { ...applied, rank: column(applied.rank, rows), staleness: column(applied.staleness, rows) },
    ...flights(read),
    last: data.end.reduce((most, end) => Math.max(most, end), 0),
  };
}

/** The moments at which messages leave and arrive, and how many are in transit from each of them on.
 * @type {(messages: Pick<Side["messages"], "sent" | "arrived">) => Pick<Side, "edges" | "aloft">} */
function flights({ sent, arrived }) {
  const changes = new Map();
  /** @type {(moment: number, by: number) => void} */
  const change = (moment, by) => changes.set(moment, (changes.get(moment) ?? 0) + by);
  for (const moment of sent) change(moment, 1);
  for (const moment of arrived) change(moment, -1);
  const edges = [...changes.keys()].sort((a, b) => a - b);
  let aloft = 0;
  return { edges, aloft: edges.map((edge) => (aloft += changes.get(edge))) };
}

/** Whether a method has a server, which is rank 0 and computes no gradient. @type {(side: Side) => boolean} */
export function served({ ranks, workers }) {
  return ranks > workers.length;
}

/** The name of a rank. @type {(side: Side, rank: number) => string} */
export function nameOf(side, rank) {
  return served(side) && rank === 0 ? "server" : `worker ${rank}`;
}

/** The prediction as rows of bars, and below each row the run; `sideOf` returns the side and span of a bar.
 * @type {(predicted: Side, measured: Side | null, kinds: number) => { rows: Rows, times: Times, sideOf: (place:
 *   number) => [Side, number] }} */
export function drawnOf(predicted, measured, kinds) {
  const row = Math.min(MOST, Math.floor(ROOM / predicted.ranks));
  const bar = measured ? Math.ceil((row - GAP) / 2) : row - GAP;
  const below = row - GAP - bar;
  const sides = measured ? [predicted, measured] : [predicted];
  /** @type {Rows["slots"]} */
  const slots = [];
  /** @type {number[]} */
  const begin = []; // the first span of each side
  let count = 0;
  for (const side of sides) {
    begin.push(count);
    for (let rank = 0; rank < predicted.ranks; rank++) {
      const top = rank * row + (side === predicted ? 0 : bar);
      const [first, after] = [count + side.first[rank], count + side.first[rank + 1]];
      slots.push({ row: rank, first, after, top, bottom: top + (side === predicted ? bar : below) });
    }
    count += side.count;
  }
  const slotOf = new Int32Array(count);
  slots.forEach((slot, number) => slotOf.fill(number, slot.first, slot.after));
  /** @type {(place: number) => [Side, number]} */
  const sideOf = (place) => (measured && place >= begin[1] ? [measured, place - begin[1]] : [predicted, place]);
  /** @type {(name: "start" | "end" | "waited" | "kind") => number[]} */
  const all = (name) => sides.flatMap((side) => side[name]);
  const [start, end, waited] = /** @type {const} */ (["start", "end", "waited"]).map(all);
  const last = Math.max(...sides.map((side) => side.last));
  const none = { row: [], start: [], end: [], count: 0 };
  return {
    sideOf,
    rows: {
      rows: Array.from({ length: predicted.ranks }, (_, rank) => ({
        rank, label: nameOf(predicted, rank), top: rank * row, bottom: rank * row + row - GAP,
        middle: rank * row + (row - GAP) / 2,
      })),
      shown: Array.from({ length: predicted.ranks }, (_, rank) => rank),
      slots, slotOf, count, kindOf: all("kind"), kinds, holds: new Array(kinds).fill(false),
      labels: start.map(() => []), chunk: start.map(() => 0),
      open: new Set(), heads: [], headOf: new Map(), cycle: [],
      above: 0, pinned: 0, height: predicted.ranks * row - GAP, strip: 0, peak: 1,
      arrows: { tail: [], head: [], flow: [], count: 0 },
    },
    times: {
      start, end, low: 0, high: last, quantum: last * 1e-7, memory: false, sent: [], received: [], lost: [],
      idle: none, gaps: none, critical: [], path: { start: [], end: [] },
      waited: new Map(waited.flatMap((until, i) => (until > start[i] ? [[i, until]] : []))),
    },
  };
}
