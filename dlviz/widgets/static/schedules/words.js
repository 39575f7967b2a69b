// A schedule in words: an action, a gap and what it waits for, a side, a run; for hover, panels and listeners.
import { digits, seconds } from "../shared/numbers.js";
import { arrival, awaited, nameOf, receivers } from "./geometry.js";

export const RATIO = "bubble ratio: idle / busy";
export const FRACTION = "bubble fraction: idle / total";
const DOES = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };

/** An action in lines, the first its name. */
export function actionLines(side, i, run) {
  const { rank, stage, microbatch, kind, start, end } = side;
  const chunk = side.chunks > 1 ? `, chunk ${side.chunk[stage[i]]}` : "";
  const lines = [
    nameOf(side, i),
    `${DOES[kind[i]]} of microbatch ${microbatch[i]} through stage ${stage[i]}`,
    `rank ${rank[i]}${chunk}: ${seconds(start[i])} to ${seconds(end[i])} (${seconds(end[i] - start[i])})`,
  ];
  const from = side.source[i];
  if (from >= 0) lines.push(`receives from ${nameOf(side, from)} of rank ${rank[from]} at ${seconds(arrival(side, i))}`);
  if (side.half[i]) lines.push(`runs at the same time as ${nameOf(side, side.half[i] === 1 ? i + 1 : i - 1)}`);
  if (side.path.includes(i)) lines.push("on the critical path: if this action took longer, so would the step");
  if (run?.start?.[i] != null) {
    const [at, took] = [run.start[i], run.length[i]];
    lines.push(`measured: ${seconds(at)} to ${seconds(at + took)}, ${gap(at + took - end[i])}`);
  }
  return lines;
}

function gap(by) {
  return `${seconds(Math.abs(by))} ${by < 0 ? "earlier" : "later"} than predicted`;
}

/** A gap in lines: nothing left, or what its rank waits for. */
export function holeLines(side, hole) {
  const lines = ["idle", `rank ${hole.rank}: ${seconds(hole.to - hole.from)}, from ${seconds(hole.from)} to ${seconds(hole.to)}`];
  if (hole.next < 0) return [...lines, "this rank is done and the last rank is not"];
  const { action, source } = awaited(side, hole);
  if (source < 0) return lines;
  const ends = side.end[source];
  lines.push(`the ${hole.from === 0 ? "first" : "next"} action, ${nameOf(side, action)}, waits for ${nameOf(side, source)} of rank ${side.rank[source]}, which ends at ${seconds(ends)}`);
  if (arrival(side, action) > ends) lines.push(`the message then takes ${seconds(side.latency)}`);
  return lines;
}

/** The span that i receives from, or -1; with `last` of an overlap the one that comes last. */
export function causeOf(side, i, last = false) {
  if (i < 0) return -1;
  return last ? awaited(side, { next: i })?.source ?? -1 : side.source[i];
}

/** A side in a sentence. */
export function sideWords(side) {
  if (side.error) return side.error;
  const size = [`p = ${side.ranks}`, `m = ${side.microbatches}`, ...(side.chunks > 1 ? [`v = ${side.chunks}`] : [])];
  return `${side.title} (${size.join(", ")}): ${seconds(side.makespan)}, bubble ratio ${ratioWords(side)}, at most ${Math.max(...side.peak)} ${side.chunks > 1 ? "chunks " : ""}in flight.`;
}

/** A side's bubble ratio, and its closed form where it has one. */
function ratioWords({ ratio, formula }) {
  if (!formula) return digits(ratio);
  if (digits(formula.ratio) === digits(ratio)) return `${formula.text} = ${digits(ratio)}`;
  return `${digits(ratio)} (by the formula ${formula.text} = ${digits(formula.ratio)})`;
}

/** What a run came to, or why there is none. */
export function runWords({ run }, most) {
  if (most) return `At most ${most} ranks can be run here.`;
  if (!run) return "";
  if (run.error) return `The run failed: ${run.error}`;
  if (run.stopped) return run.stopped;
  return run.told.slice(0, 2).join(" ");
}

/** How it came to that: for where there is room. */
export function runDetails({ run }) {
  return run?.told?.slice(2).join(" ") ?? "";
}
