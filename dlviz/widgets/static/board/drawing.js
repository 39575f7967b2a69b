// A schedule drawn by hand: which action is where, and what follows.
import { KINDS, Refused, action, checkActions, checkProgress, filled } from "./actions.js";
import { BACKWARDS, checkInside, earliest, gridOf, kindsOf, lasting, put, rankOf, readyAt } from "./pipeline.js";
import { SENTENCES } from "./sentences.js";

/** @import { Action } from "./actions.js" */
/** @import { Grid, Pipeline, Placed } from "./pipeline.js" */

/**
 * @typedef {object} Drawing
 * @property {Pipeline} pipeline
 * @property {Placed[]} placed in the order of placing
 * @property {Grid} grid the placed actions on their ranks and slots
 * @property {Map<string, Placed>} where the first place of each action; the halves of an overlap count separately
 * @property {Action[]} left actions not drawn yet; both forms where either a B or an I and a W may be drawn
 * @property {number} end the slot at which the last action ends
 */

/** A drawing. @type {(pipeline: Pipeline, placed?: Placed[]) => Drawing} */
export function drawing(pipeline, placed = []) {
  /** @type {Map<string, Placed>} */
  const where = new Map();
  for (const one of placed) for (const { text } of one.action.halves) if (!where.has(text)) where.set(text, one);
  const left = leftOf(pipeline, where);
  const end = Math.max(0, ...placed.map((one) => endOf(pipeline, one)));
  return { pipeline, placed, grid: gridOf(pipeline, placed), where, left, end };
}

/** @type {(pipeline: Pipeline, placed: Placed) => number} */
export function endOf(pipeline, { action: one, slot }) {
  return slot + lasting(pipeline, one);
}

/** @type {(pipeline: Pipeline, where: Map<string, Placed>) => Action[]} */
function leftOf(pipeline, where) {
  const left = [];
  for (let stage = 0; stage < pipeline.stages.length; stage++) {
    for (let microbatch = 0; microbatch < pipeline.microbatches; microbatch++) {
      const have = [...KINDS].filter((kind) => where.has(`${stage}${kind}${microbatch}`));
      const split = have.includes("I") || have.includes("W");
      const kinds = have.includes("B") ? "F" : split ? "FIW" : kindsOf(pipeline);
      for (const kind of kinds) if (!have.includes(kind)) left.push(action(stage, kind, microbatch));
    }
  }
  return left;
}

/** Whether two placed actions are the same. @type {(one: Placed, other: Placed) => boolean} */
export function isSame(one, other) {
  return one.action.text === other.action.text && one.rank === other.rank && one.slot === other.slot;
}

/** Adds an action at a slot of a rank, legal or not; refuses one that the pipeline does not have.
 * @type {(before: Drawing, placed: Placed) => Drawing} */
export function place(before, placed) {
  checkInside(before.pipeline, placed);
  const { action: { text }, rank, slot } = placed;
  if (before.placed.some((one) => isSame(one, placed))) {
    throw new Refused(filled(SENTENCES.there, { action: text, rank, slot }));
  }
  return drawing(before.pipeline, [...before.placed, placed]);
}

/** Adds an action on its own rank, at its first legal slot or, without one, after the rank's last action.
 * @type {(before: Drawing, one: Action) => Drawing} */
export function add(before, one) {
  checkInside(before.pipeline, { action: one, rank: 0, slot: 0 });
  const rank = rankOf(before.pipeline, one);
  const slot = earliest(before.grid, one) ?? Math.max(0, ...before.grid.busy[rank].map(([, end]) => end));
  return place(before, { action: one, rank, slot });
}

/** Removes a placed action; refuses one that is not there. @type {(before: Drawing, placed: Placed) => Drawing} */
export function remove(before, placed) {
  const { action: { text }, rank, slot } = placed;
  const rest = before.placed.filter((one) => !isSame(one, placed));
  if (rest.length < before.placed.length) return drawing(before.pipeline, rest);
  throw new Refused(`${text} is not at slot ${slot} of rank ${rank}, so it cannot be removed.`);
}

/** The actions of each rank by slot. @type {(drawing: Drawing) => Action[][]} */
export function rowsOf({ pipeline, placed }) {
  /** @type {Action[][]} */
  const rows = Array.from({ length: pipeline.ranks }, () => []);
  for (const one of placed.toSorted((a, b) => a.slot - b.slot)) rows[one.rank].push(one.action);
  return rows;
}

/** Lays rows out, each action as early as possible; refuses rows that deadlock.
 * @type {(pipeline: Pipeline, rows: Action[][]) => Drawing} */
export function laidOut(pipeline, rows) {
  checkActions(rows, pipeline.stages);
  checkProgress(rows, pipeline.stages);
  const grid = gridOf(pipeline);
  const placed = fill(grid, rows);
  placed.sort((one, other) => one.slot - other.slot || one.rank - other.rank);
  return drawing(pipeline, placed);
}

/** Fills a grid with rows, each action after those of its rank and as early as possible.
 * @type {(grid: Grid, rows: Action[][]) => Placed[]} */
export function fill(grid, rows) {
  const free = grid.busy.map((busy) => busy.at(-1)?.[1] ?? 0);
  const reached = rows.map(() => 0);
  /** @type {Placed[]} */
  const placed = [];
  for (let moved = true; moved;) {
    moved = false;
    rows.forEach((row, rank) => {
      for (; reached[rank] < row.length; reached[rank] += 1) {
        const one = row[reached[rank]];
        const slot = Math.max(free[rank], readyAt(grid, one));
        if (slot === Infinity) return;
        put(grid, one, rank, slot);
        placed.push({ action: one, rank, slot });
        free[rank] = slot + lasting(grid.pipeline, one);
        moved = true;
      }
    });
  }
  return placed;
}

/** The pipeline that offers all actions of the rows. @type {(pipeline: Pipeline, rows: Action[][]) => Pipeline} */
export function offering(pipeline, rows) {
  const all = rows.flat();
  const kinds = new Set(all.flatMap(({ halves }) => halves.map(({ kind }) => kind)));
  const splits = Object.keys(BACKWARDS).filter((split) => [...kinds].every((kind) => BACKWARDS[split].includes(kind)));
  splits.sort((one, other) => BACKWARDS[one].length - BACKWARDS[other].length);
  const offered = [...BACKWARDS[splits[0]]].every((kind) => kindsOf(pipeline).includes(kind));
  const overlaps = pipeline.overlaps || all.some(({ halves }) => halves.length > 1);
  return { ...pipeline, backward: offered ? pipeline.backward : splits[0], overlaps };
}
