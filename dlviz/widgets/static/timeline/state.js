// A timeline's state, read into columns: which spans lie in which slot, and their times by each clock.
import { clamp, column, texts, upTo } from "../shared/arrays.js";

const NUMBERS = ["row", "flow", "rank", "step", "stage", "microbatch", "bucket", "nbytes", "chunk"];
const TEXTS = ["kind", "name", "where", "fields"];
const ENDS = ["row", "tail", "head", "sender", "receiver", "src", "dst", "nbytes", "offset", "count"];
const STRIP = [8, 18]; // pixels: the memory over a rank's first row, at least and at most
const ROOM = 262; // pixels: rows are made lower, within reason, to fit
const LOWEST = 0.45; // of a row's own height; more rows than fit are scrolled

/**
 * The scene of a state. A slot's spans are first to after-1, in order; a row knows its pixels from the
 * top of the first. A slot that is shown `once` lies above the rows: `heads` stand for its spans.
 */
export function readScene(state) {
  const { count } = state;
  const strip = clamp(Math.floor(ROOM / (2.2 * state.memory.length)), ...STRIP);
  const room = ROOM - strip * state.memory.length;
  const scale = clamp(room / Math.max(state.above + state.height, 1), LOWEST, 1);
  const span = { kinds: state.spans.kind };
  for (const name of NUMBERS) span[name] = column(state.spans[name], count);
  for (const name of TEXTS) span[name] = texts(state.spans[name], count);
  const labels = { at: state.spans.label.at, of: state.spans.label.of.map((forms) => forms.split("\n")) };
  span.label = texts(labels, count); // each its forms, the longest first
  const message = { op: texts(state.messages.op, state.messages.shown) };
  for (const name of ENDS) message[name] = column(state.messages[name], state.messages.shown);

  let strips = 0;
  const told = new Map(state.memory.map((own) => [own.rank, own]));
  const rows = state.rows.map((row, number) => {
    const memory = state.rows[number - 1]?.rank === row.rank ? null : told.get(row.rank);
    strips += memory ? strip : 0;
    const top = Math.round(row.top * scale) + strips;
    const bottom = Math.round((row.top + row.height) * scale) + strips;
    return { ...row, memory, top, bottom, middle: (top + bottom) / 2, strips };
  });
  let first = 0;
  const slots = state.slots.map((slot) => {
    const { strips: lower } = slot.once ? { strips: 0 } : rows[slot.row];
    const [top, bottom] = [slot.top, slot.bottom].map((edge) => Math.round(edge * scale) + lower);
    return { ...slot, first, after: (first += slot.count), top, bottom };
  });
  const slotOf = new Int32Array(count);
  slots.forEach((slot, number) => slotOf.fill(number, slot.first, slot.after));
  const drawn = state.heads.map((head) => ({ ...head, spans: head.spans.filter((i) => i >= 0) }));
  const heads = drawn.filter((head) => head.spans.length);
  return {
    ...state, scale, strip, span, message, slots, rows, slotOf, heads,
    headOf: new Map(heads.flatMap((head, number) => head.spans.map((i) => [i, number]))),
    above: Math.round(state.above * scale),
    kindOf: Int32Array.from(column(state.spans.kind.at, count)),
    kinds: state.spans.kind.of.length,
    open: new Set(state.unfinished),
    peak: state.memory.reduce((most, own) => own.held.reduce((a, b) => Math.max(a, b), most), 1),
    height: rows.at(-1)?.bottom ?? Math.round(state.height),
    messageCount: state.messages.shown,
    rowOf: new Map(span.row.map((row, place) => [row, place])),
    messageOf: new Map(message.row.map((row, place) => [row, place])),
    clocks: state.clocks.map((clock) => readClock(clock, count, state.messages.shown)),
  };
}

function readClock(clock, count, messages) {
  const { low, quantum, idle, gaps } = clock;
  const path = (times) => column(times, clock.critical.length).map((time) => low + time * quantum);
  const [whom, doing] = ["whom", "doing"].map((name) => texts(clock.waits[name], clock.waits.span.length));
  const at = column(clock.waits.at, clock.waits.span.length);
  return {
    ...clock, ...times(clock, count, clock),
    sent: column(clock.sent, messages).map((time) => low + time * quantum),
    received: clock.received.map((time) => (time == null ? NaN : low + time * quantum)),
    path: { start: path(clock.path.start), end: path(clock.path.end) },
    turn: new Map(clock.critical.map((span, number) => [span, number])), // on the critical path
    waits: new Map(clock.waits.span.map((span, i) => [span, { whom: whom[i], doing: doing[i], at: at[i] }])),
    idle: {
      ...times(idle, idle.count, clock), row: column(idle.row, idle.count),
      why: texts(idle.why, idle.count), at: column(idle.at, idle.count), count: idle.count,
    },
    gaps: { ...times(gaps, gaps.count, clock), row: column(gaps.row, gaps.count), count: gaps.count },
  };
}

/** Start and end from whole numbers of a quantum, each start as its distance from the one before. */
function times({ start: starts, length }, count, { low, quantum }) {
  const [starting, lengths] = [column(starts, count), column(length, count)];
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    at += starting[i];
    start[i] = low + at * quantum;
    end[i] = low + (at + lengths[i]) * quantum;
  }
  return { start, end };
}

/** When what is shown once begins on the first rank; it is drawn to the last rank's end, or the next one's begin. */
export function headTimes(scene, clock) {
  const found = scene.heads.map(({ spans, level }) => ({
    level,
    from: spans.reduce((least, i) => Math.min(least, clock.start[i]), Infinity),
    to: spans.reduce((most, i) => Math.max(most, clock.end[i]), -Infinity),
  }));
  return found.map((own, number) => {
    const next = found[number + 1];
    return { ...own, until: next?.level === own.level ? Math.min(own.to, Math.max(next.from, own.from)) : own.to };
  });
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
