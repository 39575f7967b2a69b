// A timeline's state, read into columns: which spans lie in which slot, and their times by each clock.
import { clamp, column, texts, upTo } from "./base.js";

const NUMBERS = ["row", "flow", "rank", "step", "stage", "microbatch", "bucket", "nbytes", "chunk"];
const TEXTS = ["kind", "label", "name", "where", "fields"];
const ENDS = ["row", "tail", "head", "sender", "receiver", "src", "dst", "nbytes", "offset", "count"];
export const STRIP = 18; // pixels: the memory over a rank's first row
const SCREEN = 620; // pixels: rows are made lower, within reason, to fit

/** The scene of a state. A slot's spans are first to after-1, in order; a row knows its pixels. */
export function readScene(state) {
  const { count } = state;
  const units = (state.rows.at(-1)?.y ?? 0) + 1;
  const room = SCREEN - STRIP * state.memory.length;
  const pixels = state.pixels * clamp(room / (units * state.pixels), 0.62, 1);
  const span = { kinds: state.spans.kind };
  for (const name of NUMBERS) span[name] = column(state.spans[name], count);
  for (const name of TEXTS) span[name] = texts(state.spans[name], count);
  const message = { op: texts(state.messages.op, state.messages.shown) };
  for (const name of ENDS) message[name] = column(state.messages[name], state.messages.shown);

  let first = 0;
  const slots = state.slots.map((slot) => ({ ...slot, first, after: (first += slot.count) }));
  let strips = 0;
  const told = new Map(state.memory.map((own) => [own.rank, own]));
  const rows = state.rows.map((row, number) => {
    const memory = state.rows[number - 1]?.rank === row.rank ? null : told.get(row.rank);
    strips += memory ? STRIP : 0;
    return { ...row, memory, top: row.y * pixels + strips, middle: (row.y + 0.5) * pixels + strips };
  });
  const last = rows.at(-1);
  const slotOf = new Int32Array(count);
  slots.forEach((slot, number) => slotOf.fill(number, slot.first, slot.after));
  return {
    ...state, pixels, span, message, slots, rows, slotOf,
    kindOf: column(state.spans.kind.at, count),
    peak: state.memory.reduce((most, own) => own.held.reduce((a, b) => Math.max(a, b), most), 1),
    height: last ? last.top + pixels : pixels,
    messageCount: state.messages.shown,
    rowOf: new Map(span.row.map((row, place) => [row, place])),
    messageOf: new Map(message.row.map((row, place) => [row, place])),
    clocks: state.clocks.map((clock) => readClock(clock, count, state.messages.shown)),
  };
}

function readClock(clock, count, messages) {
  const { low, quantum } = clock;
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  times(column(clock.start, count), column(clock.length, count), low, quantum, start, end);
  const idle = clock.idle;
  const begin = new Float64Array(idle.count);
  const finish = new Float64Array(idle.count);
  times(column(idle.start, idle.count), column(idle.length, idle.count), low, quantum, begin, finish);
  const path = (times) => column(times, clock.critical.length).map((time) => low + time * quantum);
  const why = texts(clock.waits.why, clock.waits.span.length);
  const at = column(clock.waits.at, clock.waits.span.length);
  return {
    ...clock, start, end,
    sent: column(clock.sent, messages).map((time) => low + time * quantum),
    received: clock.received.map((time) => (time == null ? NaN : low + time * quantum)),
    path: { start: path(clock.path.start), end: path(clock.path.end) },
    turn: new Map(clock.critical.map((span, number) => [span, number])), // on the critical path
    waits: new Map(clock.waits.span.map((span, i) => [span, { why: why[i], at: at[i] }])),
    idle: {
      row: column(idle.row, idle.count), start: begin, end: finish,
      why: texts(idle.why, idle.count), at: column(idle.at, idle.count), count: idle.count,
    },
  };
}

/** Times from whole numbers of a quantum, each start as its distance from the one before. */
function times(starts, lengths, low, quantum, start, end) {
  let at = 0;
  for (let i = 0; i < starts.length; i++) {
    at += starts[i];
    start[i] = low + at * quantum;
    end[i] = low + (at + lengths[i]) * quantum;
  }
}

/** The spans of a slot that lie in part between two moments: the first, and the one after the last. */
export function within(slot, clock, from, to) {
  let first = upTo(clock.start, from, slot.first, slot.after);
  const seen = (i) => clock.end[i] > from || clock.start[i] === from; // one may have no length
  while (first > slot.first && seen(first - 1)) first--;
  return [first, upTo(clock.start, to, first, slot.after)];
}

/** The span before or after `place` on its row, in order of start, outer ones first; or -1. */
export function beside(scene, clock, place, forward) {
  const row = scene.slots[scene.slotOf[place]].row;
  const key = (i) => [clock.start[i], -clock.end[i], i];
  const before = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  const own = key(place);
  let best = -1;
  for (const slot of scene.slots) {
    if (slot.row !== row) continue;
    const [low, high] = around(slot, clock.start, own[0]);
    for (let i = low; i < high; i++) {
      const side = before(key(i), own);
      if (i === place || (forward ? side < 0 : side > 0)) continue;
      if (best < 0 || (forward ? before(key(i), key(best)) < 0 : before(key(i), key(best)) > 0)) best = i;
    }
  }
  return best;
}

/** The spans of a slot that start at a moment, with all at the last start before it and at the next after it. */
function around({ first, after }, start, moment) {
  let high = upTo(start, moment, first, after);
  let low = high;
  while (low > first && start[low - 1] === moment) low--;
  if (low > first) low--;
  while (low > first && start[low - 1] === start[low]) low--;
  if (high < after) high++;
  while (high < after && start[high] === start[high - 1]) high++;
  return [low, high];
}

/** The innermost span of a row at a moment, else the nearest one; or -1. */
export function at(scene, clock, row, time) {
  let best = -1;
  let distance = Infinity;
  for (const slot of scene.slots) {
    if (slot.row !== row) continue;
    const near = upTo(clock.start, time, slot.first, slot.after);
    for (const i of [near - 1, near]) {
      if (i < slot.first || i >= slot.after) continue;
      const away = Math.max(clock.start[i] - time, time - clock.end[i], 0);
      if (away <= distance) [best, distance] = [i, away]; // of two as near, the inner
    }
  }
  return best;
}
