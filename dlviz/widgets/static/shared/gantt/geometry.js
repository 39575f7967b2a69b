// Rows of bars as plain numbers: a pure function of the rows, their times and the part in view.
import { clamp, upTo } from "../arrays.js";
import { scaleLinear, timeTicks } from "../scale.js";
import { columns } from "./columns.js";
import { GROUP_LINE, headTimes, named, within } from "./rows.js";

/** @import { Scale } from "../scale.js" */
/** @import { Memory, Row, Rows, Slot, Intervals, Times } from "./rows.js" */

export const IDLE = -1; // idle time, among the hidden kinds
export const ARROWS = 150; // messages in view; beyond that only the selection's are drawn
const CHARACTER = 0.58; // of a label's size: the width of a character
const [SIZE, SMALL] = [11, 9]; // pixels: of a label; of a number where it has little room
const NARROWEST = 6; // pixels: a bar with a label
const NUMBER = /^\d+$/;
const APART = 3; // pixels: names of neighbours do not read as one word

/**
 * The part in view and the selection: times in seconds, the rest in pixels; `top` and `height` are the part of the
 * rows' height in view.
 * @typedef {object} View
 * @property {number} from
 * @property {number} to
 * @property {number} width
 * @property {number} top
 * @property {number} height
 * @property {Set<number>} [hidden] kinds, and IDLE
 * @property {boolean} arrows whether all messages are drawn, or only the selection's
 * @property {boolean} critical the critical path
 * @property {number} span that is selected, -1 for none
 * @property {number} message that is selected
 * @property {number} [hover] the span under the pointer
 * @property {Uint8Array | null} [matches] for each span whether a search found it
 */

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @typedef {{ x1: number, y1: number, x2: number, y2: number }} Line */
/** @typedef {Line & { never: boolean, message: number }} Arrow */
/** @typedef {{ text: string, x: number, y: number, size: number }} Label */
/** @typedef {Box & { kind: number, span?: number }} Outlined */

/**
 * All that is drawn. `bars[kind]` holds x, y, width, height and span, one after the other; likewise `found` for matches
 * of a search and `waited` for the waiting parts of spans, both drawn over the others.
 * @typedef {object} DrawList
 * @property {number[][]} bars
 * @property {number[][]} found
 * @property {number[]} waited
 * @property {(Label & { span: number, waiting: boolean })[]} labels in the longer part of a bar whose span waited
 * @property {(Box & { head: number, kind: number, spans: number[], label: Label | null })[]} heads
 * @property {Outlined | null} chosen
 * @property {Outlined | null} hovered
 * @property {{ x: number, y: number, height: number, span: number }[]} open
 * @property {(Box & { place: number })[]} idle
 * @property {(Box & { place: number })[]} gaps
 * @property {{ row: Row, corners: [number, number][], base: number, top: number }[]} memory
 * @property {(Line & { summary: string })[]} cycle
 * @property {{ x: number, top: number, bottom: number, place: number }[]} lost lines with a cross over a rank's rows
 * @property {{ text: string, x: number, y: number }[]} remarks in rows without bars
 * @property {{ y: number, height: number, group: number }[]} groups lines over rows with the name of their group
 * @property {(Box & { line?: Line })[]} path
 * @property {{ x: number, label: string }[]} ticks
 * @property {Arrow[]} arrows
 * @property {number} messagesInView
 * @property {number} messagesLeftOut
 */

/** The draw list of the part in view, whose top is y = 0; what is shown once for all ranks lies above, at negative
 * y. @type {(rows: Rows, times: Times, view: View) => DrawList} */
