// The explorer of collectives as plain objects: prices and a size in, positions out.
import { nearest, segments } from "../shared/arrays.js";
import { scaleLog } from "../shared/scale.js";

/** @import { Box, Mark } from "../shared/chart.js" */
/** @import { Prices } from "./state.js" */
/** @import { Scale } from "../shared/scale.js" */

/** @typedef {{ row: number, winner: number, x: number, y: number, width: number, height: number }} Segment of a row */

/** The map of one network. `parts`: the segments that one algorithm wins; `found`: the ranks and the index in `sizes`
 * at a point.
 * @typedef {{ parts: Segment[], names: { winner: number, x: number, y: number, fits: boolean }[], box: Box, ranks:
 *   Mark[], sizes: Mark[], cell: (ranks: number, size: number) => { x: number, y: number, height: number }, found:
 *   (x: number, y: number) => { ranks: number, place: number } }} WinnerMap */

const TENS = [10, 100, 1000]; // steps between the marks of an axis
const [CHARACTER, NAME] = [6.6, 12]; // pixels of a name: a character's width, and the height
const [GUTTER, GAP, TITLE, SIZES] = [22, 14, 16, 18]; // pixels around the maps, and above and below each
const APART = 14; // least pixels between two marks of ranks

/** Powers of the first of `steps` that has at most `most` of them between low and high.
 * @type {(low: number, high: number, steps: number[], most: number) => number[]} */
function marksOf(low, high, steps, most) {
  /** @type {number[]} */
  let places = [];
  for (const step of steps) {
    /** @type {(value: number) => number} */
    const power = (value) => Math.log(value) / Math.log(step);
    const [first, last] = [Math.ceil(power(low) - 1e-9), Math.floor(power(high) + 1e-9)];
    places = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => step ** (first + i));
    if (places.length <= most) break;
  }
  return places;
}

/** @type {(scale: Scale, most: number) => Mark[]} */
const marked = (scale, most) => marksOf(...scale.domain, TENS, most).map((value) => ({ value, at: scale(value) }));

/** @type {(sizes: number[], box: Box) => Scale} */
const sizeScale = (sizes, { left, right }) => scaleLog([sizes[0], sizes[sizes.length - 1]], [left, right]);

/** The boxes of the maps, two side by side: room for a title above each, and for sizes below the lower ones.
 * @type {(count: number, width: number, height: number) => Box[]} */
export function boxesOf(count, width, height) {
  const wide = (width - GUTTER - 2 * GAP) / 2;
  const tall = (height - SIZES) / Math.ceil(count / 2);
  return Array.from({ length: count }, (_, i) => {
    const [left, top] = [GUTTER + (i % 2) * (wide + GAP), (i >> 1) * tall];
    return { left, right: left + wide, top: top + TITLE, bottom: top + tall };
  });
}

/** The map of winners: the segments of a row that one algorithm wins, and a name in each region.
 * @type {(data: Prices, map: number[][], box: Box) => WinnerMap} */
export function mapOf({ sizes, limits, algorithms }, map, box) {
  const x = sizeScale(sizes, box);
  const tall = (box.bottom - box.top) / map.length;
  /** @type {(row: number) => number} */
  const top = (row) => box.bottom - (row + 1) * tall;
  const parts = map.flatMap((winners, row) => segments(winners).map(({ value: winner, first, last }) => {
    const [left, right] = edges(x, sizes, first, last);
    return { row, winner, x: left, y: top(row), width: right - left, height: tall };
  }));
  return {
    parts, box,
    names: [...new Set(parts.map(({ winner }) => winner))].map((winner) =>
      nameOf(parts.filter((own) => own.winner === winner), CHARACTER * algorithms[winner].length)),
    cell: (ranks, size) => ({ x: x(size), y: top(ranks - limits.ranks[0]), height: tall }),
    ranks: map.map((_, row) => ({ value: limits.ranks[0] + row, at: top(row) + tall / 2 }))
      .filter(({ value }) => value % 2 ** Math.ceil(Math.log2(Math.max(2, APART / tall))) === 0),
    sizes: marked(x, (box.right - box.left) / 70),
    found(px, py) {
      const row = Math.min(map.length - 1, Math.max(0, Math.floor((box.bottom - py) / tall)));
      return { ranks: limits.ranks[0] + row, place: nearest(sizes.map(x), px) };
    },
  };
}

/** Where cells of sizes begin and end: half-way to the next size.
 * @type {(x: Scale, sizes: number[], first: number, last: number) => number[]} */
function edges(x, sizes, first, last) {
  const half = (x(sizes[1]) - x(sizes[0])) / 2;
  const [left, right] = x.range;
  return [Math.max(left, x(sizes[first]) - half), Math.min(right, x(sizes[last]) + half)];
}

/** The place of a name in its largest region: the middle row or, if that is too narrow, the widest.
 * @type {(parts: Segment[], needed: number) => WinnerMap["names"][number]} */
function nameOf(parts, needed) {
  /** @type {Segment[][]} */
  const regions = []; // its parts in rows on top of each other
  for (const part of parts) {
    const last = regions.at(-1);
    if (last && /** @type {Segment} */ (last.at(-1)).row + 1 === part.row) last.push(part);
    else regions.push([part]);
  }
  /** @type {(region: Segment[]) => number} */
  const area = (region) => region.reduce((sum, own) => sum + own.width, 0);
  const largest = regions.reduce((most, region) => (area(region) > area(most) ? region : most));
  const widest = largest.reduce((most, part) => (part.width > most.width ? part : most));
  const middle = largest[largest.length >> 1];
  const { winner, x, y, width, height } = middle.width > needed ? middle : widest;
  const fits = width > needed && largest.length * height >= NAME;
  return { winner, x: x + width / 2, y: y + height / 2, fits };
}
