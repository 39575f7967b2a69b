// The statistics of a range: its spans by kind, and where each rank's time went.

/** @import { Range } from "./context.js" */
/** @import { Clock, Scene } from "./state.js" */

/** @typedef {{ kind: string, count: number, total: number, min: number, max: number, mean: number }} OfKind seconds */

/** Seconds of a range by what a rank did; `longest` is the span of its longest wait, or -1.
 * @typedef {{ rank: number, longest: number, compute: number, update: number, communication: number, other: number,
 *   idle: number, waited: number, hidden?: number }} OfRank */

/** @typedef {{ kinds: OfKind[], ranks: OfRank[], drawn: boolean }} Statistics */

/** @type {("compute" | "update" | "communication" | "other")[]} */
const SHARES = ["compute", "update", "communication", "other"];

/** Statistics of `range` {from, to, step} (null: any step): for each kind count, total, min, mean and max of the
 * whole lengths of the spans that overlap it; for each rank the seconds in which it computed, updated, communicated,
 * did other work or was idle (each without what the ones before it cover), its waiting time, and its longest wait. A
 * rank's part of a step is from its first span of the step to its last. If not all spans are drawn, the whole and
 * its steps come from the state's numbers of all spans. For another range, the seconds covered only by spans that
 * are not drawn are `hidden`, and `drawn` is true: kinds are those of the drawn spans.
 * @type {(scene: Scene, clock: Clock, range: Range) => Statistics} */
export function statistics(scene, clock, range) {
  const { kinds, ranks } = fromSpans(scene, clock, range);
  if (!clock.numbers) return { kinds, ranks, drawn: false };
  const part = partOf(clock, clock.numbers.steps, range);
  if (part < 0) {
    return { kinds, ranks: ranks.map((own) => ({ ...own, ...hiddenIn(scene, clock, range, own) })), drawn: true };
  }
  const { seconds, ranks: known, kinds: all } = clock.numbers;
  const found = ranks.map((own) => {
    const at = known.indexOf(own.rank);
    const shares = Object.entries(seconds).map(([name, of]) => [name, of[part][at] * clock.quantum]);
    return { ...own, ...Object.fromEntries(shares) };
  });
  const rows = all.kind.map((_, i) => i).filter((i) => all.part[i] === part);
  /** @type {(name: "total" | "min" | "max", i: number) => number} */
  const length = (name, i) => all[name][i] * clock.quantum;
  return {
    ranks: found, drawn: false,
    kinds: rows.map((i) => ({
      kind: all.kind[i], count: all.count[i], total: length("total", i),
      min: length("min", i), max: length("max", i), mean: length("total", i) / all.count[i],
    })),
  };
}

/** The part of a clock's numbers for a range: 0 for the whole, its steps from 1 on, -1 for none.
 * @type {(clock: Clock, steps: number[], range: Range) => number} */
function partOf({ low, high }, steps, { from, to, step }) {
  if (step != null) return 1 + steps.indexOf(step);
  return from <= low && to >= high ? 0 : -1;
}

/** The statistics of the drawn spans.
 * @type {(scene: Scene, clock: Clock, range: Range) => { kinds: OfKind[], ranks: (OfRank & { covered: number })[] }} */
function fromSpans(scene, clock, range) {
  const { span } = scene;
  const kinds = new Map();
  const ranks = new Map();
  for (const { rank } of scene.rows) ranks.set(rank, { rank, spans: [], longest: -1 });
  for (let i = 0; i < scene.count; i++) {
    const [start, end] = [clock.start[i], clock.end[i]];
    const inside = end > range.from && start < range.to;
    const point = start === end && start >= range.from && start <= range.to;
    if (!(inside || point) || (range.step != null && span.step[i] !== range.step)) continue;
    const [kind, length] = [span.kind[i], end - start];
    const own = kinds.get(kind) ?? { kind, count: 0, total: 0, min: Infinity, max: 0 };
    own.count += 1;
    own.total += length;
    own.min = Math.min(own.min, length);
    own.max = Math.max(own.max, length);
    kinds.set(kind, own);
    const rank = ranks.get(span.rank[i]);
    rank.spans.push(i);
    if (isWait(scene, i) && longer(clock, range, i, rank.longest)) rank.longest = i;
  }
  return {
    kinds: [...kinds.values()].map((own) => ({ ...own, mean: own.total / own.count })),
    ranks: [...ranks.values()].map(({ rank, spans, longest }) =>
      ({ rank, longest, ...sharesOf(scene, clock, range, spans) })),
  };
}

