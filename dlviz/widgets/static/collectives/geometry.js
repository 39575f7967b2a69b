// What the explorer of collectives draws, as plain objects: its state and a size in, positions out.

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 26, 8, 36]; // pixels around a chart
const TENS = [10, 100, 1000]; // steps between the marks of an axis
const LETTER = 7; // pixels of a name

/** A logarithmic axis from `low` to `high`, at `from` to `to` pixels. */
function axisOf(low, high, from, to) {
  const scale = (to - from) / Math.log(high / low);
  return (value) => from + Math.log(value / low) * scale;
}

/** Powers of the first of `steps` of which at most `most` lie between low and high. */
export function marksOf(low, high, steps, most) {
  let places = [];
  for (const step of steps) {
    const [first, last] = [Math.ceil(Math.log(low) / Math.log(step) - 1e-9), Math.floor(Math.log(high) / Math.log(step) + 1e-9)];
    places = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => step ** (first + i));
    if (places.length <= most) break;
  }
  return places;
}

/** Lines of seconds over size, where another becomes the cheapest, what was measured, and axes. */
export function chartOf({ sizes, curves, cheapest, run, algorithms }, width, height) {
  const all = Object.values(curves).flat();
  const measured = run?.measured ? [run.measured] : [];
  const [low, high] = [Math.min(...all, ...measured) / 1.3, Math.max(...all, ...measured) * 1.3];
  const x = axisOf(sizes[0], sizes.at(-1), LEFT, width - RIGHT);
  const y = axisOf(low, high, height - BOTTOM, TOP);
  const lines = algorithms.map((name) => ({ name, points: curves[name].map((took, i) => [x(sizes[i]), y(took)]) }));
  const best = sizes.map((size, i) => [x(size), y(Math.min(...algorithms.map((name) => curves[name][i])))]);
  const at = (size, name) => {
    const next = Math.max(1, sizes.findIndex((own) => own >= size));
    const share = (size - sizes[next - 1]) / (sizes[next] - sizes[next - 1]);
    return curves[name][next - 1] * (1 - share) + curves[name][next] * share;
  };
  return {
    x, y, lines, best,
    box: { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM },
    crossed: cheapest.slice(1).map(([size, after], i) => ({ size, before: cheapest[i][1], after, x: x(size), y: y(at(size, after)) })),
    measured: measured.length ? { name: run.algorithm, x: x(run.nbytes), y: y(run.measured) } : null,
    sizes: marksOf(sizes[0], sizes.at(-1), TENS, (width - 80) / 70).map((value) => ({ value, at: x(value) })),
    seconds: marksOf(low, high, TENS, 8).map((value) => ({ value, at: y(value) })),
  };
}

/** The map of winners: stretches of a row that one algorithm wins, and a name in each region, in its
 *  middle row or where that is too narrow in its widest one. */
export function mapOf({ sizes, map, limits, algorithms }, width, height) {
  const x = axisOf(sizes[0], sizes.at(-1), LEFT, width - RIGHT);
  const half = (x(sizes[1]) - x(sizes[0])) / 2;
  const tall = (height - BOTTOM - TOP) / map.length;
  const top = (row) => height - BOTTOM - (row + 1) * tall;
  const parts = [];
  map.forEach((winners, row) => {
    let first = 0;
    for (let i = 1; i <= winners.length; i++) {
      if (winners[i] === winners[first]) continue;
      const [left, right] = [Math.max(LEFT, x(sizes[first]) - half), Math.min(width - RIGHT, x(sizes[i - 1]) + half)];
      parts.push({ row, winner: winners[first], x: left, y: top(row), width: right - left, height: tall });
      first = i;
    }
  });
  const names = [...new Set(parts.map(({ winner }) => winner))].map((winner) => {
    const regions = []; // its parts in rows on top of each other
    for (const part of parts.filter((own) => own.winner === winner)) {
      const last = regions.at(-1);
      if (last && last.at(-1).row + 1 === part.row) last.push(part);
      else regions.push([part]);
    }
    const area = (region) => region.reduce((sum, own) => sum + own.width, 0);
    const largest = regions.reduce((most, region) => (area(region) > area(most) ? region : most));
    const needed = LETTER * algorithms[winner].length;
    const widest = largest.reduce((most, part) => (part.width > most.width ? part : most));
    const middle = largest[largest.length >> 1];
    const own = middle.width > needed ? middle : widest;
    return { winner, x: own.x + own.width / 2, y: own.y + tall / 2, width: own.width, fits: own.width > needed };
  });
  return {
    parts, names,
    box: { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM },
    cell: (ranks, size) => ({ x: x(size), y: top(ranks - limits.ranks[0]), height: tall }),
    ranks: map.map((_, row) => ({ value: limits.ranks[0] + row, at: top(row) + tall / 2 })),
    sizes: marksOf(sizes[0], sizes.at(-1), TENS, (width - 80) / 70).map((value) => ({ value, at: x(value) })),
    /** The ranks and the place in `sizes` at a point. */
    found(px, py) {
      const row = Math.min(map.length - 1, Math.max(0, Math.floor((height - BOTTOM - py) / tall)));
      return { ranks: limits.ranks[0] + row, place: nearest(sizes.map(x), px) };
    },
  };
}

/** The place of the value that is nearest. */
export function nearest(values, to) {
  return values.reduce((best, value, i) => (Math.abs(value - to) < Math.abs(values[best] - to) ? i : best), 0);
}
