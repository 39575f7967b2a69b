// What a timeline draws, as plain numbers: a pure function of a scene and the part in view.
import { clamp, upTo } from "../shared/arrays.js";
import { unitOf } from "../shared/numbers.js";
import { columns } from "./columns.js";
import { headTimes, within } from "./state.js";

export const IDLE = -1; // stands for idle time among the kinds that are hidden
export const ARROWS = 150; // messages in view: with more of them only the selection's are drawn
const CHARACTER = 0.58; // of a label's size: how wide a character is
const [SIZE, SMALL] = [11, 9]; // pixels: of a label; of a number where it has little room
const NARROWEST = 6; // pixels: a bar with a label

/**
 * The draw list of `view`: {clock, from, to, width, top, height, hidden, arrows, critical, span,
 * message, hover, matches}.
 *
 * Times in seconds, the rest in pixels; `top` and `height` are the stretch of the scene's height
 * that is in view, and every y is given within it; what is shown once for all ranks lies above, at
 * negative y. `bars[kind]` holds x, y, width, height and span, one after the other; `found` the same
 * for what a search found, which is drawn over the others.
 */
export function drawList(scene, view) {
  const clock = scene.clocks[view.clock];
  const scale = view.width / (view.to - view.from);
  const x = (time) => (time - view.from) * scale;
  const inView = (row) => {
    const { top, bottom } = scene.rows[row];
    return bottom > view.top && top - scene.strip < view.top + view.height;
  };
  const labels = [];
  const bars = barsIn(scene, clock, view, inView, null, (left, right, slot, i) => {
    if (right - left < NARROWEST) return;
    const label = labelIn(scene.span.label[i], left, right, slot.bottom - slot.top, view.width);
    if (label) labels.push({ ...label, span: i, y: (slot.top + slot.bottom) / 2 - view.top });
  });
  const found = view.matches ? barsIn(scene, clock, view, inView, view.matches) : [];
  const heads = headsIn(scene, clock, view, x);
  const list = {
    bars, labels, found, heads,
    chosen: boxOf(scene, clock, view, x, heads, view.span),
    hovered: boxOf(scene, clock, view, x, heads, view.hover ?? -1),
    open: openIn(scene, clock, view, x, inView),
    idle: stretchesIn(scene, clock.idle, view, x, inView, view.hidden?.has(IDLE)),
    gaps: stretchesIn(scene, clock.gaps, view, x, inView, false),
    memory: scene.rows.filter((row, number) => row.memory && inView(number) && clock.memory)
      .map((row) => strip(row, scene, view, x)),
    cycle: cycleIn(scene, view),
    path: view.critical ? pathIn(scene, clock, view, x) : [],
    ticks: ticks(view.from, view.to, x),
  };
  return { ...list, ...arrowsIn(scene, clock, view, x, labels) };
}

/** The bars of each kind, of the spans that `only` marks where it is given; calls drawn(left, right, slot, i). */
function barsIn(scene, clock, view, inView, only, drawn) {
  const bars = scene.span.kinds.of.map(() => []);
  const { from, to, width } = view;
  const hidden = view.hidden?.size ? view.hidden : null;
  const part = { from, scale: width / (to - from), width, hidden, only };
  for (const slot of scene.slots) {
    if (slot.once || !inView(slot.row)) continue;
    const [y, height] = [slot.top - view.top, slot.bottom - slot.top];
    columns(clock, scene, part, within(slot, clock, from, to), (left, right, i) => {
      bars[scene.kindOf[i]].push(left, y, right - left, height, i);
      drawn?.(left, right, slot, i);
    });
  }
  return bars;
}