/** The seconds of a range by what one rank's spans do.
 * @type {(scene: Scene, clock: Clock, range: Range, spans: number[]) => Omit<OfRank, "rank" | "longest"> & {
 *   covered: number }} */
function sharesOf(scene, clock, range, spans) {
  const { span, groups } = scene;
  /** @type {(i: number) => [start: number, end: number]} */
  const cut = (i) => [Math.max(clock.start[i], range.from), Math.min(clock.end[i], range.to)];
  /** @type {(which: (i: number) => boolean) => number} */
  const open = (which) => union(spans.filter(which).map(cut));
  /** @type {any} */
  const shares = {};
  /** @type {string[]} */
  let of = [];
  let before = 0;
  for (const name of SHARES) {
    of = [...of, ...groups[name]];
    const until = open((i) => of.includes(span.kind[i]));
    shares[name] = Math.max(until - before, 0);
    before = until;
  }
  let [first, last] = [range.from, range.to];
  if (range.step != null) {
    first = spans.reduce((least, i) => Math.min(least, clock.start[i]), Infinity);
    last = spans.reduce((most, i) => Math.max(most, clock.end[i]), -Infinity);
    [first, last] = [Math.max(first, range.from), Math.min(last, range.to)];
  }
  const waited = open((i) => isWait(scene, i));
  return { ...shares, covered: before, idle: Math.max(last - first - before, 0), waited };
}

/** Whether span i is a wait: for a message, another lane or a lock. @type {(scene: Scene, i: number) => boolean} */
function isWait({ span: { kind, name }, groups }, i) {
  return groups.waiting.includes(kind[i]) || (kind[i] === "lock" && name[i] === "wait");
}

/** The seconds of a range covered only by a rank's spans that are not drawn, and those in which it was idle.
 * @type {(scene: Scene, clock: Clock, range: Range, own: OfRank & { covered: number }) => Pick<OfRank, "hidden" |
 *   "idle">} */
function hiddenIn({ rows, span, count, groups }, clock, { from, to }, { rank, covered }) {
  const known = SHARES.flatMap((name) => groups[name]);
  /** @type {[start: number, end: number][]} */
  const all = [];
  /** @type {(start: number, end: number) => void} */
  const take = (start, end) => {
    if (end > from && start < to) all.push([Math.max(start, from), Math.min(end, to)]);
  };
  for (let i = 0; i < count; i++) {
    if (span.rank[i] === rank && known.includes(span.kind[i])) take(clock.start[i], clock.end[i]);
  }
  const { row, start, end } = clock.gaps;
  for (let i = 0; i < clock.gaps.count; i++) if (rows[row[i]].rank === rank) take(start[i], end[i]);
  const taken = union(all);
  return { hidden: Math.max(taken - covered, 0), idle: Math.max(to - from - taken, 0) };
}

/** The seconds of span i that lie in a range. @type {(clock: Clock, range: Range, i: number) => number} */
export function inRange(clock, range, i) {
  return Math.max(Math.min(clock.end[i], range.to) - Math.max(clock.start[i], range.from), 0);
}

/** Whether wait i is longer in the range than `other` (-1: none), or as long and only i says for whom.
 * @type {(clock: Clock, range: Range, i: number, other: number) => boolean} */
function longer(clock, range, i, other) {
  const [own, before] = [i, other].map((one) => (one < 0 ? 0 : inRange(clock, range, one)));
  if (Math.abs(own - before) > clock.quantum) return own > before;
  return own > 0 && clock.waits.has(i) && !clock.waits.has(other);
}

/** Seconds covered by at least one of the intervals. @type {(intervals: [start: number, end: number][]) => number} */
function union(intervals) {
  intervals.sort((a, b) => a[0] - b[0]);
  let [covered, reached] = [0, -Infinity];
  for (const [start, end] of intervals) {
    if (end <= reached) continue;
    covered += end - Math.max(start, reached);
    reached = end;
  }
  return covered;
}