export function drawList(rows, times, view) {
  const x = scaleLinear([view.from, view.to], [0, view.width]);
  /** @type {DrawList["labels"]} */
  const labels = [];
  const gaps = new Set(); // the series with a number that does not fit
  const bars = barsIn(rows, times, view, null, (left, right, slot, y, i) => {
    const until = times.waited.get(i);
    const [from, to, waiting] = until == null ? [left, right, false] : longer(left, x(until), right);
    const label = labelIn(rows.labels[i], from, to, slot.bottom - slot.top, view.width);
    if (label) labels.push({ ...label, span: i, y: y + (slot.bottom - slot.top) / 2, waiting });
    else if (left >= 0 && right <= view.width) gaps.add(series(rows, i));
  });
  const heads = headsIn(rows, times, view, x);
  const list = {
    bars, heads,
    labels: labels.filter(({ span }) => !NUMBER.test(lastForm(rows, span)) || !gaps.has(series(rows, span))),
    found: view.matches ? barsIn(rows, times, view, view.matches) : [],
    waited: waitedIn(rows, times, view, x),
    chosen: boxOf(rows, times, view, x, heads, view.span),
    hovered: boxOf(rows, times, view, x, heads, view.hover ?? -1),
    open: openIn(rows, times, view, x),
    idle: view.hidden?.has(IDLE) ? [] : intervalsIn(rows, times.idle, view, x),
    gaps: intervalsIn(rows, times.gaps, view, x),
    memory: rows.rows.flatMap((row, number) => (times.memory && row.memory && inView(rows, view, number)
      ? strip(rows, row, row.memory, view, x) : [])),
    cycle: cycleIn(rows, view),
    lost: lostIn(rows, times, view, x),
    remarks: remarksIn(rows, view),
    groups: groupsIn(rows, view),
    path: view.critical ? pathIn(rows, times, view, x) : [],
    ticks: timeTicks(x),
  };
  return { ...list, ...arrowsIn(rows, times, view, x) };
}

/** The row and kind of a span: a series shows all of its numbers or none, as 0 2 4 would read as an order.
 * @type {(rows: Rows, i: number) => string} */
function series(rows, i) {
  return `${rows.slotOf[i]} ${rows.kindOf[i]}`;
}

/** @type {(rows: Rows, i: number) => string} */
function lastForm(rows, i) {
  return rows.labels[i].at(-1) ?? "";
}

/** The longer part of a bar whose span waited until `middle`, and whether that is the wait.
 * @type {(left: number, middle: number, right: number) => [from: number, to: number, waiting: boolean]} */
function longer(left, middle, right) {
  return middle - left > right - middle ? [left, middle, true] : [middle, right, false];
}

/** Whether a row is in view; a scrolled row under pinned ones is not.
 * @type {(rows: Rows, view: View, number: number) => boolean} */
function inView(rows, view, number) {
  const { top, bottom, hidden, pinned } = rows.rows[number];
  if (hidden || pinned) return !hidden;
  const upper = rows.pinned ? top - rows.pinned : bottom - 1; // the edge that has to be below the upper one
  return upper >= view.top && top - (rows.pinned ? 0 : rows.strip) < view.top + view.height;
}

/** The y, within the part in view, of a height of a row.
 * @type {(rows: Rows, view: View, number: number, y: number) => number} */
function placed(rows, view, number, y) {
  return rows.rows[number].pinned ? y : y - view.top;
}

/** The bars of each kind, only of the spans that `only` marks if given; calls drawn(left, right, slot, y, i).
 * @type {(rows: Rows, times: Times, view: View, only: Uint8Array | null, drawn?: (left: number, right: number, slot:
 *   Slot, y: number, i: number) => void) => number[][]} */
function barsIn(rows, times, view, only, drawn) {
  /** @type {number[][]} */
  const bars = Array.from({ length: rows.kinds }, () => []);
  const { from, to, width } = view;
  const hidden = view.hidden?.size ? view.hidden : null;
  const part = { from, scale: width / (to - from), width, hidden, only };
  for (const slot of rows.slots) {
    if (slot.once || !inView(rows, view, slot.row)) continue;
    const [y, height] = [placed(rows, view, slot.row, slot.top), slot.bottom - slot.top];
    columns(times, rows, part, within(slot, times, from, to), (left, right, i) => {
      bars[rows.kindOf[i]].push(left, y, right - left, height, i);
      drawn?.(left, right, slot, y, i);
    });
  }
  return bars;
}

/** The waiting parts of bars, as x, y, width, height and span.
 * @type {(rows: Rows, times: Times, view: View, x: Scale) => number[]} */
function waitedIn(rows, times, view, x) {
  const found = [];
  for (const [i, until] of times.waited) {
    const slot = rows.slots[rows.slotOf[i]];
    if (times.start[i] > view.to || until < view.from || view.hidden?.has(rows.kindOf[i])) continue;
    if (slot.once || !inView(rows, view, slot.row)) continue;
    const left = Math.round(Math.max(x(times.start[i]), -2));
    const width = Math.round(Math.min(x(until), view.width + 2)) - left;
    if (width >= 2) found.push(left, placed(rows, view, slot.row, slot.top), width, slot.bottom - slot.top, i);
  }
  return found;
}

