// What a timeline draws, as plain numbers: a pure function of a scene and the part in view.
import { clamp, unitOf, upTo } from "./base.js";
import { STRIP, within } from "./timeline_scene.js";

export const IDLE = -1; // stands for idle time among the kinds that are hidden
const ARROWS = 150; // messages in view: with more of them only the selection's are drawn
const CHARACTER = 6.4; // pixels of a label
const THIN = 1; // pixels: narrower spans share one

/**
 * The draw list of `view`: {clock, from, to, width, top, height, hidden, arrows, critical, span, message}.
 *
 * Times in seconds, the rest in pixels; `top` and `height` are the stretch of the scene's height
 * that is in view, and every y is given within it. `bars[kind]` holds x, y, width, height and span,
 * one after the other.
 */
export function drawList(scene, view) {
  const clock = scene.clocks[view.clock];
  const scale = view.width / (view.to - view.from);
  const x = (time) => (time - view.from) * scale;
  const inView = (row) => {
    const { top } = scene.rows[row];
    return top + scene.pixels > view.top && top - STRIP < view.top + view.height;
  };
  const bars = scene.span.kinds.of.map(() => []);
  const labels = [];
  for (const slot of scene.slots) {
    if (!inView(slot.row)) continue;
    const y = scene.rows[slot.row].middle + slot.top * scene.pixels - view.top;
    const height = (slot.bottom - slot.top) * scene.pixels;
    const [first, after] = within(slot, clock, view.from, view.to);
    let taken = -Infinity;
    for (let i = first; i < after; i++) {
      const kind = scene.kindOf[i];
      if (view.hidden?.has(kind)) continue;
      const begin = Math.max(x(clock.start[i]), -2);
      const right = Math.min(x(clock.end[i]), view.width + 2);
      if (right < taken - 0.5 && i !== view.span) continue; // its pixel is painted already
      const left = right - begin < THIN ? Math.max(begin, taken) : begin; // of many, a pixel shows the one at its middle
      const width = Math.max(right - left, THIN);
      taken = left + width;
      bars[kind].push(left, y, width, height, i);
      if (width > 22 && height > 11) {
        const text = scene.span.label[i];
        const room = Math.floor((Math.min(right, view.width) - Math.max(left, 0) - 6) / CHARACTER);
        if (text.length <= room) labels.push({ text, span: i, x: (Math.max(left, 0) + Math.min(right, view.width)) / 2, y: y + height / 2 });
        else if (room > 3) labels.push({ text: text.slice(0, room - 1) + "…", span: i, x: (Math.max(left, 0) + Math.min(right, view.width)) / 2, y: y + height / 2 });
      }
    }
  }
  return {
    bars,
    labels,
    idle: idleIn(scene, clock, view, x, inView),
    memory: scene.rows.filter((row, number) => row.memory && inView(number) && clock.memory)
      .map((row) => strip(row, scene.peak, view, x)),
    ...arrowsIn(scene, clock, view, x),
    path: view.critical ? pathIn(scene, clock, view, x) : [],
    ticks: ticks(view.from, view.to, x),
  };
}

function idleIn(scene, clock, view, x, inView) {
  const { idle } = clock;
  if (view.hidden?.has(IDLE)) return [];
  const found = [];
  for (let i = 0; i < idle.count; i++) {
    if (idle.end[i] <= view.from || idle.start[i] >= view.to || !inView(idle.row[i])) continue;
    const left = Math.max(x(idle.start[i]), -2);
    const width = Math.min(x(idle.end[i]), view.width + 2) - left;
    if (width < 1.5) continue;
    const half = (scene.bar / 2) * scene.pixels;
    found.push({ x: left, y: scene.rows[idle.row[i]].middle - half - view.top, width, height: 2 * half, idle: i });
  }
  return found;
}

