// The pipeline that a schedule is drawn for, and the grid of ranks and slots as it fills.
import { upTo } from "../shared/arrays.js";
import { EXCLUDES, Refused, filled, isOverlap, needs } from "./actions.js";
import { SENTENCES } from "./sentences.js";

/** @import { Action } from "./actions.js" */
/** @import { Given } from "./state.js" */

/** @typedef {{ action: Action, rank: number, slot: number }} Placed an action that starts in a slot of a rank */

/**
 * @typedef {object} Pipeline
 * @property {number[]} stages the rank of each stage
 * @property {number} ranks
 * @property {number} microbatches
 * @property {string} backward "whole", "split", "either" or "none"
 * @property {number | null} limit the microbatches (of a stage) that a rank may hold
 * @property {boolean} overlaps whether two actions may be drawn as one overlap
 * @property {Record<string, number[]>} lasts for each kind its duration in each stage, in slots
 * @property {number} latency slots
 * @property {number} slot seconds
 */

/** @type {Record<string, string>} */
export const BACKWARDS = { whole: "FB", split: "FIW", either: "FBIW", none: "F" };

/** The pipeline of a board. @type {(given: Given) => Pipeline} */
export function pipelineOf({ stages, ranks, microbatches, backward, limit, overlaps, lasts, latency, slot }) {
  return { stages, ranks, microbatches, backward, limit, overlaps, lasts, latency, slot };
}

/** The kinds of action that are offered. @type {(pipeline: Pipeline) => string} */
export function kindsOf({ backward }) {
  return BACKWARDS[backward];
}

/** What a rank holds, in words: each chunk counts. @type {(pipeline: Pipeline) => string} */
export function heldIn({ stages, ranks }) {
  return stages.length === ranks ? "microbatches" : "chunks";
}

/** How many slots an action lasts. @type {(pipeline: Pipeline, action: Action) => number} */
export function lasting({ lasts }, { halves }) {
  return halves.reduce((sum, { kind, stage }) => sum + lasts[kind][stage], 0);
}

/** A slot by which all is done, even one action and one message at a time. @type {(pipeline: Pipeline) => number} */
function horizonOf({ lasts, stages, latency, microbatches }) {
  const once = Object.values(lasts).flat().reduce((sum, slots) => sum + slots, 0);
  return (once + 2 * stages.length * latency) * microbatches;
}

/** The index of a stage among those of its rank. @type {(pipeline: Pipeline, stage: number) => number} */
export function chunkOf({ stages }, stage) {
  return stages.slice(0, stage).filter((rank) => rank === stages[stage]).length;
}

/** The rank on which an action has to run. @type {(pipeline: Pipeline, action: Action) => number} */
export function rankOf({ stages }, { halves }) {
  return stages[halves[0].stage];
}

/** Refuses an action that the pipeline does not have. @type {(pipeline: Pipeline, placed: Placed) => void} */
export function checkInside(pipeline, { action, rank, slot }) {
  const { stages, microbatches, backward, ranks } = pipeline;
  const refused = (/** @type {string} */ words, /** @type {Record<string, unknown>} */ values) =>
    new Refused(filled(words, values));
  if (action.halves.length > 1 && !isOverlap(action)) throw refused(SENTENCES.overlap, { action: action.text });
  for (const { text, stage, microbatch, kind } of action.halves) {
    const half = { action: text };
    if (stage >= stages.length) throw refused(SENTENCES.stage, { ...half, last: stages.length - 1 });
    if (microbatch >= microbatches) throw refused(SENTENCES.microbatch, { ...half, last: microbatches - 1 });
    if (backward === "none" && kind !== "F") throw refused(SENTENCES.forwards, half);
  }
  const within = (/** @type {number} */ value, /** @type {number} */ end) => value >= 0 && value < end;
  if (!within(rank, ranks)) throw refused(SENTENCES.rank, { rank, last: ranks - 1 });
  const end = horizonOf(pipeline);
  if (!within(slot, end)) throw refused(SENTENCES.slot, { slot, last: end - 1 });
}

/**
 * @typedef {object} Grid ranks and slots that are being filled
 * @property {Pipeline} pipeline
 * @property {[start: number, end: number][][]} busy of each rank, in order
 * @property {Map<string, number>} there the slot at which each action ends
 * @property {number[][]} taken the starts of each rank's forwards, in order
 * @property {number[][]} freed the ends of the actions that release a microbatch, by rank
 */

