// What may come next on a drawing, and why its ranks are idle.
import { isOverlap, overlap } from "./actions.js";
import { arrivals, earliest, heldAt, heldIn, rankOf, readyAt } from "./pipeline.js";
import { meant } from "./faults.js";

/** @import { Action } from "./actions.js" */
/** @import { Drawing } from "./drawing.js" */
/** @import { Placed } from "./pipeline.js" */

/** @typedef {{ placed: Placed, lead: boolean }} Next what may come next; `lead`: the first of its stage and kind */
/** @typedef {{ rank: number, start: number, end: number, cause: string, actions: Action[], words: string }} Gap */

const LISTED = 3; // actions in a sentence

/** All possible next actions, each at its first legal slot. @type {(drawn: Drawing) => Next[]} */
export function nextOf(drawn) {
  const { pipeline, grid, left } = drawn;
  const found = left.flatMap((action) => {
    const slot = earliest(grid, action);
    return slot == null ? [] : [{ action, rank: rankOf(pipeline, action), slot }];
  });
  /** @type {Map<string, Placed>} */
  const leads = new Map();
  for (const placed of found) {
    const key = `${placed.action.stage}${placed.action.kind}`;
    const first = leads.get(key);
    if (!first || placed.slot < first.slot) leads.set(key, placed);
  }
  const inFront = [...leads.values()];
  const both = pipeline.overlaps ? overlapsOf(drawn, inFront) : [];
  return [...found.map((placed) => ({ placed, lead: inFront.includes(placed) })), ...both];
}

/** @type {(drawn: Drawing, leads: Placed[]) => Next[]} */
function overlapsOf({ grid }, leads) {
  return leads.filter(({ action }) => action.kind === "F").flatMap((one) => leads.flatMap((other) => {
    const both = overlap(one.action, other.action);
    if (other.rank !== one.rank || !isOverlap(both)) return [];
    const slot = earliest(grid, both);
    return slot == null ? [] : [{ placed: { action: both, rank: one.rank, slot }, lead: true }];
  }));
}

/** All idle time from the first start to the last end, by its cause. @type {(drawn: Drawing) => Gap[]} */
export function idleOf(drawn) {
  const { pipeline, placed, left } = drawn;
  const first = placed.length ? Math.min(...placed.map(({ slot }) => slot)) : 0;
  return Array.from({ length: pipeline.ranks }, (_, rank) =>
    idleOn(drawn, rank, left.filter((one) => rankOf(pipeline, one) === rank), first)).flat();
}

/** The idle time of a rank with the actions of `left` not drawn.
 * @type {(drawn: Drawing, rank: number, left: Action[], first: number) => Gap[]} */
function idleOn(drawn, rank, left, first) {
  const { pipeline, grid, where, end: last } = drawn;
  const started = [...where].flatMap(([text, { action, slot }]) => {
    const own = action.halves.find((half) => half.text === text);
    return own && rankOf(pipeline, own) === rank ? [{ action: own, slot }] : [];
  }).sort((one, other) => one.slot - other.slot);
  const ready = new Map([...started.map(({ action }) => action), ...left].map((one) => [one, readyAt(grid, one)]));
  const then = (/** @type {Action} */ one) => ready.get(one) ?? 0;
  const rest = left.toSorted((one, other) => then(one) - then(other) || 0);
  const found = [];
  let at = first;
  for (const [start, end] of [...grid.busy[rank], [last, last]]) {
    if (start > at) {
      const ahead = started.filter(({ slot }) => slot >= start).map(({ action }) => action);
      found.push(...gapsOf(drawn, { rank, at, end: start }, [...ahead, ...rest], then));
    }
    at = Math.max(at, end);
  }
  return found;
}

/** An idle period, cut where one of the rank's actions ahead becomes ready.
 * @type {(drawn: Drawing, period: { rank: number, at: number, end: number }, ahead: Action[], ready: (one: Action)
 *   => number) => Gap[]} */
function gapsOf(drawn, { rank, at, end }, ahead, ready) {
  const { pipeline: { limit }, grid } = drawn;
  const full = limit != null && heldAt(grid, rank, at) >= limit;
  const free = ahead.filter(({ kind }) => !full || kind !== "F");
  const between = free.map(ready).filter((slot) => at < slot && slot < end);
  const cuts = [...new Set([at, end, ...between])].sort((one, other) => one - other);
  return cuts.slice(0, -1).map((start, i) => {
    const gap = { rank, start, end: cuts[i + 1] };
    const able = free.filter((one) => ready(one) <= start);
    if (!ahead.length) return { ...gap, cause: "done", actions: [], words: "this rank has nothing left to run" };
    if (!able.length) return { ...gap, cause: "waiting", ...waitedFor(drawn, rank, start, free) };
    return { ...gap, cause: "choice", actions: able, words: `your choice: ${listed(able)} could have run here` };
  });
}

/** What a rank waits for when none of its actions ahead can run: the message for the first of them, or for what that
 * needs on its own rank.
 * @type {(drawn: Drawing, rank: number, now: number, ahead: Action[]) => { actions: Action[], words: string }} */
function waitedFor(drawn, rank, now, ahead) {
  const { pipeline, grid } = drawn;
  const { limit } = pipeline;
  let need = ahead[0];
  let slot = Infinity;
  while (need) {
    const unmet = arrivals(grid, need).filter((one) => one.slot > now);
    if (!unmet.length) break;
    const one = unmet.find(({ choice }) => rankOf(pipeline, choice[0]) !== rank) ?? unmet[0];
    need = meant(drawn, one.choice);
    slot = one.slot;
    if (rankOf(pipeline, need) !== rank) break;
  }
  if (!need || (limit != null && rankOf(pipeline, need) === rank)) {
    return { actions: [], words: `waiting for memory: the rank holds ${limit} ${heldIn(pipeline)}, its limit` };
  }
  const when = slot === Infinity ? "which is not drawn" : `which is there from slot ${slot} on`;
  return { actions: [need], words: `waiting for ${need.text} of rank ${rankOf(pipeline, need)}, ${when}` };
}

/** @param {Action[]} actions */
function listed(actions) {
  const shown = actions.slice(0, LISTED).map(({ text }) => text);
  if (actions.length > LISTED) return `${shown.join(", ")} and ${actions.length - LISTED} more`;
  const last = shown.pop() ?? "";
  return shown.length ? `${shown.join(", ")} or ${last}` : last;
}
