// What the explorer of schedules draws, as plain objects: its state and the part in view in, positions out.
import { clamp, column } from "../shared/arrays.js";
import { pathBoxes } from "../timeline/geometry.js";

const ROOM = 176; // pixels of all rows together, if they can be
const [LOWEST, HIGHEST] = [8, 24]; // pixels of a bar
const LABEL = 6.6; // pixels of a character
const [LEFT, RIGHT, TOP, BOTTOM] = [40, 14, 8, 34]; // pixels around a chart

/** A simulated schedule, read into columns; spans first[r] to first[r+1]-1 are those of rank r. */
export function readSide(side) {
  if (side.error) return side;
  const count = side.kind.length;
  const first = [0];
  for (const many of side.counts) first.push(first.at(-1) + many);
  const rank = new Int32Array(count);
  side.counts.forEach((_, r) => rank.fill(r, first[r], first[r + 1]));
  const start = column(side.start, count);
  const length = column(side.length, count);
  const own = {
    ...side, count, first, rank, start,
    end: start.map((time, i) => time + length[i]),
    stage: column(side.stage, count),
    microbatch: column(side.microbatch, count),
    half: column(side.half, count),
    source: column(side.source, count),
    held: heldBy(side),
  };
  return { ...own, holes: holesOf(own) };
}

/** What is held on each rank: times, and how many from then on. */
function heldBy({ held, counts }) {
  const total = held.counts.reduce((sum, many) => sum + many, 0);
  const [time, many] = [column(held.time, total), column(held.many, total)];
  let from = 0;
  return counts.map((_, rank) => {
    const to = from + held.counts[rank];
    const own = { time: time.slice(from, to), many: many.slice(from, to) };
    from = to;
    return own;
  });
}

/** The stretches in which a rank does nothing: until span `next` starts, -1 behind its last one. */
function holesOf({ first, start, end, makespan, ranks }) {
  const found = [];
  const least = makespan * 1e-7;
  for (let rank = 0; rank < ranks; rank++) {
    let reached = 0;
    for (let i = first[rank]; i < first[rank + 1]; i++) {
      if (start[i] - reached > least) found.push({ rank, from: reached, to: start[i], next: i });
      reached = Math.max(reached, end[i]);
    }
    if (makespan - reached > least) found.push({ rank, from: reached, to: makespan, next: -1 });
  }
  return found;
}

/** The action that a span runs, as schedules write it. */
export function nameOf(side, i) {
  return `${side.stage[i]}${side.kind[i]}${side.microbatch[i]}`;
}

/** The span that runs an action, or -1. */
export function spanOf(side, name) {
  for (let i = 0; i < side.count; i++) if (nameOf(side, i) === name) return i;
  return -1;
}

/** What ends a hole: the last to come of what its next action receives, and that action. */
export function awaited(side, { next }) {
  if (next < 0) return null;
  const both = side.half[next] ? [next, next + 1] : [next];
  const wanted = both.filter((i) => side.source[i] >= 0);
  if (!wanted.length) return { action: next, source: -1 };
  const last = wanted.reduce((best, i) => (arrival(side, i) > arrival(side, best) ? i : best));
  return { action: last, source: side.source[last] };
}

/** When what span i receives is there. */
export function arrival(side, i) {
  const from = side.source[i];
  return side.end[from] + (side.rank[from] === side.rank[i] ? 0 : side.latency);
}

/** The spans that receive from span i. */
export function receivers(side, i) {
  const found = [];
  side.source.forEach((from, j) => from === i && found.push(j));
  return found;
}

/** How high the rows are where `ranks` of them, of one of several `sides`, have bars, with what was measured below each. */
function rowsOf(ranks, sides, measured) {
  const gap = ranks > 8 ? 2 : 5;
  const room = sides > 1 ? (measured ? 0.5 : 0.45) * ROOM : ROOM;
  const bar = clamp(Math.floor((room / ranks - gap) / (measured ? 1.8 : 1)), LOWEST, HIGHEST);
  const row = bar * (measured ? 1.8 : 1) + gap;
  return { bar, below: measured ? bar * 0.72 : 0, row, height: row * ranks };
}

/**
 * The draw list of a side, one of `view.sides`: `bars` holds x, y, width, height and span one after
 * the other, `measured` the same; holes, labels, and the boxes of the critical path.
 */
export function drawList(side, view, run = null) {
  const rows = rowsOf(side.ranks, view.sides ?? 1, run);
  const scale = view.width / (view.to - view.from);
  const x = (time) => (time - view.from) * scale;
  const list = { rows, bars: [], labels: [], holes: [], measured: [], path: [] };
  const room = String(side.microbatches - 1).length * LABEL + 2; // where the longest number has none, none is shown
  for (let i = 0; i < side.count; i++) {
    const [left, right] = [x(side.start[i]), x(side.end[i])];
    const [y, height] = barOf(side, i, rows);
    if (right >= -1 && left <= view.width + 1) {
      list.bars.push(left, y, Math.max(right - left, 0.5), height, i);
      const [a, b] = [Math.max(left, 0), Math.min(right, view.width)];
      if (height >= 9 && right - left >= room && b - a >= room / 2) list.labels.push({ text: String(side.microbatch[i]), span: i, x: (a + b) / 2, y: y + height / 2 });
    }
    if (run && run.start[i] != null) {
      const [a, b] = [x(run.start[i]), x(run.start[i] + run.length[i])];
      const share = side.half[i] ? 0.5 : 1;
      const top = side.rank[i] * rows.row + rows.bar + 1 + (side.half[i] === 2 ? rows.below / 2 : 0);
      list.measured.push(a, top, Math.max(b - a, 0.5), rows.below * share - 1, i);
    }
  }
  for (const [place, hole] of side.holes.entries()) {
    const [left, right] = [x(hole.from), x(hole.to)];
    if (right < 0 || left > view.width || right - left < 1) continue;
    list.holes.push({ x: left, y: hole.rank * rows.row, width: right - left, height: rows.bar, hole: place });
  }
  if (view.path) {
    const parts = side.path.map((i) => {
      const [top, height] = barOf(side, i, rows);
      return { from: side.start[i], to: side.end[i], top, bottom: top + height };
    });
    list.path = pathBoxes(parts, x, view.width, side.makespan * 1e-7);
  }
  return list;
}

