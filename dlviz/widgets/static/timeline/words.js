// A timeline in words: a span, a wait and why, idle time, a message; for hover, panels and screen readers.
import { clamp, upTo } from "../shared/arrays.js";
import { bytes, seconds, unitOf } from "../shared/numbers.js";

/** @import { Memory, Row } from "../shared/gantt/rows.js" */
/** @import { Target } from "../shared/gantt/hit.js" */
/** @import { Clock, Scene, Wait } from "./state.js" */

/** @type {("step" | "stage" | "microbatch" | "bucket")[]} */
const NUMBERS = ["step", "stage", "microbatch", "bucket"];
const LONGEST = 6; // links shown of a chain of waits: the first ones, and the last with its cause
const FINEST = 1e-5; // of the run: the precision of moments, or finer if a short span needs it

/** Kind and whole name of a span. @type {(scene: Scene, i: number) => string} */
export function titleOf(scene, i) {
  const { kind, name, label, microbatch } = scene.span;
  const what = kindName(kind[i]);
  if (name[i] && name[i] !== kind[i]) return `${what}: ${name[i]}`;
  return microbatch[i] >= 0 ? `${what} ${microbatch[i]}` : label[i][0];
}

/** The readers' name of a kind of span; any other name unchanged. @type {(kind: string) => string} */
export function kindName(kind) {
  return { backward_input: "input gradient", backward_weight: "weight gradient" }[kind] ?? kind;
}

/** How moments of a clock are written: in the unit of its axis, to as many digits as matter. `least`: the shortest
 * time to be visible (s).
 * @type {(clock: { low: number, high: number }, least?: number) => (moment: number) => string} */
export function momentOf({ low, high }, least = Infinity) {
  const [name, size] = unitOf(Math.max(Math.abs(low), Math.abs(high)));
  const fine = Math.min((high - low) * FINEST, least > 0 ? least / 10 : Infinity);
  const digits = clamp(Math.ceil(-Math.log10(fine / size)), 0, 9);
  /** @type {(value: number) => string} */
  const number = (value) => (value / size).toLocaleString("en", { maximumFractionDigits: digits });
  return (value) => `${number(value)} ${name}`;
}

/** How long a span took. @type {(scene: Scene, clock: Clock, i: number) => string} */
export function tookOf(scene, clock, i) {
  return scene.open.has(i) ? "never ended" : seconds(clock.end[i] - clock.start[i]);
}

/** A row's name, and where its rank is: on which host, in which rack.
 * @type {(scene: Scene, number: number) => string} */
export function rowName({ rows, rankGroups }, number) {
  const { label, group = -1 } = rows[number];
  return group < 0 ? label : `${label} ${rankGroups[group].where}`;
}

/** The name of the row on which a span lies. @type {(scene: Scene, i: number) => string} */
export function rowOf(scene, i) {
  return rowName(scene, scene.slots[scene.slotOf[i]].row);
}

/** Step, stage, microbatch and bucket of a span, if it has them. @type {(scene: Scene, i: number) => string} */
export function numbersOf(scene, i) {
  return NUMBERS.filter((name) => scene.span[name][i] >= 0).map((name) => `${name} ${scene.span[name][i]}`).join(", ");
}

/** Why a span waited, link by link: for whom, and what that rank was doing; if it waited too, for whom. `at` is the
 * span a link leads to (or -1). In a long chain `left` links before the last one are left out. `more` says how an
 * endless chain goes on.
 * @type {(scene: Scene, clock: Clock, i: number) => { links: Wait[], left: number, more: string }} */
export function whyOf(scene, clock, i) {
  const links = [];
  const seen = new Set([i]);
  let wait = clock.waits.get(i);
  let more = "";
  for (; wait && !more; wait = clock.waits.get(wait.at)) {
    links.push(wait);
    if (seen.has(wait.at)) more = "they wait for each other";
    seen.add(wait.at);
  }
  const left = Math.max(links.length - LONGEST, 0);
  links.splice(LONGEST - 1, left);
  return { links, left, more };
}

/** A wait in a sentence: for whom, for whom that rank waited, and what the last one was doing.
 * @type {(scene: Scene, clock: Clock, i: number) => string} */
export function waited(scene, clock, i) {
  const { links, left, more } = whyOf(scene, clock, i);
  if (!links.length) return "";
  const how = scene.open.has(i) ? "waits" : `waited ${seconds(clock.end[i] - clock.start[i])}`;
  const names = links.map(({ whom }) => whom);
  const chain = (left ? names.toSpliced(-1, 0, "…") : names).join(" ← ");
  return `${how} for ${chain}${more ? ` ← …: ${more}` : `; ${links[links.length - 1].doing}`}`;
}

/** How late a span of a paced run ended: wall clock minus device clock. @type {(scene: Scene, i: number) => string} */
export function lateness(scene, i) {
  const by = Object.fromEntries(scene.clocks.map((one) => [one.name, one]));
  return seconds(by.wall.end[i] - by.device.end[i]);
}

/** What is shown once for all ranks: from when to when, on which rank first and last.
 * @type {(scene: Scene, clock: Clock, head: number) => string} */
