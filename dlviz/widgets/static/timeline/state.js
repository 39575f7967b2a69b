// A timeline's state, read into columns: which spans lie in which slot, and their times by each clock.
import { clamp, column, texts } from "../shared/arrays.js";
import { GROUP_LINE, named } from "../shared/gantt/rows.js";

/** @import { Column } from "../shared/arrays.js" */
/** @import { Group, Head, Memory, Row, Rows, Slot, Times } from "../shared/gantt/rows.js" */
/** @import { Look, Style } from "../shared/theme.js" */

/** Columns of spans: `row` is the row in the Trace, `flow` the message, -1 for what a span lacks; `label` is its forms,
 * the longest first.
 * @typedef {Record<"row" | "flow" | "rank" | "step" | "stage" | "microbatch" | "bucket" | "nbytes" | "chunk",
 *   number[]> & Record<"kind" | "name" | "where" | "fields", string[]> & { label: string[][], kinds: { at: number |
 *   number[], of: string[] } }} Spans */

/** Columns of messages: the rows it leaves and reaches, the spans that carry it, its ends, bytes and cells.
 * @typedef {Record<"row" | "tail" | "head" | "sender" | "receiver" | "src" | "dst" | "nbytes" | "offset" | "count",
 *   number[]> & { op: string[] }} Messages */

/**
 * @typedef {object} Own
 * @property {string} title
 * @property {string[]} lines
 * @property {string[]} details
 * @property {string} trace
 * @property {Look} look
 * @property {Spans} span
 * @property {Messages} message
 * @property {(Style[] | undefined)[]} shades of each kind by chunk, where ranks have several
 * @property {Record<"compute" | "update" | "communication" | "other" | "waiting", string[]>} groups of kinds
 * @property {Record<string, { label: string, lines: [number, string, boolean][] }>} sources
 * @property {Group[]} rankGroups
 * @property {Memory[]} memory
 * @property {number} total spans, drawn or not
 * @property {string[]} short abbreviations in bars, and their meanings
 * @property {boolean} critical whether the critical path is shown at first
 * @property {number} messageCount
 * @property {Map<number, number>} rowOf the span of a row of the Trace
 * @property {Map<number, number>} messageOf
 * @property {Clock[]} clocks
 * @property {any} [beside] the state of another Trace, drawn below
 * @property {{ what: string, before: number, after: number }[]} [changes] seconds in this Trace and in that one
 */

/** @typedef {Rows & Own} Scene */

/** @typedef {{ whom: string, doing: string, at: number }} Wait `at`: the span that was waited for, or -1 */

/**
 * @typedef {object} Facts
 * @property {string} name
 * @property {string} axis
 * @property {string} summary the critical path in words
 * @property {Map<number, number>} turn the number of each span along the critical path
 * @property {Map<number, Wait>} waits
 * @property {Times["idle"] & { why: string[], at: number[] }} idle
 * @property {string[]} known how well the two times of each message compare, "" within one host
 * @property {Numbers | null} numbers of all spans, if not all are drawn
 */

/** Quanta of all spans by part: first the whole, then each of `steps`; by share, part and rank, and by kind in a part.
 * @typedef {{ steps: number[], ranks: number[], seconds: Record<string, number[][]>, kinds: Record<"part" | "count"
 *   | "total" | "min" | "max", number[]> & { kind: string[] } }} Numbers */

/** @typedef {Times & Facts} Clock */

/** @typedef {{ at: Column<number>, of: string[] }} Indexed */
/** @typedef {{ start: Column<number>, length: Column<number> }} Lasting whole numbers of a quantum */
/** @typedef {Lasting & { row: Column<number>, count: number }} Pauses */

/** A clock as Python wrote it.
 * @typedef {Omit<Clock, "waits"> & Lasting & { sent: Column<number>, received: (number | null)[], known: Indexed,
 *   critical: number[], path: { start: Column<number>, end: Column<number> }, waits: { span: number[], whom:
 *   Indexed, doing: Indexed, at: Column<number> }, waited: { span: number[], length: number[] }, idle: Pauses & {
 *   why: Indexed, at: Column<number> }, gaps: Pauses }} GivenClock */

