// The statistics of a selected range: what it holds, by kind, and where each rank's time went.

/**
 * Of the spans that lie in part in `range` {from, to, step} (any step where it is null): a row for
 * each kind with count, total, min, mean and max of their whole lengths, and a row for each rank
 * with the seconds of the range in which it computed, updated, communicated, did other work or was
 * idle (each without what the ones before it cover), how long it waited, and its longest wait in
 * the range. A rank's part of a step is from its first span of the step to its last.
 */
export function statistics(scene, clock, range) {
  const { span, groups } = scene;
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
    if (groups.waiting.includes(kind) && longer(clock, range, i, rank.longest)) rank.longest = i;
  }
  const cut = (i) => [Math.max(clock.start[i], range.from), Math.min(clock.end[i], range.to)];
  const open = (spans, of) => union(spans.filter((i) => of.includes(span.kind[i])).map(cut));
  const wholeOf = (spans) => {
    if (range.step == null) return range.to - range.from;
    const [first, last] = spans.reduce(([a, b], i) => [Math.min(a, clock.start[i]), Math.max(b, clock.end[i])], [Infinity, -Infinity]);
    return Math.max(Math.min(last, range.to) - Math.max(first, range.from), 0);
  };
  return {
    kinds: [...kinds.values()].map((own) => ({ ...own, mean: own.total / own.count })),
    ranks: [...ranks.values()].map(({ rank, spans, longest }) => {
      const shares = {};
      let of = [];
      let before = 0;
      for (const name of ["compute", "update", "communication", "other"]) {
        of = [...of, ...groups[name]];
        const until = open(spans, of);
        shares[name] = Math.max(until - before, 0);
        before = until;
      }
      return { rank, ...shares, idle: Math.max(wholeOf(spans) - before, 0), waited: open(spans, groups.waiting), longest };
    }),
  };
}

/** The seconds of span i that lie in a range. */
export function inRange(clock, range, i) {
  return Math.max(Math.min(clock.end[i], range.to) - Math.max(clock.start[i], range.from), 0);
}

/** Whether wait i is longer in the range than `other` (-1: none) or as long, and alone says for whom. */
function longer(clock, range, i, other) {
  const [own, before] = [i, other].map((one) => (one < 0 ? 0 : inRange(clock, range, one)));
  if (Math.abs(own - before) > clock.quantum) return own > before;
  return own > 0 && clock.waits.has(i) && !clock.waits.has(other);
}

/** Seconds covered by at least one of the intervals. */
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
