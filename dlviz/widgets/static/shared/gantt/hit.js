// Finds what lies at a point of a draw list.
import { clamp } from "../arrays.js";

/** @import { Arrow, Box, DrawList, Line } from "./geometry.js" */
/** @import { Row } from "./rows.js" */

/** What lies at a point: one end of a message, a span, a head (and its first span), idle time, a gap or a lost rank (by
 * index), the summary of a deadlock's arrow, a row's memory, or a group's name.
 * @typedef {{ message?: number, end?: "sender" | "receiver", span?: number, head?: number, idle?: number, gap?:
 *   number, summary?: string, lost?: number, memory?: Row, group?: number }} Target */

/** The target `x` and `y` pixels from the upper left corner of the rows.
 * @type {(list: DrawList, x: number, y: number) => Target | null} */
export function hit(list, x, y) {
  const line = list.groups.find((one) => y >= one.y && y < one.y + one.height);
  if (x < 0) return line ? { group: line.group } : null; // left of the picture
  for (const { message, x1, y1, x2, y2 } of list.arrows) {
    if (Math.hypot(x2 - x, y2 - y) <= 6) return { message, end: "receiver" };
    if (Math.hypot(x1 - x, y1 - y) <= 6) return { message, end: "sender" };
  }
  const waits = list.cycle.find((arrow) => toLine(arrow, x, y) <= 5);
  if (waits) return { summary: waits.summary };
  const lost = list.lost.find((one) => Math.abs(one.x - x) <= 5 && y >= one.top && y < one.bottom);
  if (lost) return { lost: lost.place };
  /** @type {(box: Box) => boolean} */
  const inside = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  const head = list.heads.find(inside);
  if (head) return { head: head.head, span: head.spans[0] };
  const span = [list.found, list.bars].map((all) => spanAt(all, x, y)).find((one) => one >= 0) ?? -1;
  if (span >= 0) return { span };
  const shaft = list.arrows.find((arrow) => toLine(arrow, x, y) <= 4);
  if (shaft) return { message: shaft.message, end: nearer(shaft, x, y) };
  const gap = list.gaps.find(inside);
  const idle = list.idle.find(inside);
  if (gap) return { gap: gap.place };
  if (idle) return { idle: idle.place };
  const strip = list.memory.find(({ base, top }) => y <= base && y > top);
  if (strip) return { memory: strip.row };
  return line ? { group: line.group } : null;
}

/** The span whose bar is within three pixels of a point; or -1.
 * @type {(all: number[][], x: number, y: number) => number} */
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

/** The distance of a point from an arrow's line, in pixels. @type {(arrow: Line, x: number, y: number) => number} */
function toLine({ x1, y1, x2, y2 }, x, y) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const along = clamp(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1), 0, 1);
  return Math.hypot(x1 + along * dx - x, y1 + along * dy - y);
}

/** @type {(arrow: Arrow, x: number, y: number) => "sender" | "receiver"} */
function nearer({ x1, y1, x2, y2 }, x, y) {
  return Math.hypot(x1 - x, y1 - y) < Math.hypot(x2 - x, y2 - y) ? "sender" : "receiver";
}