/** @typedef {Omit<Row, "bottom" | "middle"> & { height: number }} GivenRow */
/** @typedef {Row & { strips: number }} ReadRow with the pixels of strips and names above it */
/** @typedef {{ row: number, count: number, top: number, bottom: number, once?: boolean }} GivenSlot */

/** A state as Python wrote it: `holders` are kinds whose spans only hold others.
 * @typedef {Pick<Scene, "count" | "above" | "height" | "memory" | "rankGroups" | "cycle" | "heads" | "title" |
 *   "lines" | "details" | "trace" | "look" | "groups" | "sources" | "total" | "short" | "critical" | "beside" |
 *   "changes"> & { spans: Record<string, any> & { kind: Indexed, label: Indexed }, rows: GivenRow[], slots:
 *   GivenSlot[], messages: Record<string, any> & { op: Indexed, shown: number }, clocks: GivenClock[], holders:
 *   string[], shades: Record<string, Style[]>, unfinished: number[] }} Given */

const NUMBERS = ["row", "flow", "rank", "step", "stage", "microbatch", "bucket", "nbytes", "chunk"];
const TEXTS = ["kind", "name", "where", "fields"];
const ENDS = ["row", "tail", "head", "sender", "receiver", "src", "dst", "nbytes", "offset", "count"];
const STRIP = [8, 18]; // pixels: the memory over a rank's first row, at least and at most
const ROOM = 262; // pixels: rows shrink, within reason, to fit
const LOWEST = 0.45; // of a row's own height; rows that do not fit scroll

/** The scene of a state. A slot's spans are first to after-1, in order; a row has its pixels from the top of the
 * first. A slot shown `once` lies above the rows and is drawn as `heads`. `pictures` share the room of one.
 * @type {(state: Given, pictures?: number) => Scene} */
export function readScene(state, pictures = state.beside ? 2 : 1) {
  const { count } = state;
  const room = ROOM / pictures;
  const strip = clamp(Math.floor(room / (2.2 * state.memory.length)), STRIP[0], STRIP[1]);
  const taken = strip * state.memory.length + GROUP_LINE * state.rankGroups.length;
  const scale = clamp((room - taken) / Math.max(state.above + state.height, 1), LOWEST, 1);
  const span = readSpans(state.spans, count);
  const message = readMessages(state.messages);
  const rows = readRows(state, strip, scale);
  const slots = readSlots(state.slots, rows, scale);
  const slotOf = new Int32Array(count);
  slots.forEach((slot, number) => slotOf.fill(number, slot.first, slot.after));
  const drawn = state.heads.map((head) => ({ ...head, spans: head.spans.filter((i) => i >= 0) }));
  const heads = drawn.filter((head) => head.spans.length);
  return {
    ...state, strip, span, message, slots, rows, slotOf, heads,
    shown: rows.map((_, number) => number), pinned: 0,
    labels: span.label, chunk: span.chunk, holds: span.kinds.of.map((kind) => state.holders.includes(kind)),
    headOf: new Map(heads.flatMap((head, number) => head.spans.map((i) => [i, number]))),
    above: Math.round(state.above * scale),
    kindOf: Int32Array.from(column(state.spans.kind.at, count)),
    kinds: state.spans.kind.of.length,
    shades: state.spans.kind.of.map((kind) => state.shades[kind]),
    open: new Set(state.unfinished),
    peak: state.memory.reduce((most, own) => own.held.reduce((a, b) => Math.max(a, b), most), 1),
    height: rows.at(-1)?.bottom ?? Math.round(state.height),
    messageCount: state.messages.shown,
    arrows: { tail: message.tail, head: message.head, flow: span.flow, count: state.messages.shown },
    rowOf: new Map(span.row.map((row, place) => [row, place])),
    messageOf: new Map(message.row.map((row, place) => [row, place])),
    clocks: state.clocks.map((clock) => readClock(clock, count, state.messages.shown)),
  };
}