/** The longest form that fits into the visible part of a bar, and its place; or null. The view is `width` pixels wide.
 * @type {(forms: string[], left: number, right: number, height: number, width: number) => Omit<Label, "y"> | null} */
export function labelIn(forms, left, right, height, width) {
  const [from, to] = [Math.max(left, 0), Math.min(right, width)];
  const size = Math.min(SIZE, Math.floor(height - 1));
  if (size < SMALL - 1 || to - from < NARROWEST) return null;
  const room = to - from - 3;
  const fits = forms.find((form) => form.length * CHARACTER * size <= room - (NUMBER.test(form) ? 0 : APART));
  if (fits) return { text: fits, x: (from + to) / 2, size };
  const last = forms.at(-1) ?? "";
  const number = /\d$/.test(last) && last.length * CHARACTER * SMALL <= room + 2;
  return number ? { text: last, x: (from + to) / 2, size: Math.min(size, SMALL) } : null;
}

/** Labelled strips for what is shown once for all ranks.
 * @type {(rows: Rows, times: Times, view: View, x: Scale) => DrawList["heads"]} */
function headsIn(rows, times, view, x) {
  /** @type {DrawList["heads"]} */
  const found = [];
  headTimes(rows, times).forEach(({ from, until }, number) => {
    const { spans } = rows.heads[number];
    const kind = rows.kindOf[spans[0]];
    const [left, right] = [Math.max(x(from), -2), Math.min(x(until), view.width + 2)].map(Math.round);
    if (right < 0 || left > view.width || view.hidden?.has(kind)) return;
    const slot = rows.slots[rows.slotOf[spans[0]]];
    const [y, height] = [slot.top, slot.bottom - slot.top];
    const label = labelIn(rows.labels[spans[0]], left, right, height, view.width);
    found.push({
      head: number, kind, spans, x: left, y, width: Math.max(right - left, 1), height,
      label: label && { ...label, y: y + height / 2 },
    });
  });
  return found;
}

/** Where span i is drawn, however many share its pixels; null if out of view.
 * @type {(rows: Rows, times: Times, view: View, x: Scale, heads: DrawList["heads"], i: number) => Outlined | null} */
function boxOf(rows, times, view, x, heads, i) {
  if (i < 0) return null;
  if (rows.headOf.has(i)) return heads.find(({ head }) => head === rows.headOf.get(i)) ?? null;
  const slot = rows.slots[rows.slotOf[i]];
  const [left, right] = [Math.max(x(times.start[i]), -2), Math.min(x(times.end[i]), view.width + 2)];
  if (right < 0 || left > view.width || view.hidden?.has(rows.kindOf[i])) return null;
  if (rows.rows[slot.row].hidden || (rows.pinned && !inView(rows, view, slot.row))) return null;
  const from = right - left < 1 ? Math.floor(left) : Math.round(left);
  const [width, height] = [Math.max(Math.round(right) - from, 1), slot.bottom - slot.top];
  return { x: from, y: placed(rows, view, slot.row, slot.top), width, height, kind: rows.kindOf[i], span: i };
}

/** The right edges of spans that never ended.
 * @type {(rows: Rows, times: Times, view: View, x: Scale) => DrawList["open"]} */
function openIn(rows, times, view, x) {
  const found = [];
  for (const i of rows.open) {
    const slot = rows.slots[rows.slotOf[i]];
    const right = Math.round(x(times.end[i]));
    if (slot.once || !inView(rows, view, slot.row) || view.hidden?.has(rows.kindOf[i])) continue;
    if (right < 0 || right > view.width) continue;
    const y = placed(rows, view, slot.row, slot.top);
    found.push({ x: right, y, height: slot.bottom - slot.top, span: i });
  }
  return found;
}

/** Intervals of a row without bars, as boxes; `place` is an interval's index.
 * @type {(rows: Rows, intervals: Intervals, view: View, x: Scale) => DrawList["idle"]} */
