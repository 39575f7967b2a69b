// A schedule in words: an action, a gap and what it waits for, a side, a run; for hover, panels and screen readers.
import { DOES } from "../board/words.js";
import { besideWords, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { arrival, awaited, nameOf } from "./geometry.js";

/** @import { Hole, Measured, Side } from "./state.js" */

/** The result of a run.
 * @typedef {Measured & { error?: string, stopped?: string, late?: string, summary: string[], seconds: number, ratio:
 *   number, fraction: number, inside: number, peak: number }} Run */

export const RATIO = "bubble ratio: idle / busy";
export const FRACTION = "bubble fraction: idle / total";

/** An action in lines, the first its name. @type {(side: Side, i: number, run: Run | null) => string[]} */
export function actionLines(side, i, run) {
  const { rank, stage, microbatch, kind, start, end } = side;
  const chunk = side.chunks > 1 ? `, chunk ${side.chunk[stage[i]]}` : "";
  const lines = [
    nameOf(side, i),
    `${DOES[kind[i]]} of microbatch ${microbatch[i]} through stage ${stage[i]}`,
    `rank ${rank[i]}${chunk}: ${seconds(start[i])} to ${seconds(end[i])} (${seconds(end[i] - start[i])})`,
  ];
  const from = side.source[i];
  if (from >= 0) {
    lines.push(`receives from ${nameOf(side, from)} of rank ${rank[from]} at ${seconds(arrival(side, i))}`);
  }
  if (side.half[i]) lines.push(`runs at the same time as ${nameOf(side, side.half[i] === 1 ? i + 1 : i - 1)}`);
  if (side.path.includes(i)) lines.push("on the critical path: if this action took longer, so would the step");
  const at = run?.start?.[i];
  if (run && at != null) {
    const took = run.length[i];
    lines.push(`measured: ${seconds(at)} to ${seconds(at + took)}, ${gap(at + took - end[i])}`);
  }
  return lines;
}

/** @type {(by: number) => string} */
function gap(by) {
  return `${seconds(Math.abs(by))} ${by < 0 ? "earlier" : "later"} than predicted`;
}

/** A gap in lines: nothing left, or what its rank waits for. @type {(side: Side, hole: Hole) => string[]} */
export function holeLines(side, hole) {
  const when = `${seconds(hole.to - hole.from)}, from ${seconds(hole.from)} to ${seconds(hole.to)}`;
  const lines = ["idle", `rank ${hole.rank}: ${when}`];
  if (hole.next < 0) return [...lines, "this rank is done and the last rank is not"];
  const { action, source } = awaited(side, hole) ?? { action: -1, source: -1 };
  if (source < 0) return lines;
  const ends = side.end[source];
  const next = `the ${hole.from === 0 ? "first" : "next"} action, ${nameOf(side, action)}`;
  const whom = `${nameOf(side, source)} of rank ${side.rank[source]}`;
  lines.push(`${next}, waits for ${whom}, which ends at ${seconds(ends)}`);
  if (arrival(side, action) > ends) lines.push(`the message then takes ${seconds(side.latency)}`);
  return lines;
}

/** The span that i receives from, or -1; with `last`, for an overlap the later one.
 * @type {(side: Side, i: number, last?: boolean) => number} */
export function causeOf(side, i, last = false) {
  if (i < 0) return -1;
  return last ? awaited(side, { next: i })?.source ?? -1 : side.source[i];
}

/** A side in a sentence. @type {(side: Side) => string} */
export function sideWords(side) {
  if (side.error) return side.error;
  const size = [`p = ${side.ranks}`, `m = ${side.microbatches}`, ...(side.chunks > 1 ? [`v = ${side.chunks}`] : [])];
  const most = `${Math.max(...side.peak)} ${side.chunks > 1 ? "chunks " : ""}in flight`;
  const bubble = `bubble ratio ${ratioWords(side)}`;
  return `${side.title} (${size.join(", ")}): ${seconds(side.makespan)}, ${bubble}, at most ${most}.`;
}

/** A side's bubble ratio, and its closed form where it has one. @type {(side: Side) => string} */
function ratioWords(/** @type {Side} */ { ratio, formula }) {
  if (!formula) return digits(ratio);
  if (digits(formula.ratio) === digits(ratio)) return `${formula.text} = ${digits(ratio)}`;
  return `${digits(ratio)} (by the formula ${formula.text} = ${digits(formula.ratio)})`;
}

/** The result of a run of a side, or why there is none: more ranks than `most`, unless that is 0.
 * @type {(run: Run | null, side: Side, most: number) => string} */
export function runWords(run, side, most) {
  if (most) return `At most ${most} ranks can be run here.`;
  return run ? outcome(run, () => [
    `Measured ${besideWords(run.seconds, side.makespan, seconds)}; `
      + `bubble ratio ${besideWords(run.ratio, side.ratio, digits)}.`,
  ]) : "";
}

/** The details of a run, where they fit. @type {(state: { run: Run | null }) => string} */
export function runDetails({ run }) {
  return run?.summary?.join(" ") ?? "";
}