/** The longest form that fits into the part of a bar that is in view, and where it stands; or null. */
export function labelIn(forms, left, right, height, width) {
  const [from, to] = [Math.max(left, 0), Math.min(right, width)];
  const size = Math.min(SIZE, Math.floor(height - 2));
  if (size < SMALL - 1 || to - from < NARROWEST) return null;
  const room = to - from - 3;
  const fits = forms.find((form) => form.length * CHARACTER * size <= room);
  if (fits) return { text: fits, x: (from + to) / 2, size };
  const last = forms.at(-1);
  const number = /\d$/.test(last) && last.length * CHARACTER * SMALL <= room + 2;
  return number ? { text: last, x: (from + to) / 2, size: Math.min(size, SMALL) } : null;
}

/** What is shown once for all ranks: a strip each, with its label. */
function headsIn(scene, clock, view, x) {
  const found = [];
  headTimes(scene, clock).forEach(({ from, until }, number) => {
    const { spans } = scene.heads[number];
    const kind = scene.kindOf[spans[0]];
    const [left, right] = [Math.max(x(from), -2), Math.min(x(until), view.width + 2)].map(Math.round);
    if (right < 0 || left > view.width || view.hidden?.has(kind)) return;
    const slot = scene.slots[scene.slotOf[spans[0]]];
    const [y, height] = [slot.top, slot.bottom - slot.top];
    const label = labelIn(scene.span.label[spans[0]], left, right, height, view.width);
    found.push({
      head: number, kind, spans, x: left, y, width: Math.max(right - left, 1), height,
      label: label && { ...label, y: y + height / 2 },
    });
  });
  return found;
}

/** Where span i is drawn, however many share its pixels; null where it is not in view. */
function boxOf(scene, clock, view, x, heads, i) {
  if (i < 0) return null;
  if (scene.headOf.has(i)) return heads.find(({ head }) => head === scene.headOf.get(i)) ?? null;
  const slot = scene.slots[scene.slotOf[i]];
  const [left, right] = [Math.max(x(clock.start[i]), -2), Math.min(x(clock.end[i]), view.width + 2)];
  if (right < 0 || left > view.width || view.hidden?.has(scene.kindOf[i])) return null;
  const from = right - left < 1 ? Math.floor(left) : Math.round(left);
  const [width, height] = [Math.max(Math.round(right) - from, 1), slot.bottom - slot.top];
  return { x: from, y: slot.top - view.top, width, height, kind: scene.kindOf[i], span: i };
}

/** The bars of spans that never ended: from their right edge on they are open. */
function openIn(scene, clock, view, x, inView) {
  const found = [];
  for (const i of scene.open) {
    const slot = scene.slots[scene.slotOf[i]];
    const right = Math.round(x(clock.end[i]));
    if (slot.once || !inView(slot.row) || view.hidden?.has(scene.kindOf[i])) continue;
    if (right < 0 || right > view.width) continue;
    found.push({ x: right, y: slot.top - view.top, height: slot.bottom - slot.top, span: i });
  }
  return found;
}

/** Stretches of a row in which nothing is drawn, as boxes; each with its place. */
function stretchesIn(scene, { row, start, end, count }, view, x, inView, hidden) {
  const found = [];
  for (let i = 0; i < count && !hidden; i++) {
    if (end[i] <= view.from || start[i] >= view.to || !inView(row[i])) continue;
    const left = Math.round(Math.max(x(start[i]), -2));
    const width = Math.round(Math.min(x(end[i]), view.width + 2)) - left;
    if (width < 1) continue;
    const { top, bottom } = scene.rows[row[i]];
    found.push({ x: left, y: top - view.top, width, height: bottom - top, place: i });
  }
  return found;
}

/** The ranks that wait for each other for ever: arrows from row to row, beside each other at the right edge. */
function cycleIn(scene, view) {
  return scene.cycle.map(({ tail, head, told }, number) => {
    const x = view.width - 22 - 13 * number;
    const [y1, y2] = [scene.rows[tail].middle - view.top, scene.rows[head].middle - view.top];
    return { x1: x, y1, x2: x, y2, told };
  });
}