function intervalsIn(rows, { row, start, end, count }, view, x) {
  const found = [];
  for (let i = 0; i < count; i++) {
    if (end[i] <= view.from || start[i] >= view.to || !inView(rows, view, row[i])) continue;
    const left = Math.round(Math.max(x(start[i]), -2));
    const width = Math.round(Math.min(x(end[i]), view.width + 2)) - left;
    if (width < 1) continue;
    const { top, bottom } = rows.rows[row[i]];
    found.push({ x: left, y: placed(rows, view, row[i], top), width, height: bottom - top, place: i });
  }
  return found;
}

/** The cycle of the wait-for graph: arrows from row to row, side by side at the right edge.
 * @type {(rows: Rows, view: View) => DrawList["cycle"]} */
function cycleIn(rows, view) {
  return rows.cycle.filter((one) => [one.tail, one.head].every((row) => !rows.rows[row].hidden))
    .map(({ tail, head, summary }, number) => {
      const x = view.width - 22 - 13 * number;
      const [y1, y2] = [tail, head].map((row) => placed(rows, view, row, rows.rows[row].middle));
      return { x1: x, y1, x2: x, y2, summary };
    });
}

/** Lines where ranks were lost, over each group of adjacent rows of a rank.
 * @type {(rows: Rows, times: Times, view: View, x: Scale) => DrawList["lost"]} */
function lostIn(rows, times, view, x) {
  return times.lost.flatMap(({ rank, at }, place) => {
    /** @type {DrawList["lost"]} */
    const found = [];
    let last = -2;
    rows.shown.forEach((number, i) => {
      const row = rows.rows[number];
      if (row.rank !== rank || !inView(rows, view, number)) return;
      const [top, bottom] = [row.top, row.bottom].map((y) => placed(rows, view, number, y));
      if (i === last + 1) found[found.length - 1].bottom = bottom;
      else found.push({ x: Math.round(x(at)), top, bottom, place });
      last = i;
    });
    return found;
  });
}

/** The remarks in rows without bars. @type {(rows: Rows, view: View) => DrawList["remarks"]} */
function remarksIn(rows, view) {
  return rows.shown.filter((number) => rows.rows[number].remark && inView(rows, view, number))
    .map((number) => {
      const { remark = "", middle } = rows.rows[number];
      return { text: remark, x: 8, y: placed(rows, view, number, middle) };
    });
}

/** The lines over rows with the name of their group; none under pinned rows.
 * @type {(rows: Rows, view: View) => DrawList["groups"]} */
function groupsIn(rows, view) {
  /** @type {DrawList["groups"]} */
  const found = [];
  rows.shown.forEach((number, place) => {
    const row = rows.rows[number];
    if (!named(rows.rows, number, rows.shown[place - 1] ?? -1)) return;
    const y = placed(rows, view, number, row.top - (row.memory ? rows.strip : 0)) - GROUP_LINE;
    const least = row.pinned || !rows.pinned ? -GROUP_LINE : rows.pinned;
    if (y >= least && y < view.height) found.push({ y, height: GROUP_LINE, group: row.group ?? -1 });
  });
  return found;
}

/** Where an arrow leaves a row and reaches another: at their facing edges.
 * @type {(rows: Rows, view: View, tail: number, head: number) => number[]} */
function edges(rows, view, tail, head) {
  const down = Math.sign(rows.rows[head].middle - rows.rows[tail].middle);
  /** @type {(number: number, direction: number) => number} */
  const side = (number, direction) => {
    const { top, bottom, middle } = rows.rows[number];
    return placed(rows, view, number, direction > 0 ? bottom : direction < 0 ? top : middle);
  };
  return [side(tail, down), side(head, -down)];
}

/** @type {(rows: Rows, times: Times, view: View, x: Scale) => DrawList["path"]} */
function pathIn(rows, times, view, x) {
  const { start, end } = times.path;
  const parts = times.critical.map((i, number) => {
    const { row, top, bottom } = rows.slots[rows.slotOf[i]];
    const [upper, lower] = [top, bottom].map((y) => placed(rows, view, row, y));
    return { row, from: start[number], to: end[number], top: upper, bottom: lower };
  }).filter(({ row }) => !rows.rows[row].hidden);
  return pathBoxes(parts, x, view.width, times.quantum);
}

/** @typedef {{ from: number, to: number, top: number, bottom: number }} Part of the critical path */

/** The critical path; `parts` follow each other in time. A box around each series of parts in one row at most
 * `apart` seconds apart, and a line to the next.
 * @type {(parts: Part[], x: Scale, width: number, apart: number) => DrawList["path"]} */
