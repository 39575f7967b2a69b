// The score of a drawing, which known schedule it is, the best of these, and a good next move.
import { parse } from "./actions.js";
import { cellsOf } from "./csv.js";
import { fill, laidOut, place, rowsOf } from "./drawing.js";
import { holdingOf } from "./faults.js";
import { arrivals, earliest, excludedBy, gridOf, kindsOf, lasting, put, rankOf, readyAt } from "./pipeline.js";
import { nextOf } from "./waiting.js";

/** @import { Action } from "./actions.js" */
/** @import { Drawing } from "./drawing.js" */
/** @import { Grid, Pipeline, Placed } from "./pipeline.js" */
/** @import { Paper, Score } from "./state.js" */

/** A known schedule. `rows`: as CSV.
 * @typedef {{ name: string, title: string, paper: Paper | null, flushes: boolean, rows: string }} Given */
/** @typedef {Omit<Given, "rows"> & { rows: Action[][], score: Score }} Schedule on a pipeline */
/** @typedef {{ placed: Placed, end: number, order: string }} Move and the slot at which all can end after it */

/** @type {Record<string, string>} */
const ORDERS = { "backward first": "IBFW", "forward first": "FIBW" };

/** @type {WeakMap<Pipeline, Schedule[]>} */
const zoos = new WeakMap(); // the zoo of each board's pipeline

/** The score of a drawing so far. @type {(drawn: Drawing) => Score} */
export function scoreOf(drawn) {
  const { pipeline, placed, grid, end } = drawn;
  const first = placed.length ? Math.min(...placed.map(({ slot }) => slot)) : 0;
  const slots = end - first;
  const work = placed.reduce((sum, { action }) => sum + lasting(pipeline, action), 0);
  const ratio = work ? (slots * pipeline.ranks) / work - 1 : 0;
  const peak = Array.from({ length: pipeline.ranks }, (_, rank) => {
    const held = holdingOf(drawn, rank).map((one) => one.held);
    return held.length ? Math.max(...held) : 0;
  });
  const idle = grid.busy.map((row) => {
    const last = row.at(-1);
    return last ? last[1] - row[0][0] - row.reduce((sum, [start, stop]) => sum + stop - start, 0) : -Infinity;
  }).filter((one) => one > -Infinity);
  return { slots, ratio, peak, inside: idle.length ? Math.max(...idle) : 0, fraction: ratio / (1 + ratio) };
}

/** The known schedules on a pipeline, fastest first; of equally fast ones the one that holds fewest microbatches.
 * @type {(pipeline: Pipeline, given: Given[]) => Schedule[]} */
export function zooOf(pipeline, given) {
  const known = zoos.get(pipeline) ?? given.map((one) => {
    const rows = cellsOf(one.rows).map((cells) => cells.map(parse));
    return { ...one, rows, score: scoreOf(laidOut(pipeline, rows)) };
  }).sort(({ score: one }, { score: other }) =>
    one.slots - other.slots || Math.max(...one.peak) - Math.max(...other.peak));
  zoos.set(pipeline, known);
  return known;
}

/** The fastest known schedule that flushes and fits.
 * @type {(pipeline: Pipeline, zoo: Schedule[]) => Schedule | null} */
export function bestOf(pipeline, zoo) {
  return zoo.find((one) => one.flushes && fits(one, pipeline)) ?? null;
}

/** Whether a schedule stays within the pipeline's limit and uses only what it offers.
 * @type {(schedule: Schedule, pipeline: Pipeline) => boolean} */
function fits({ rows, score }, pipeline) {
  if (pipeline.limit != null && Math.max(...score.peak) > pipeline.limit) return false;
  const offered = kindsOf(pipeline);
  return rows.flat().every(({ halves }) =>
    (pipeline.overlaps || halves.length === 1) && halves.every(({ kind }) => offered.includes(kind)));
}

/** The known schedules that a drawing follows so far. @type {(drawn: Drawing, zoo: Schedule[]) => Schedule[]} */
export function begunAs(drawn, zoo) {
  const so = rowsOf(drawn);
  return zoo.filter(({ rows }) => so.every((row, rank) =>
    row.length <= rows[rank].length && row.every(({ text }, i) => text === rows[rank][i].text)));
}

/** The next actions of the rank that can go on first, and those of the known schedules that continue the drawing;
 * the best move first. `drawn`: without faults. @type {(drawn: Drawing, zoo: Schedule[]) => Move[]} */