/** Where an arrow leaves a row and reaches another: at the edges that face each other. */
function edges(tail, head) {
  const down = Math.sign(head.middle - tail.middle);
  const side = (row, way) => (way > 0 ? row.bottom : way < 0 ? row.top : row.middle);
  return [side(tail, down), side(head, -down)];
}

function pathIn(scene, clock, view, x) {
  const { start, end } = clock.path;
  const parts = clock.critical.map((i, number) => {
    const { top, bottom } = scene.slots[scene.slotOf[i]];
    return { from: start[number], to: end[number], top: top - view.top, bottom: bottom - view.top };
  });
  return pathBoxes(parts, x, view.width, clock.quantum);
}

/**
 * The critical path, of which `parts` {from, to, top, bottom} follow each other in time: a box around
 * each stretch of parts in one place that are no more than `apart` seconds apart, a line to the next.
 */
export function pathBoxes(parts, x, width, apart) {
  const boxes = [];
  for (const part of parts) {
    const last = boxes.at(-1);
    const follows = last?.top === part.top && last.bottom === part.bottom && part.from <= last.to + apart;
    if (follows) last.to = part.to;
    else boxes.push({ ...part });
  }
  const place = (time) => clamp(x(time), -10, width + 10);
  return boxes.map((box, number) => {
    const next = boxes[number + 1];
    const down = Math.sign((next?.top ?? box.top) - box.top);
    const side = ({ top, bottom }, way) => (way > 0 ? bottom : way < 0 ? top : (top + bottom) / 2);
    const line = next && { x1: place(box.to), y1: side(box, down), x2: place(next.from), y2: side(next, -down) };
    const [left, right] = [place(box.from), place(box.to)];
    return { x: left, y: box.top, width: right - left, height: box.bottom - box.top, line };
  }).filter(({ x: left, width: wide, line }) =>
    left < width + 10 && (left + wide > -10 || (line && line.x2 > -10)));
}

/** What a rank held over time, as the corners of an area above its row; `peak` fills it. */
function strip(row, { peak, strip: tall }, view, x) {
  const { time, held } = row.memory;
  const base = row.top - 1 - view.top;
  const y = (level) => base - (level / peak) * (tall - 4);
  const first = Math.max(upTo(time, view.from) - 1, 0);
  const corners = [];
  let level = 0;
  for (let i = first; i < time.length && time[i] <= view.to; i++) {
    const [at, own, last] = [Math.max(x(time[i]), 0), y(held[i]), corners.at(-1)];
    if (last && at - last[0] < 0.5) last[1] = Math.min(last[1], own); // a pixel shows the most of many
    else {
      if (last && last[1] !== level) corners.push([last[0], level]);
      if (last) corners.push([at, level]);
      corners.push([at, own]);
    }
    level = own;
  }
  if (corners.length && corners.at(-1)[1] !== level) corners.push([corners.at(-1)[0], level]);
  if (corners.length) corners.push([view.width, level]);
  return { row, corners, base, top: base - tall };
}

/**
 * The messages in view as arrows from row to row, and how many there are. Where `view.arrows` is null
 * those past other rows are left out if one of them would run over a label.
 */
function arrowsIn(scene, clock, view, x, labels) {
  const { message } = scene;
  const arrow = (i) => {
    const never = Number.isNaN(clock.received[i]);
    const [y1, y2] = edges(scene.rows[message.tail[i]], scene.rows[message.head[i]]);
    return {
      x1: x(clock.sent[i]), y1: y1 - view.top,
      x2: x(never ? clock.sent[i] : clock.received[i]), y2: y2 - view.top, never, message: i,
    };
  };
  const seen = [];
  for (let i = 0; i < scene.messageCount; i++) {
    const got = Number.isNaN(clock.received[i]) ? clock.sent[i] : clock.received[i];
    if (got < view.from || clock.sent[i] > view.to) continue;
    seen.push(i);
  }
  let drawn = view.arrows !== false && seen.length <= ARROWS ? seen.map(arrow) : [];
  if (view.arrows === null) {
    const past = ({ message: i }) => Math.abs(message.tail[i] - message.head[i]) > 1;
    if (drawn.filter(past).some((one) => covers(one, labels))) drawn = drawn.filter((one) => !past(one));
  }
  const hovered = view.hover >= 0 ? scene.span.flow[view.hover] : -1;
  const shown = (i) => drawn.some((one) => one.message === i);
  const also = [...new Set([view.message, hovered])].filter((i) => i >= 0 && !shown(i)).map(arrow);
  return {
    arrows: [...drawn, ...also], messagesInView: seen.length, messagesLeftOut: seen.length - drawn.length,
  };
}