function barOf(side, i, { row, bar }) {
  const top = side.rank[i] * row;
  if (!side.half[i]) return [top, bar];
  return [top + (side.half[i] === 2 ? bar / 2 : 0), bar / 2];
}

/** What lies at a point of a draw list: a span, or a hole (its place); or null. */
export function hit(list, px, py) {
  for (const bars of [list.bars, list.measured]) {
    for (let i = 0; i < bars.length; i += 5) {
      const inside = py >= bars[i + 1] && py < bars[i + 1] + bars[i + 3];
      if (inside && px >= bars[i] - 0.5 && px < bars[i] + bars[i + 2] + 0.5) return { span: bars[i + 4], measured: bars === list.measured };
    }
  }
  const hole = list.holes.find((box) => px >= box.x && px < box.x + box.width && py >= box.y && py < box.y + box.height);
  return hole ? { hole: hole.hole } : null;
}

/** The span before or after span i on its rank, or on the rank `by` below at the same time. */
export function neighbour(side, i, along, by) {
  if (along) {
    const next = i + along;
    return next >= side.first[side.rank[i]] && next < side.first[side.rank[i] + 1] ? next : i;
  }
  const rank = side.rank[i] + by;
  if (rank < 0 || rank >= side.ranks || !side.counts[rank]) return i;
  const middle = (side.start[i] + side.end[i]) / 2;
  let best = side.first[rank];
  const away = (j) => Math.max(side.start[j] - middle, middle - side.end[j], 0);
  for (let j = best; j < side.first[rank + 1]; j++) if (away(j) < away(best)) best = j;
  return best;
}

/**
 * Activations in flight, counted in whole microbatches of a rank: of each rank the corners of a line
 * over time and of the `area` below it, `most` as high as a row.
 */
export function stripsOf(sides, width, row) {
  const most = Math.max(...sides.flatMap((side) => side.peak.map((peak) => peak / side.chunks)), 1e-9);
  const last = Math.max(...sides.map((side) => side.makespan));
  const [left, right] = [58, 12 + 24 * sides.length];
  const x = (time) => left + (time / last) * (width - left - right);
  return {
    most, left, right: width - right,
    sides: sides.map((side) => side.held.map(({ time, many }, rank) => {
      const base = (rank + 1) * row - 3;
      const y = (held) => base - (held / side.chunks / most) * (row - 6);
      const corners = [];
      let level = 0;
      time.forEach((at, i) => {
        corners.push([x(at), y(level)], [x(at), y(many[i])]);
        level = many[i];
      });
      if (corners.length) corners.push([x(level ? side.makespan : time.at(-1)), y(level)]);
      const area = corners.length ? [...corners, [corners.at(-1)[0], base]] : [];
      return { rank, base, corners, area, peak: side.peak[rank] / side.chunks };
    })),
  };
}

/**
 * The chart of the bubble fraction over m: of each schedule the closed form and what was simulated,
 * the present `points` {m, value}, and axes.
 */
export function chartOf({ over, lines, formulas }, points, width, height) {
  const all = [...over, ...points.map(({ m }) => m)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const span = Math.log2(high / low) || 1;
  const x = (m) => LEFT + (Math.log2(m / low) / span) * (width - LEFT - RIGHT);
  const values = [...Object.values(lines).flat(), ...points.map(({ value }) => value)].filter((value) => value != null);
  const most = Math.min(1, Math.ceil(Math.max(0.1, ...values) * 10 + 0.2) / 10);
  const y = (value) => height - BOTTOM - (value / most) * (height - BOTTOM - TOP);
  const placed = (line) => line.map((value, i) => (value == null ? null : [x(over[i]), y(value)])).filter(Boolean);
  return {
    most,
    box: { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM },
    lines: Object.entries(lines).map(([name, line]) => ({ name, simulated: placed(line), formula: placed(formulas[name]) })),
    points: points.map((point) => ({ ...point, at: [x(point.m), y(point.value)] })),
    sizes: Array.from({ length: 1 + Math.floor(Math.log2(high)) }, (_, i) => 2 ** i).filter((m) => m >= low).map((value) => ({ value, at: x(value) })),
    shares: Array.from({ length: Math.round(most * 10) + 1 }, (_, i) => i / 10)
      .filter((_, i) => most <= 0.5 || i % 2 === 0).map((value) => ({ value, at: y(value) })),
  };
}