function pathBoxes(parts, x, width, apart) {
  /** @type {Part[]} */
  const boxes = [];
  for (const part of parts) {
    const last = boxes.at(-1);
    const follows = last?.top === part.top && last.bottom === part.bottom && part.from <= last.to + apart;
    if (follows) last.to = part.to;
    else boxes.push({ ...part });
  }
  /** @type {(time: number) => number} */
  const place = (time) => clamp(x(time), -10, width + 10);
  return boxes.map((box, number) => {
    const next = boxes[number + 1];
    const down = Math.sign((next?.top ?? box.top) - box.top);
    /** @type {(part: Part, direction: number) => number} */
    const side = ({ top, bottom }, direction) => (direction > 0 ? bottom : direction < 0 ? top : (top + bottom) / 2);
    const line = next && { x1: place(box.to), y1: side(box, down), x2: place(next.from), y2: side(next, -down) };
    const [left, right] = [place(box.from), place(box.to)];
    return { x: left, y: box.top, width: right - left, height: box.bottom - box.top, line };
  }).filter(({ x: left, width: wide, line }) =>
    left < width + 10 && (left + wide > -10 || (line && line.x2 > -10)));
}

/** What a rank held over time, as the corners of an area above its row; `peak` fills it.
 * @type {(rows: Rows, row: Row, memory: Memory, view: View, x: Scale) => DrawList["memory"][number]} */
function strip({ peak, strip: tall }, row, { time, held }, view, x) {
  const base = row.top - 1 - (row.pinned ? 0 : view.top);
  /** @type {(level: number) => number} */
  const y = (level) => base - (level / peak) * (tall - 4);
  const first = Math.max(upTo(time, view.from) - 1, 0);
  /** @type {[x: number, y: number][]} */
  const corners = [];
  let level = 0;
  for (let i = first; i < time.length && time[i] <= view.to; i++) {
    const [at, own, last] = [Math.max(x(time[i]), 0), y(held[i]), corners.at(-1)];
    if (last && at - last[0] < 0.5) last[1] = Math.min(last[1], own); // a pixel shows the highest of many
    else {
      if (last && last[1] !== level) corners.push([last[0], level]);
      if (last) corners.push([at, level]);
      corners.push([at, own]);
    }
    level = own;
  }
  const end = corners.at(-1);
  if (end && end[1] !== level) corners.push([end[0], level]);
  if (end) corners.push([view.width, level]);
  return { row, corners, base, top: base - tall };
}

/** The messages in view as arrows from row to row, and their number. All are drawn if requested and not too many;
 * else those of the selection or hover, and those never received.
 * @type {(rows: Rows, times: Times, view: View, x: Scale) => Pick<DrawList, "arrows" | "messagesInView" |
 *   "messagesLeftOut">} */
function arrowsIn(rows, times, view, x) {
  const { tail, head, flow, count } = rows.arrows;
  // None points back in time: by another host's clock a message may seem to arrive before it was sent.
  /** @type {(i: number) => number} */
  const got = (i) => (times.received[i] > times.sent[i] ? times.received[i] : times.sent[i]);
  /** @type {(i: number) => Arrow} */
  const arrow = (i) => {
    const never = Number.isNaN(times.received[i]);
    const [y1, y2] = edges(rows, view, tail[i], head[i]);
    return { x1: x(times.sent[i]), y1, x2: x(got(i)), y2, never, message: i };
  };
  /** @type {(i: number) => boolean} */
  const drawable = (i) => [tail[i], head[i]].every((row) => !rows.rows[row].hidden);
  const seen = [];
  for (let i = 0; i < count; i++) {
    if (got(i) >= view.from && times.sent[i] <= view.to && drawable(i)) seen.push(i);
  }
  const all = view.arrows && seen.length <= ARROWS ? seen : [];
  const lost = seen.filter((i) => Number.isNaN(times.received[i])).slice(0, ARROWS);
  const own = [view.message, view.hover == null || view.hover < 0 ? -1 : flow[view.hover]];
  const shown = new Set([...all, ...lost, ...own.filter((i) => i >= 0 && drawable(i))]);
  return {
    arrows: [...shown].map(arrow), messagesInView: seen.length, messagesLeftOut: seen.length - all.length,
  };
}