/** Whether an arrow runs over one of the labels. */
function covers({ x1, y1, x2, y2 }, labels) {
  return labels.some(({ x, y, text, size }) => {
    const share = (y - y1) / (y2 - y1);
    const away = Math.abs(x1 + (x2 - x1) * share - x);
    return share > 0 && share < 1 && away < (text.length * CHARACTER * size) / 2 + 3;
  });
}

/** Round moments of an axis, about one for each 90 pixels, in the unit that reads best. */
export function ticks(from, to, x) {
  const unit = unitOf(Math.max(Math.abs(from), Math.abs(to)));
  const rough = (to - from) / Math.max((x(to) - x(from)) / 90, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const places = Math.max(0, -Math.floor(Math.log10((step / unit[1]) * 1.0001)));
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to; i++) {
    found.push({ x: x(i * step), label: `${((i * step) / unit[1]).toFixed(places)} ${unit[0]}` });
  }
  return found;
}

/** What lies at a point of a draw list: an arrow's end, a span, idle time, a gap or a row's memory; or null. */
export function hit(list, x, y) {
  for (const arrow of list.arrows) {
    for (const [end, ax, ay] of [["receiver", arrow.x2, arrow.y2], ["sender", arrow.x1, arrow.y1]]) {
      if (Math.hypot(ax - x, ay - y) <= 6) return { message: arrow.message, end };
    }
  }
  const waits = list.cycle.find((arrow) => toLine(arrow, x, y) <= 5);
  if (waits) return { told: waits.told };
  const inside = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  const head = list.heads.find(inside);
  if (head) return { head: head.head, span: head.spans[0] };
  const span = [list.found, list.bars].map((all) => spanAt(all, x, y)).find((one) => one >= 0) ?? -1;
  if (span >= 0) return { span };
  const shaft = list.arrows.find((arrow) => toLine(arrow, x, y) <= 4);
  if (shaft) return { message: shaft.message, end: nearer(shaft, x, y) };
  const [gap, idle] = [list.gaps, list.idle].map((boxes) => boxes.find(inside));
  if (gap) return { gap: gap.place };
  if (idle) return { idle: idle.place };
  const told = list.memory.find(({ base, top }) => y <= base && y > top);
  return told ? { memory: told.row } : null;
}

/** The span whose bar is at a point or within three pixels of it; or -1. */
function spanAt(all, x, y) {
  let best = -1;
  let nearest = 3;
  for (const bars of all) {
    for (let i = 0; i < bars.length; i += 5) {
      if (y < bars[i + 1] || y >= bars[i + 1] + bars[i + 3]) continue;
      const away = Math.max(bars[i] - x, x - bars[i] - bars[i + 2], 0);
      if (away < nearest) [nearest, best] = [away, bars[i + 4]];
    }
  }
  return best;
}

/** How far a point is from an arrow's line, in pixels. */
function toLine({ x1, y1, x2, y2 }, x, y) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const along = clamp(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1), 0, 1);
  return Math.hypot(x1 + along * dx - x, y1 + along * dy - y);
}

function nearer({ x1, y1, x2, y2 }, x, y) {
  return Math.hypot(x1 - x, y1 - y) < Math.hypot(x2 - x, y2 - y) ? "sender" : "receiver";
}
