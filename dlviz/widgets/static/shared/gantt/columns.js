// Spans as whole columns of pixels: spans narrower than a pixel share it by their time in it.
import { clamp } from "../arrays.js";

const NARROW = 2; // pixels: narrower spans never vanish
export const WAITED = -1; // the kind "waiting" in the small picture
const INSTANT = 1e-6; // of a pixel: the weight of a span without length

/** @import { Rows, Times } from "./rows.js" */

/** Calls put(left, right, i) for each segment of whole pixels that shows span i, from left to right. A pixel shows
 * the kind that has most of its time, by the one of its spans that is longest there. Spans of NARROW pixels or more
 * end at the nearest pixel; of narrower ones none leaves its pixel empty. `places` are the spans in order of time,
 * which do not overlap, or [first, after]. A moment lies at (moment - from) * scale; nothing is put beyond -2 and
 * width + 2. Spans whose kind is in `hidden`, and those that `only` does not mark where it is given, do not count.
 * @type {(times: Pick<Times, "start" | "end">, rows: Pick<Rows, "kindOf" | "kinds">, part: { from: number, scale:
 *   number, width: number, hidden?: Set<number> | null, only?: Uint8Array | null }, places: ArrayLike<number> |
 *   [number, number], put: (left: number, right: number, i: number) => void) => void} */
export function columns({ start, end }, { kindOf, kinds }, { from, scale, width, hidden, only }, places, put) {
  const [first, after] = Array.isArray(places) ? places : [0, places.length];
  const pixel = emptyPixel(kinds);
  let [left, right, shown] = [0, 0, -1]; // the segment being filled
  /** @type {(begin: number, finish: number, i: number) => void} */
  const show = (begin, finish, i) => {
    if (i !== shown || begin !== right) {
      if (shown >= 0) put(left, right, shown);
      left = begin;
      shown = i;
    }
    right = finish;
  };
  for (let at = first; at < after; at++) {
    const i = Array.isArray(places) ? at : places[at];
    if (hidden?.has(kindOf[i]) || (only && !only[i])) continue;
    const begin = Math.max((start[i] - from) * scale, -2);
    const finish = Math.min((end[i] - from) * scale, width + 2);
    const [low, high] = [Math.floor(begin), Math.ceil(finish) - 1];
    if (pixel.at !== low) settle(pixel, low, show);
    if (high <= low) {
      fill(pixel, kindOf[i], finish - begin || INSTANT, i, true);
      continue;
    }
    const keep = finish - begin < NARROW;
    fill(pixel, kindOf[i], low + 1 - begin, i, keep);
    settle(pixel, high, show);
    if (high > low + 1) show(low + 1, high, i);
    fill(pixel, kindOf[i], finish - high, i, keep);
  }
  settle(pixel, NaN, show);
  if (shown >= 0) put(left, right, shown);
}

/** A column of pixels: the kinds in it, how much of each, and the longest span of each there.
 * @typedef {{ at: number, total: number, drawn: boolean, seen: number[], weight: Float64Array, longest:
 *   Float64Array, own: Int32Array }} Pixel */

/** A pixel that holds nothing. @type {(kinds: number) => Pixel} */
function emptyPixel(kinds) {
  return {
    at: NaN, total: 0, drawn: false, seen: [],
    weight: new Float64Array(kinds), longest: new Float64Array(kinds), own: new Int32Array(kinds),
  };
}

/** @type {(pixel: Pixel, kind: number, amount: number, i: number, keep: boolean) => void} */
function fill(pixel, kind, amount, i, keep) {
  const { weight, longest } = pixel;
  if (weight[kind] === 0) pixel.seen.push(kind);
  weight[kind] += amount;
  pixel.total += amount;
  if (keep) pixel.drawn = true;
  if (amount > longest[kind]) {
    longest[kind] = amount;
    pixel.own[kind] = i;
  }
}

/** Shows the kind with most of a pixel, empties it and goes on to the pixel `next`.
 * @type {(pixel: Pixel, next: number, show: (begin: number, finish: number, i: number) => void) => void} */
function settle(pixel, next, show) {
  const { seen, weight, longest, at } = pixel;
  let most = -1;
  for (const kind of seen) if (most < 0 || weight[kind] > weight[most]) most = kind;
  if (most >= 0 && (pixel.drawn || pixel.total >= 0.5)) show(at, at + 1, pixel.own[most]);
  for (const kind of seen) weight[kind] = longest[kind] = 0;
  seen.length = 0;
  pixel.total = 0;
  pixel.drawn = false;
  pixel.at = next;
}

/** The whole run, a line for each shown row: the segments of pixels and the kinds with most time in them, [left,
 * right, kind] one after the other, WAITED where such a span waits. Spans inside others do not count, nor do spans
 * that only hold others. @type {(rows: Rows, times: Times, width: number) => number[][]} */
export function overview(rows, times, width) {
  const view = { from: times.low, scale: width / (times.high - times.low), width };
  return rows.shown.map((row) => {
    /** @type {number[]} */
    const found = [];
    columns(times, rows, view, outermostOf(rows, times, row), (left, right, i) => {
      const from = Math.max(left, 0);
      const to = Math.min(right, Math.ceil(width));
      const until = Math.round(((times.waited.get(i) ?? -Infinity) - view.from) * view.scale);
      const middle = clamp(until, from, to);
      if (middle > from) found.push(from, middle, WAITED);
      if (to > middle) found.push(middle, to, rows.kindOf[i]);
    });
    return found;
  });
}

/** The outermost spans of a row, without those that only hold others, in order of time.
 * @type {(rows: Rows, times: Times, row: number) => Int32Array} */
function outermostOf({ slots, holds, kindOf }, { start, end, quantum }, row) {
  const own = slots.filter((slot) => slot.row === row);
  const places = [];
  for (const { first, after } of own) for (let i = first; i < after; i++) if (!holds[kindOf[i]]) places.push(i);
  if (own.length > 1) places.sort((a, b) => start[a] - start[b] || end[b] - end[a]);
  let reached = -Infinity;
  return Int32Array.from(places.filter((i) => {
    const inside = end[i] <= reached + quantum && start[i] < reached;
    reached = Math.max(reached, end[i]);
    return !inside;
  }));
}