/** The critical path: a box around each stretch in which one span follows another on a row, and the line to the next. */
function pathIn(scene, clock, view, x) {
  const boxes = [];
  const { start, end } = clock.path;
  for (const [number, i] of clock.critical.entries()) {
    const slot = scene.slots[scene.slotOf[i]];
    const middle = scene.rows[slot.row].middle - view.top;
    const [top, bottom] = [slot.top, slot.bottom].map((part) => middle + part * scene.pixels);
    const last = boxes.at(-1);
    if (last?.top === top && last.bottom === bottom && start[number] <= last.to + clock.quantum) last.to = end[number];
    else boxes.push({ from: start[number], to: end[number], top, bottom });
  }
  const place = (time) => clamp(x(time), -10, view.width + 10);
  return boxes.map((box, number) => {
    const next = boxes[number + 1];
    const down = Math.sign((next?.top ?? box.top) - box.top);
    const side = ({ top, bottom }, way) => (way > 0 ? bottom : way < 0 ? top : (top + bottom) / 2);
    const line = next && { x1: place(box.to), y1: side(box, down), x2: place(next.from), y2: side(next, -down) };
    return { x: place(box.from), y: box.top, width: place(box.to) - place(box.from), height: box.bottom - box.top, line };
  }).filter(({ x: left, width, line }) => left + width > -10 || (line && line.x2 > -10)).filter(({ x: left }) => left < view.width + 10);
}

/** What a rank held over time, as the corners of an area above its row; `peak` fills it. */
function strip(row, peak, view, x) {
  const { time, held } = row.memory;
  const base = row.top - 1 - view.top;
  const y = (level) => base - (level / peak) * (STRIP - 5);
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
  return { row, corners, base };
}

/** The messages in view as arrows from row to row, and how many there are. */
function arrowsIn(scene, clock, view, x) {
  const { message } = scene;
  const half = (scene.bar / 2) * scene.pixels;
  const arrow = (i) => {
    const never = Number.isNaN(clock.received[i]);
    const [tail, head] = [scene.rows[message.tail[i]].middle, scene.rows[message.head[i]].middle];
    const lean = Math.sign(head - tail) * half;
    return {
      x1: x(clock.sent[i]), y1: tail + lean - view.top,
      x2: x(never ? clock.sent[i] : clock.received[i]), y2: head - lean - view.top, never, message: i,
    };
  };
  const seen = [];
  for (let i = 0; i < scene.messageCount; i++) {
    const got = Number.isNaN(clock.received[i]) ? clock.sent[i] : clock.received[i];
    if (got < view.from || clock.sent[i] > view.to) continue;
    seen.push(i);
  }
  const drawn = view.arrows && seen.length <= ARROWS ? seen : [];
  const chosen = view.message >= 0 && !drawn.includes(view.message) ? [view.message] : [];
  return { arrows: [...drawn, ...chosen].map(arrow), messagesInView: seen.length };
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

/** What lies at a point of a draw list: an arrow's end, a span, idle time or a row's memory; or null. */
export function hit(list, x, y) {
  for (const arrow of list.arrows) {
    for (const [end, ax, ay] of [["receiver", arrow.x2, arrow.y2], ["sender", arrow.x1, arrow.y1]]) {
      if (Math.hypot(ax - x, ay - y) <= 6) return { message: arrow.message, end };
    }
  }
  let best = null;
  let nearest = 3;
  for (const bars of list.bars) {
    for (let i = 0; i < bars.length; i += 5) {
      if (y < bars[i + 1] || y >= bars[i + 1] + bars[i + 3]) continue;
      const away = Math.max(bars[i] - x, x - bars[i] - bars[i + 2], 0);
      if (away < nearest) [nearest, best] = [away, { span: bars[i + 4] }];
    }
  }
  if (best) return best;
  const shaft = list.arrows.find((arrow) => toLine(arrow, x, y) <= 4);
  if (shaft) return { message: shaft.message, end: nearer(shaft, x, y) };
  const idle = list.idle.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
  if (idle) return { idle: idle.idle };
  const told = list.memory.find(({ base }) => y <= base && y > base - STRIP);
  return told ? { memory: told.row } : null;
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