export function headLine(scene, clock, head) {
  const { spans } = scene.heads[head];
  /** @type {(times: ArrayLike<number>, sign: number) => number} */
  const by = (times, sign) => spans.reduce((best, i) => (sign * (times[i] - times[best]) > 0 ? i : best));
  const [first, last] = [by(clock.start, -1), by(clock.end, 1)];
  const moment = momentOf(clock);
  const [begins, ends] = [`rank ${scene.span.rank[first]} begins`, `rank ${scene.span.rank[last]} ends`];
  return `on all ranks: from ${moment(clock.start[first])} (${begins}) to ${moment(clock.end[last])} (${ends})`;
}

/** A span in lines, the first its title. @type {(scene: Scene, clock: Clock, i: number) => string[]} */
export function spanLines(scene, clock, i) {
  const begin = momentOf(clock, clock.end[i] - clock.start[i])(clock.start[i]);
  const { nbytes, fields, where } = scene.span;
  return [
    titleOf(scene, i), `${rowOf(scene, i)}: ${tookOf(scene, clock, i)}, from ${begin}`,
    numbersOf(scene, i), waited(scene, clock, i),
    clock.turn.has(i) ? "on the critical path" : "",
    scene.clocks.length > 1 ? `late by ${lateness(scene, i)}` : "",
    nbytes[i] >= 0 ? bytes(nbytes[i]) : "", fields[i], placeOf(scene, where[i]),
  ].filter(Boolean);
}

/** Idle time in lines. @type {(scene: Scene, clock: Clock, i: number) => string[]} */
export function idleLines(scene, clock, i) {
  const { idle } = clock;
  const lasted = idle.end[i] - idle.start[i];
  const begin = momentOf(clock, lasted)(idle.start[i]);
  return ["idle", `${rowName(scene, idle.row[i])}: ${seconds(lasted)}, from ${begin}`, idle.why[i]];
}

/** What is not drawn, in lines. @type {(scene: Scene, clock: Clock, i: number) => string[]} */
function gapLines(scene, clock, i) {
  const { row, start, end } = clock.gaps;
  const hidden = (scene.total - scene.count).toLocaleString("en");
  const lasted = `${seconds(end[i] - start[i])}, from ${momentOf(clock)(start[i])}`;
  const why = `The ${hidden} shortest spans are left out of the picture.`;
  return ["not drawn", `${rowName(scene, row[i])}: ${lasted}`, why];
}

/** What a row's rank holds at a moment, in lines.
 * @type {(row: Row & { memory: Memory }, time: number, clock: Clock) => string[]} */
function memoryLines(row, time, clock) {
  const at = upTo(row.memory.time, time) - 1;
  const held = row.memory.held[at] ?? 0;
  const uses = Object.entries(row.memory.uses).filter(([, held]) => held[at])
    .map(([use, held]) => `${use} ${amountOf(row.memory, held[at])}`);
  const peak = row.memory.held.reduce((a, b) => Math.max(a, b), 0);
  const now = `rank ${row.rank} holds ${amountOf(row.memory, held)} at ${momentOf(clock)(time)}`;
  return ["memory", now, ...uses, `at most ${amountOf(row.memory, peak)}`];
}

/** What is held, in words: bytes or, in a simulation, microbatches.
 * @type {(memory: { counts: boolean }, held: number) => string} */
export function amountOf(memory, held) {
  if (!memory.counts) return bytes(held);
  return `${held} microbatch${held === 1 ? "" : "es"}`;
}

/** A message in lines. @type {(scene: Pick<Scene, "message" | "span">, clock: Clock, i: number) => string[]} */
export function messageLines(scene, clock, i) {
  const { src, dst, nbytes, offset, count, op } = scene.message;
  const [sent, got] = [clock.sent[i], clock.received[i]];
  const moment = momentOf(clock, got - sent || Infinity);
  const cells = count[i] === 1 ? `cell ${offset[i]}` : `cells ${offset[i]}–${offset[i] + count[i] - 1}`;
  return [
    `message rank ${src[i]} → rank ${dst[i]}`,
    nbytes[i] >= 0 ? bytes(nbytes[i]) : "",
    offset[i] >= 0 ? `${cells}, ${op[i]}` : "",
    `sent at ${moment(sent)}`,
    Number.isNaN(got) ? "never received" : `received at ${moment(got)}`,
    clock.known[i],
  ].filter(Boolean);
}

/** What lies under the pointer, at `time`, in lines.
 * @type {(scene: Scene, clock: Clock, target: Target, time: number) => string[]} */
export function linesOf(scene, clock, target, time) {
  const { message, end, summary, lost, idle, gap, memory, head, group, span = -1 } = target;
  if (message != null) return [...messageLines(scene, clock, message), `click: the ${end}`];
  if (summary) return ["waits for ever", summary];
  if (lost != null) return ["rank lost", clock.lost[lost].summary];
  if (idle != null) return idleLines(scene, clock, idle);
  if (gap != null) return gapLines(scene, clock, gap);
  if (group != null) return scene.rankGroups[group].summary;
  if (memory) return memoryLines(/** @type {any} */ (memory), time, clock);
  if (head != null) return [titleOf(scene, span), headLine(scene, clock, head)];
  return spanLines(scene, clock, span);
}

/** A line of source: the name of its cell or file, and the line. @type {(scene: Scene, where: string) => string} */
export function placeOf(scene, where) {
  const [, file, line] = where.match(/^(.*):(\d+)$/) ?? [];
  const label = scene.sources[file]?.label;
  return label ? `${label}, line ${line}` : where.split(/[/\\]/).at(-1) ?? where;
}