/** A grid with the placed actions. @type {(pipeline: Pipeline, placed?: Placed[]) => Grid} */
export function gridOf(pipeline, placed = []) {
  const rows = () => Array.from({ length: pipeline.ranks }, () => /** @type {any[]} */ ([]));
  const grid = { pipeline, busy: rows(), there: new Map(), taken: rows(), freed: rows() };
  for (const { action, rank, slot } of placed) put(grid, action, rank, slot);
  return grid;
}

/** Puts an action into a grid. @type {(grid: Grid, action: Action, rank: number, slot: number) => void} */
export function put({ pipeline, busy, there, taken, freed }, action, rank, slot) {
  const end = slot + lasting(pipeline, action);
  const at = busy[rank].findLastIndex(([start, stop]) => start < slot || (start === slot && stop <= end));
  busy[rank].splice(at + 1, 0, [slot, end]);
  const releases = pipeline.backward === "none" ? "F" : "BW";
  for (const { text, kind } of action.halves) {
    if (!there.has(text)) there.set(text, end);
    if (kind === "F") insert(taken[rank], slot);
    if (releases.includes(kind)) insert(freed[rank], end);
  }
}

/** `values`: ascending. @type {(values: number[], value: number) => void} */
function insert(values, value) {
  values.splice(upTo(values, value), 0, value);
}

/** What an action needs, each with the slot at which it arrives, or Infinity.
 * @type {(grid: Grid, action: Action) => { choice: Action[], slot: number }[]} */
export function arrivals({ pipeline, there }, action) {
  const rank = rankOf(pipeline, action);
  return action.halves.flatMap((half) => needs(half, pipeline.stages.length)).map((choice) => {
    const end = Math.min(...choice.map(({ text }) => there.get(text) ?? Infinity));
    const far = pipeline.stages[choice[0].stage] !== rank;
    return { choice, slot: far ? end + pipeline.latency : end };
  });
}

/** The slot at which all that an action needs has arrived, or Infinity.
 * @type {(grid: Grid, action: Action) => number} */
export function readyAt(grid, action) {
  return Math.max(0, ...arrivals(grid, action).map(({ slot }) => slot));
}

/** The microbatches (of a stage) that a rank holds once the action at `slot` has started.
 * @type {(grid: Grid, rank: number, slot: number) => number} */
export function heldAt({ taken, freed }, rank, slot) {
  return upTo(taken[rank], slot) - upTo(freed[rank], slot);
}

/** The first slot at which an action may start; null if none. @type {(grid: Grid, action: Action) => number | null} */
export function earliest(grid, action) {
  const ready = readyAt(grid, action);
  if (ready === Infinity) return null;
  const { limit } = grid.pipeline;
  const rank = rankOf(grid.pipeline, action);
  const slots = lasting(grid.pipeline, action);
  let at = gapAt(grid.busy[rank], ready, slots);
  if (limit == null || action.halves.every(({ kind }) => kind !== "F")) return at;
  while (!hasRoom(grid, rank, at, limit)) {
    const later = grid.freed[rank].find((end) => end > at);
    if (later === undefined) return null;
    at = gapAt(grid.busy[rank], later, slots);
  }
  return at;
}

/** The first slot from `at` on with so many free slots after it.
 * @type {(row: [start: number, end: number][], at: number, slots: number) => number} */
function gapAt(row, at, slots) {
  for (const [start, end] of row) {
    if (end <= at) continue;
    if (start >= at + slots) break;
    at = end;
  }
  return at;
}

/** Whether a forward may start at a slot, given the later ones.
 * @type {(grid: Grid, rank: number, at: number, limit: number) => boolean} */
function hasRoom(grid, rank, at, limit) {
  const taken = grid.taken[rank];
  return [at, ...taken.slice(upTo(taken, at))].every((slot) => heldAt(grid, rank, slot) < limit);
}

/** The texts of the actions that an action excludes: its own kind, and for a B its I and W.
 * @type {(action: Action) => string[]} */
export function excludedBy({ stage, kind, microbatch }) {
  return [...EXCLUDES[kind]].map((each) => `${stage}${each}${microbatch}`);
}
