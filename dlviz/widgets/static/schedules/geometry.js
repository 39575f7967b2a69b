// The explorer of schedules besides its rows, as plain objects: who receives from whom, strips, charts.
import { scaleLinear, scaleLog } from "../shared/scale.js";

/** @import { Side } from "./state.js" */

/** @typedef {[x: number, y: number]} Corner pixels */

/** @typedef {{ rank: number, base: number, corners: Corner[], area: Corner[], peak: number }} Strip */

/** @typedef {{ most: number, left: number, right: number, sides: Strip[][] }} Strips */

/** The bubble fraction `over` numbers of microbatches, for each schedule simulated and by its closed form.
 * @typedef {{ over: number[], lines: Record<string, (number | null)[]>, formulas: Record<string, (number | null)[]>
 *   }} Bubbles */

/** @typedef {{ place: number, m: number, value: number, measured?: boolean }} Point */

/** @typedef {{ value: number, at: number }} Mark */

/** @typedef {{ most: number, box: { left: number, right: number, top: number, bottom: number }, lines: { name:
 * string, simulated: Corner[], formula: Corner[] }[], points: (Point & { at: Corner })[], sizes: Mark[], shares:
 * Mark[] }} Chart */

const [LEFT, RIGHT, TOP, BOTTOM] = [40, 14, 8, 34]; // pixels around a chart

/** The action of a span, as schedules write it. @type {(side: Side, i: number) => string} */
export function nameOf(side, i) {
  return `${side.stage[i]}${side.kind[i]}${side.microbatch[i]}`;
}

/** The span that runs an action, or -1. @type {(side: Side, name: string) => number} */
export function spanOf(side, name) {
  for (let i = 0; i < side.count; i++) if (nameOf(side, i) === name) return i;
  return -1;
}

/** What ends a hole: the next action, and the last input that it receives.
 * @type {(side: Side, hole: { next: number }) => { action: number, source: number } | null} */
export function awaited(side, { next }) {
  if (next < 0) return null;
  const both = side.half[next] ? [next, next + 1] : [next];
  const wanted = both.filter((i) => side.source[i] >= 0);
  if (!wanted.length) return { action: next, source: -1 };
  const last = wanted.reduce((best, i) => (arrival(side, i) > arrival(side, best) ? i : best));
  return { action: last, source: side.source[last] };
}

/** When span i's input arrives, in seconds. @type {(side: Side, i: number) => number} */
export function arrival(side, i) {
  const from = side.source[i];
  return side.end[from] + (side.rank[from] === side.rank[i] ? 0 : side.latency);
}

/** The spans that receive from span i. @type {(side: Side, i: number) => number[]} */
export function receivers(side, i) {
  /** @type {number[]} */
  const found = [];
  side.source.forEach((from, j) => from === i && found.push(j));
  return found;
}

/** The span before or after span i on its rank, or at the same time on the rank `by` below.
 * @type {(side: Side, i: number, along: number, by: number) => number} */
export function neighbour(side, i, along, by) {
  if (along) {
    const next = i + along;
    return next >= side.first[side.rank[i]] && next < side.first[side.rank[i] + 1] ? next : i;
  }
  const rank = side.rank[i] + by;
  if (rank < 0 || rank >= side.ranks || !side.counts[rank]) return i;
  const middle = (side.start[i] + side.end[i]) / 2;
  let best = side.first[rank];
  /** @type {(j: number) => number} */
  const away = (j) => Math.max(side.start[j] - middle, middle - side.end[j], 0);
  for (let j = best; j < side.first[rank + 1]; j++) if (away(j) < away(best)) best = j;
  return best;
}

/** Activations in flight, in whole microbatches of a rank: for each rank the corners of a line over time and of the
 * `area` below it; `most` is as high as a row of `row` pixels.
 * @type {(sides: Side[], width: number, row: number) => Strips} */
export function stripsOf(sides, width, row) {
  const most = Math.max(...sides.flatMap((side) => side.peak.map((peak) => peak / side.chunks)), 1e-9);
  const last = Math.max(...sides.map((side) => side.makespan));
  const [left, right] = [58, 12 + 24 * sides.length];
  const x = scaleLinear([0, last], [left, width - right]);
  return {
    most, left, right: width - right,
    sides: sides.map((side) => side.held.map(({ time, many }, rank) => {
      const base = (rank + 1) * row - 3;
      /** @type {(held: number) => number} */
      const y = (held) => base - (held / side.chunks / most) * (row - 6);
      /** @type {Corner[]} */
      const corners = [];
      let level = 0;
      time.forEach((at, i) => {
        corners.push([x(at), y(level)], [x(at), y(many[i])]);
        level = many[i];
      });
      if (corners.length) corners.push([x(level ? side.makespan : time[time.length - 1]), y(level)]);
      /** @type {Corner[]} */
      const area = corners.length ? [...corners, [corners[corners.length - 1][0], base]] : [];
      return { rank, base, corners, area, peak: side.peak[rank] / side.chunks };
    })),
  };
}

/** The chart of the bubble fraction over m: for each schedule the closed form and the simulation, the present
 * `points` {m, value}, and axes. @type {(bubbles: Bubbles, points: Point[], width: number, height: number) => Chart} */
export function chartOf({ over, lines, formulas }, points, width, height) {
  const all = [...over, ...points.map(({ m }) => m)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const x = scaleLog([low, high], [LEFT, width - RIGHT]);
  const values = [...Object.values(lines).flat(), ...points.map(({ value }) => value)].filter((value) => value != null);
  const most = Math.min(1, Math.ceil(Math.max(0.1, ...values) * 10 + 0.2) / 10);
  const y = scaleLinear([0, most], [height - BOTTOM, TOP]);
  /** @type {(line: (number | null)[]) => Corner[]} */
  const placed = (line) => line.flatMap((value, i) => (value == null ? [] : [[x(over[i]), y(value)]]));
  const powers = Array.from({ length: 1 + Math.floor(Math.log2(high)) }, (_, i) => 2 ** i);
  const tenths = Array.from({ length: Math.round(most * 10) + 1 }, (_, i) => i / 10);
  return {
    most,
    box: { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM },
    lines: Object.entries(lines).map(([name, line]) =>
      ({ name, simulated: placed(line), formula: placed(formulas[name]) })),
    points: points.map((point) => ({ ...point, at: [x(point.m), y(point.value)] })),
    sizes: powers.filter((m) => m >= low).map((value) => ({ value, at: x(value) })),
    shares: tenths.filter((_, i) => most <= 0.5 || i % 2 === 0).map((value) => ({ value, at: y(value) })),
  };
}