/** @type {(spans: Given["spans"], count: number) => Spans} */
function readSpans(spans, count) {
  /** @type {any} */
  const span = { kinds: spans.kind };
  for (const name of NUMBERS) span[name] = column(spans[name], count);
  for (const name of TEXTS) span[name] = texts(spans[name], count);
  span.label = texts({ at: spans.label.at, of: spans.label.of.map((forms) => forms.split("\n")) }, count);
  return span;
}

/** @type {(messages: Given["messages"]) => Messages} */
function readMessages(messages) {
  /** @type {any} */
  const message = { op: texts(messages.op, messages.shown) };
  for (const name of ENDS) message[name] = column(messages[name], messages.shown);
  return message;
}

/** The rows, the first of each rank under the strip of its memory and its group's name; `strips` are the pixels of
 * all these so far. @type {(state: Given, strip: number, scale: number) => ReadRow[]} */
function readRows(state, strip, scale) {
  let strips = 0;
  const memoryOf = new Map(state.memory.map((own) => [own.rank, own]));
  return state.rows.map((row, number) => {
    const memory = state.rows[number - 1]?.rank === row.rank ? null : memoryOf.get(row.rank);
    strips += (memory ? strip : 0) + (named(state.rows, number, number - 1) ? GROUP_LINE : 0);
    const top = Math.round(row.top * scale) + strips;
    const bottom = Math.round((row.top + row.height) * scale) + strips;
    return { ...row, memory, top, bottom, middle: (top + bottom) / 2, strips };
  });
}

/** @type {(slots: GivenSlot[], rows: ReadRow[], scale: number) => Slot[]} */
function readSlots(slots, rows, scale) {
  let first = 0;
  return slots.map((slot) => {
    const lower = slot.once ? 0 : rows[slot.row].strips;
    const [top, bottom] = [slot.top, slot.bottom].map((edge) => Math.round(edge * scale) + lower);
    return { ...slot, first, after: (first += slot.count), top, bottom };
  });
}

/** @type {(clock: GivenClock, count: number, messages: number) => Clock} */
function readClock(clock, count, messages) {
  const { low, quantum, idle, gaps } = clock;
  /** @type {(time: number) => number} */
  const moment = (time) => low + time * quantum;
  const own = times(clock, count, clock);
  /** @type {(times: Column<number>) => number[]} */
  const path = (times) => column(times, clock.critical.length).map(moment);
  const [whom, doing] = [clock.waits.whom, clock.waits.doing].map((one) => texts(one, clock.waits.span.length));
  const at = column(clock.waits.at, clock.waits.span.length);
  return {
    ...clock, ...own,
    sent: column(clock.sent, messages).map(moment),
    known: texts(clock.known, messages),
    received: clock.received.map((time) => (time == null ? NaN : moment(time))),
    path: { start: path(clock.path.start), end: path(clock.path.end) },
    turn: new Map(clock.critical.map((span, number) => [span, number])), // on the critical path
    waits: new Map(clock.waits.span.map((span, i) => [span, { whom: whom[i], doing: doing[i], at: at[i] }])),
    waited: new Map(clock.waited.span.map((span, i) => [span, own.start[span] + clock.waited.length[i] * quantum])),
    idle: {
      ...times(idle, idle.count, clock), row: column(idle.row, idle.count),
      why: texts(idle.why, idle.count), at: column(idle.at, idle.count), count: idle.count,
    },
    gaps: { ...times(gaps, gaps.count, clock), row: column(gaps.row, gaps.count), count: gaps.count },
  };
}

/** Start and end in seconds, from whole numbers of a quantum; a start is given as the distance from the previous one.
 * @type {(lasting: Lasting, count: number, clock: Pick<Clock, "low" | "quantum">) => Pick<Times, "start" | "end">} */
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
