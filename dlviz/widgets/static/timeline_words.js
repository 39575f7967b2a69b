// A timeline in words: a span, a wait and why, idle time, a message; for hover, panels and listeners.
import { bytes, moment, seconds, upTo } from "./base.js";

const NUMBERS = ["step", "stage", "microbatch", "bucket"];

/** Kind and whole name of a span. */
export function titleOf(scene, i) {
  const { kind, name, label, microbatch } = scene.span;
  if (name[i]) return name[i] !== kind[i] ? `${kind[i]}: ${name[i]}` : label[i];
  return label[i].endsWith(microbatch[i]) ? `${kind[i]} ${microbatch[i]}` : label[i];
}

/** The row's name, on which a span lies. */
export function rowOf(scene, i) {
  return scene.rows[scene.slots[scene.slotOf[i]].row].label;
}

/** Step, stage, microbatch and bucket of a span, as far as it has them. */
export function numbersOf(scene, i) {
  return NUMBERS.filter((name) => scene.span[name][i] >= 0).map((name) => `${name} ${scene.span[name][i]}`).join(", ");
}

/**
 * Why a span waited, link by link: whom it waited for and what that one was doing; where that one
 * waited as well, what the one it waited for was doing in turn. Each link has words and the span it leads to (or -1).
 */
export function whyOf(scene, clock, i) {
  const links = [];
  const seen = new Set([i]);
  for (let wait = clock.waits.get(i); wait; wait = clock.waits.get(links.at(-1).at)) {
    links.push({ words: links.length ? wait.why.replace(/^for [^;]+; /, "") : wait.why, at: wait.at });
    if (seen.has(wait.at)) links.push({ words: "these waits lead back to one named above", at: -1 });
    seen.add(wait.at);
  }
  return links;
}

export function waited(scene, clock, i) {
  const links = whyOf(scene, clock, i);
  const why = links.length > 3 ? [links[0], { words: "and so on" }, links.at(-1)] : links;
  return why.length ? `waited ${seconds(clock.end[i] - clock.start[i])} ${why.map((link) => link.words).join("; ")}` : "";
}

/** How late a span of a paced run ended: by how much the wall clock was after the device's. */
export function lateness(scene, i) {
  const by = Object.fromEntries(scene.clocks.map((one) => [one.name, one]));
  return seconds(by.wall.end[i] - by.device.end[i]);
}

/** A span in lines, the first its title. */
export function spanLines(scene, clock, i, unit) {
  const lines = [titleOf(scene, i), `${rowOf(scene, i)}: ${seconds(clock.end[i] - clock.start[i])}, from ${moment(clock.start[i], unit)}`];
  const { nbytes, fields, where } = scene.span;
  return [
    ...lines, numbersOf(scene, i), waited(scene, clock, i),
    clock.turn.has(i) ? "on the critical path" : "",
    scene.clocks.length > 1 ? `late by ${lateness(scene, i)}` : "",
    nbytes[i] >= 0 ? bytes(nbytes[i]) : "", fields[i], placeOf(scene, where[i]),
  ].filter(Boolean);
}

/** Idle time in lines. */
export function idleLines(scene, clock, i, unit) {
  const { idle } = clock;
  const own = scene.rows[idle.row[i]].label;
  return ["idle", `${own}: ${seconds(idle.end[i] - idle.start[i])}, from ${moment(idle.start[i], unit)}`, idle.why[i]];
}

/** What a row's rank holds at a moment, in lines. */
export function memoryLines(row, time, unit) {
  const held = row.memory.held[upTo(row.memory.time, time) - 1] ?? 0;
  const peak = row.memory.held.reduce((a, b) => Math.max(a, b), 0);
  return ["memory", `rank ${row.rank} holds ${amountOf(row.memory, held)} at ${moment(time, unit)}`, `at most ${amountOf(row.memory, peak)}`];
}

/** What is held in words: bytes or, in a simulation, microbatches. */
export function amountOf(memory, held) {
  if (!memory.counts) return bytes(held);
  return `${held} microbatch${held === 1 ? "" : "es"}`;
}

/** A message in lines. */
export function messageLines(scene, clock, i, unit) {
  const { src, dst, nbytes, offset, count, op } = scene.message;
  const got = clock.received[i];
  const cells = count[i] === 1 ? `cell ${offset[i]}` : `cells ${offset[i]}–${offset[i] + count[i] - 1}`;
  return [
    `message rank ${src[i]} → rank ${dst[i]}`,
    nbytes[i] >= 0 ? bytes(nbytes[i]) : "",
    offset[i] >= 0 ? `${cells}, ${op[i]}` : "",
    `sent at ${moment(clock.sent[i], unit)}`,
    Number.isNaN(got) ? "never received" : `received at ${moment(got, unit)}`,
  ].filter(Boolean);
}

/** A line of source: the name of its cell or file, and the line. */
export function placeOf(scene, where) {
  const [, file, line] = where.match(/^(.*):(\d+)$/) ?? [];
  const label = scene.sources[file]?.label;
  return label ? `${label}, line ${line}` : where.split(/[/\\]/).at(-1);
}
