// A drawing as a side of the explorer of schedules: its order at the earliest times, in the form that
// dlviz/widgets/schedules/pipelines.py makes from a simulated Trace.
import { laidOut, rowsOf } from "./drawing.js";
import { arrivals, chunkOf, lasting } from "./pipeline.js";

/** @import { Drawing } from "./drawing.js" */
/** @import { Pipeline } from "./pipeline.js" */
/** @import { Style } from "./state.js" */

/** An F, B, I or W; an overlap is two spans, half 1 and 2. `start` and `end` in slots; `source`: the span whose
 * result it receives from another stage, or -1. @typedef {{ name: string, rank: number, stage: number, kind: string,
 * microbatch: number, start: number, end: number, half: number, source: number }} Span */

/** The columns of a drawing without faults that has an action.
 * @type {(drawn: Drawing, shades: Record<string, Style[]>) => object} */
export function pictureOf(drawn, shades) {
  const { pipeline } = drawn;
  const { slot, latency } = pipeline;
  const tight = laidOut(pipeline, rowsOf(drawn));
  const spans = spansOf(tight);
  const held = heldBy(spans, pipeline.ranks);
  const work = tight.placed.reduce((sum, { action }) => sum + lasting(pipeline, action), 0);
  const total = tight.end * slot;
  const digits = 8 - Math.floor(Math.log10(total));
  const seconds = (/** @type {number} */ slots) => Number((slots * slot).toFixed(Math.min(Math.max(digits, 0), 100)));
  const kinds = spans.map(({ kind }) => kind).join("");
  const stages = pipeline.stages.map((_, stage) => stage);
  const chunk = stages.map((stage) => chunkOf(pipeline, stage));
  return {
    ranks: pipeline.ranks,
    microbatches: Math.max(...spans.map(({ microbatch }) => microbatch)) + 1,
    chunks: Math.max(...chunk) + 1,
    chunk,
    counts: held.map((_, rank) => spans.filter((span) => span.rank === rank).length),
    kind: kinds,
    stage: spans.map(({ stage }) => stage),
    microbatch: spans.map(({ microbatch }) => microbatch),
    shades: Object.fromEntries(Object.entries(shades).filter(([kind]) => kinds.includes(kind))),
    start: spans.map(({ start }) => seconds(start)),
    length: spans.map(({ start, end }) => seconds(end - start)),
    half: spans.map(({ half }) => half),
    source: spans.map(({ source }) => source),
    path: criticalPath(spans, pipeline),
    held: {
      counts: held.map(({ length }) => length),
      time: held.flat().map(([time]) => seconds(time)),
      many: held.flat().map(([, many]) => many),
    },
    latency: latency * slot,
    makespan: total,
    ratio: (tight.end * pipeline.ranks) / work - 1,
    fraction: 1 - work / (tight.end * pipeline.ranks),
    inside: seconds(Math.max(...held.map((_, rank) => idleInside(spans.filter((span) => span.rank === rank))))),
    peak: held.map((many) => Math.max(0, ...many.map(([, each]) => each))),
    formula: null,
    remark: "",
  };
}

/** Rank by rank, in the order of their starts. @type {(tight: Drawing) => Span[]} */
function spansOf({ pipeline, placed, grid }) {
  const ordered = placed.toSorted((one, other) => one.rank - other.rank || one.slot - other.slot);
  const spans = ordered.flatMap(({ action, rank, slot }) => {
    const end = slot + lasting(pipeline, action);
    const both = action.halves.length > 1;
    return action.halves.map(({ text, stage, kind, microbatch }, i) =>
      ({ name: text, rank, stage, kind, microbatch, start: slot, end, half: both ? i + 1 : 0, source: -1 }));
  });
  const places = new Map(spans.map(({ name }, i) => [name, i]));
  const halves = ordered.flatMap(({ action }) => action.halves);
  spans.forEach((span, i) => {
    if (span.kind === "W") return;
    const received = arrivals(grid, halves[i]).flatMap(({ choice }) => choice)
      .find(({ stage, text }) => stage !== span.stage && places.has(text));
    if (received) span.source = places.get(received.text) ?? -1;
  });
  return spans;
}

/** For each rank the times at which the number of microbatches it holds changes, and the number from then on.
 * @type {(spans: Span[], ranks: number) => [time: number, many: number][][]} */
function heldBy(spans, ranks) {
  const releases = spans.some(({ kind }) => kind !== "F") ? "BW" : "F";
  return Array.from({ length: ranks }, (_, rank) => {
    /** @type {Map<number, number>} */
    const changes = new Map();
    const change = (/** @type {number} */ time, /** @type {number} */ by) =>
      changes.set(time, (changes.get(time) ?? 0) + by);
    for (const { kind, start, end } of spans.filter((span) => span.rank === rank)) {
      if (kind === "F") change(start, 1);
      if (releases.includes(kind)) change(end, -1);
    }
    let many = 0;
    return [...changes].sort(([one], [other]) => one - other).map(([time, by]) => [time, many += by]);
  });
}

/** The idle slots of a rank between its first action and its last. @type {(spans: Span[]) => number} */
function idleInside(spans) {
  if (!spans.length) return 0;
  const work = spans.reduce((sum, { start, end, half }) => sum + (half === 2 ? 0 : end - start), 0);
  return Math.max(...spans.map(({ end }) => end)) - spans[0].start - work;
}

/** The critical path: from the last span back to what each waited for.
 * @type {(spans: Span[], pipeline: Pipeline) => number[]} */
function criticalPath(spans, { latency }) {
  const last = Math.max(...spans.map(({ end }) => end));
  const path = [];
  for (let at = spans.findIndex(({ end }) => end === last); at >= 0;) {
    path.unshift(at);
    const { half, rank } = spans[at];
    const first = half === 2 ? at - 1 : at;
    let to = first - 1;
    if (spans[to]?.rank !== rank) to = -1;
    else if (spans[to].half === 2 && half !== 2) to -= 1; // both halves end together: the one on its own lane
    let until = to < 0 ? -Infinity : spans[to].end;
    for (const one of half ? [at, half === 1 ? at + 1 : first] : [at]) {
      const { source } = spans[one];
      if (source < 0 || spans[source].rank === rank || spans[source].end + latency <= until) continue;
      [to, until] = [source, spans[source].end + latency];
    }
    at = to;
  }
  return path;
}