export function movesOf(drawn, zoo) {
  const fitting = zoo.filter((one) => fits(one, drawn.pipeline));
  const leads = nextOf(drawn).filter(({ lead }) => lead).map(({ placed }) => placed);
  if (!leads.length) return [];
  const { rank } = leads.reduce((best, one) =>
    (one.slot - best.slot || one.rank - best.rank) < 0 ? one : best);
  const tried = [...leads.filter((one) => one.rank === rank),
    ...begunAs(drawn, fitting).map(({ rows }) => nextIn(drawn, rows))];
  /** @type {Map<string, Placed>} */
  const once = new Map();
  for (const one of tried) {
    const key = `${one.action.text} ${one.rank} ${one.slot}`;
    if (!once.has(key)) once.set(key, one);
  }
  const moves = [...once.values()].map((placed) => judged(drawn, placed, fitting));
  const by = (/** @type {number} */ one, /** @type {number} */ other) => (one === other ? 0 : one - other);
  return moves.sort((one, other) => by(one.end, other.end) || one.placed.slot - other.placed.slot);
}

/** @type {(drawn: Drawing, placed: Placed, zoo: Schedule[]) => Move} */
function judged(drawn, placed, zoo) {
  const after = place(drawn, placed);
  const ends = [
    ...Object.entries(ORDERS).map(([order, rule]) => ({ order, end: greedyEnd(after, rule) })),
    ...begunAs(after, zoo).map(({ name, rows }) => ({ order: name, end: endAs(after, rows) })),
  ];
  return { placed, ...ends.reduce((best, one) => (one.end < best.end ? one : best)) };
}

/** The first action of rows that is not drawn, placed after the last one of its rank.
 * @type {(drawn: Drawing, rows: Action[][]) => Placed} */
function nextIn({ grid }, rows) {
  const nexts = rows.flatMap((row, rank) => {
    const busy = grid.busy[rank];
    const action = row[busy.length];
    return action ? [{ action, rank, slot: Math.max(readyAt(grid, action), busy.at(-1)?.[1] ?? 0) }] : [];
  });
  return nexts.reduce((best, one) => (one.slot < best.slot ? one : best));
}

/** The slot at which a drawing ends when it continues with rows.
 * @type {(drawn: Drawing, rows: Action[][]) => number} */
function endAs({ pipeline, placed }, rows) {
  const grid = gridOf(pipeline, placed);
  fill(grid, rows.map((row, rank) => row.slice(grid.busy[rank].length)));
  return lastEnd(grid);
}

/** @type {(grid: Grid) => number} */
function lastEnd({ busy }) {
  return Math.max(...busy.map((row) => row.at(-1)?.[1] ?? 0));
}

/** @typedef {{ slot: number, place: number, action: Action }} First an action, and its kind's place in an order */

/** The slot at which a drawing ends when whatever can start first does; at the same slot, the kind that comes first
 * in `order`. Infinity if it deadlocks. @type {(drawn: Drawing, order: string) => number} */
function greedyEnd({ pipeline, placed, left: all }, order) {
  const grid = gridOf(pipeline, placed);
  const left = new Map(all.map((action) => [action.text, action]));
  /** @type {Map<string, Action[]>} */
  const follows = new Map();
  /** @type {Map<string, Action>[]} */
  const able = Array.from({ length: pipeline.ranks }, () => new Map());
  for (const action of all) {
    for (const { text } of arrivals(grid, action).flatMap(({ choice }) => choice)) {
      follows.set(text, [...(follows.get(text) ?? []), action]);
    }
    if (readyAt(grid, action) < Infinity) able[rankOf(pipeline, action)].set(action.text, action);
  }
  const nexts = able.map((some) => firstOf(grid, some, order));
  while (left.size) {
    const next = nexts.reduce((best, one) => (one && (!best || comesBefore(one, best)) ? one : best), null);
    if (!next) return Infinity;
    const rank = rankOf(pipeline, next.action);
    put(grid, next.action, rank, next.slot);
    for (const text of excludedBy(next.action)) {
      left.delete(text);
      able[rank].delete(text);
    }
    const changed = new Set([rank]);
    for (const one of follows.get(next.action.text) ?? []) {
      if (!left.has(one.text) || readyAt(grid, one) === Infinity) continue;
      able[rankOf(pipeline, one)].set(one.text, one);
      changed.add(rankOf(pipeline, one));
    }
    for (const other of changed) nexts[other] = firstOf(grid, able[other], order);
  }
  return lastEnd(grid);
}

/** @type {(grid: Grid, able: Map<string, Action>, order: string) => First | null} */
function firstOf(grid, able, order) {
  /** @type {First | null} */
  let best = null;
  for (const action of able.values()) {
    const slot = earliest(grid, action);
    if (slot == null) continue;
    const one = { slot, place: order.indexOf(action.kind), action };
    if (!best || comesBefore(one, best)) best = one;
  }
  return best;
}

/** @type {(one: First, other: First) => boolean} */
function comesBefore(one, other) {
  const [a, b] = [one.action, other.action];
  return (one.slot - other.slot || one.place - other.place || a.microbatch - b.microbatch || a.stage - b.stage) < 0;
}
