// The explorer of tensor parallelism as plain objects: matrices and a map in, positions out.
import { clamp, segments } from "../shared/arrays.js";
import { apart } from "../shared/chart.js";
import { scaleLog } from "../shared/scale.js";

/** @import { Box as Sides, Mark } from "../shared/chart.js" */
/** @import { Scale } from "../shared/scale.js" */
/** @import { Block, CostMap, Layer, Matrix } from "./state.js" */

/** @typedef {{ x: number, y: number, width: number, height: number }} Box pixels */

/** @typedef {Box & { rank: number, block: Block }} Sheet a rank's block */

/** A placed matrix: the blocks of the ranks, those at the back first, and the places of its words, if they fit.
 * @typedef {Box & { matrix: Matrix, sheets: Sheet[], middle: number, name: number, made: number, fits: boolean }}
 *   Placed */

/** @typedef {{ x1: number, x2: number, y: number, matrix: Matrix, pass: number }} Arrow */

/** @typedef {{ matrices: Placed[], signs: { x: number, y: number, text: string }[], arrows: Arrow[] }} Picture */

const [SMALL, LARGE] = [14, 62]; // pixels of a side
const [STACK, SHEET] = [14, 4]; // pixels of all sheets of a stack, of one at most
const [EDGE, SIGN, MOVE] = [9, 22, 46]; // pixels at the edges, of a sign between two columns, of a collective
const [NAME, MADE, CHARACTER] = [30, 13, 5.6]; // pixels above a matrix, below it, and of a character there

/** The matrices in columns, those of the backward below those of the forward.
 * @type {(data: Pick<Layer, "matrices" | "sizes">, width: number, height: number) => Picture} */
export function pictureOf({ matrices, sizes }, width, height) {
  const gaps = matrices[0].slice(1).map((_, i) => (matrices.some((row) => row[i]?.goes) ? MOVE : SIGN));
  const wide = (width - 2 * EDGE - gaps.reduce((sum, gap) => sum + gap, 0)) / matrices[0].length;
  const tall = height / matrices.length;
  const most = Math.max(SMALL, Math.min(LARGE, wide - STACK, tall - NAME - MADE - STACK));
  /** @type {(column: number) => number} */
  const left = (column) => EDGE + column * wide + gaps.slice(0, column).reduce((sum, gap) => sum + gap, 0);
  /** @type {(size: number) => number} */
  const side = (size) => SMALL + (most - SMALL) * (Math.log(size) / Math.log(sizes[sizes.length - 1]));
  /** @type {Picture} */
  const picture = { matrices: [], signs: [], arrows: [] };
  matrices.forEach((row, pass) => {
    const y = pass * tall + NAME + (tall - NAME - MADE) / 2;
    row.forEach((matrix, column) => {
      if (!matrix) return;
      const x = left(column) + wide / 2;
      const next = row.findIndex((own, i) => i > column && own);
      picture.matrices.push({
        ...placed(matrix, x, y, side), middle: x, name: pass * tall + 10, made: (pass + 1) * tall - MADE + 4,
        fits: matrix.made.length * CHARACTER < wide + SIGN,
      });
      if (matrix.sign) picture.signs.push({ x: (x + left(next) + wide / 2) / 2, y, text: matrix.sign });
      if (matrix.goes) {
        const middle = left(column) + wide + MOVE / 2;
        const half = matrix.goes * (MOVE / 2 - 6);
        picture.arrows.push({ x1: middle - half, x2: middle + half, y, matrix, pass });
      }
    });
  });
  return picture;
}

/** A matrix around a point.
 * @type {(matrix: Matrix, x: number, y: number, side: (size: number) => number) => Box & { matrix: Matrix, sheets:
 *   Sheet[] }} */
function placed(matrix, x, y, side) {
  const [rows, columns] = matrix.shape;
  const [height, width] = matrix.shape.map(side);
  const before = depths(matrix.blocks);
  const most = Math.max(...before);
  const step = most ? Math.min(SHEET, STACK / most) : 0;
  const [left, top] = [x - (width + most * step) / 2, y - (height - most * step) / 2];
  const sheets = matrix.blocks.map((block, rank) => {
    const [a, b, c, d] = block;
    const off = before[rank] * step;
    return {
      rank, block, x: left + (c / columns) * width + off, y: top + (a / rows) * height - off,
      width: ((d - c) / columns) * width, height: ((b - a) / rows) * height,
    };
  });
  return {
    matrix, sheets: sheets.reverse(), x: left, y: top - most * step, width: width + most * step,
    height: height + most * step,
  };
}

/** How many sheets lie in front of each: those of earlier ranks with the same block.
 * @type {(blocks: Block[]) => number[]} */
function depths(blocks) {
  const seen = new Map();
  return blocks.map((block) => {
    const own = block.join();
    const before = seen.get(own) ?? 0;
    seen.set(own, before + 1);
    return before;
  });
}

/** The map: B to the right, C_out up. `across`: marks of B; `up`: marks of C_out.
 * @typedef {{ x: Scale, y: Scale, regions: { form: string, points: number[][], middle: number[], fits: boolean }[],
 *   lines: { says: string, from: number[], to: number[] }[], across: Mark[], up: Mark[] }} Drawn */

const [LEFT, RIGHT, TOP, BOTTOM] = [38, 16, 6, 32]; // pixels around the map
const FITS = 2200; // square pixels that the name of a region needs

/** Regions, the lines between them, and axes.
 * @type {(data: Pick<Layer, "sizes"> & { map: CostMap }, width: number, height: number) => Drawn} */
export function mapOf({ sizes, map }, width, height) {
  /** @type {[number, number]} */
  const all = [sizes[0], sizes[sizes.length - 1]];
  const x = scaleLog(all, [LEFT, width - RIGHT]);
  const y = scaleLog(all, [height - BOTTOM, TOP]);
  const { columns, best, threshold } = map;
  const edge = columns.map((outputs, i) => [x(Math.min(all[1], Math.max(all[0], threshold[i]))), y(outputs)]);
  const right = x(all[1]);
  const marks = sizes.filter((size) => Number.isInteger(Math.log2(size) / 2));
  return {
    x, y,
    regions: [
      regionOf(map.data, [...edge, [right, y(all[1])], [right, y(all[0])]]),
      ...segments(best).map(({ value: form, first, last }) => {
        const own = edge.slice(first, Math.min(last + 2, edge.length)); // up to the next segment
        return regionOf(form, [...own, [x(all[0]), own[own.length - 1][1]], [x(all[0]), own[0][1]]]);
      }),
    ],
    lines: map.lines.map(({ says, ends: [from, to] }) =>
      ({ says, from: [x(from[0]), y(from[1])], to: [x(to[0]), y(to[1])] })),
    across: marks.map((value) => ({ value, at: x(value) })),
    up: marks.map((value) => ({ value, at: y(value) })),
  };
}

const [BOLD, PLAIN, ASIDE] = [6.6, 5.8, 4]; // pixels of a character of a region's name, of a line's; beside a line
const SPOT = 7; // pixels around the chosen sizes

/** The names of the regions and of the lines, placed clear of the chosen sizes.
 * @type {(map: Drawn, nameOf: (form: string) => string, spot: number[]) => (Sides & { says: string, line: boolean,
 *   x: number, y: number })[]} */
export function labelsOf({ x, y, regions, lines }, nameOf, [cx, cy]) {
  const [left, right] = x.range;
  const [bottom, top] = y.range;
  const names = regions.filter(({ fits }) => fits).map(({ form, middle: [mx, my] }) => {
    const says = nameOf(form);
    const width = BOLD * says.length;
    const at = clamp(mx, left + width / 2, right - width / 2);
    return { says, line: false, width, places: [0, 13, -13, 26, -26].map((off) => [at, my + off]) };
  });
  const edges = lines.map((line) => {
    const width = PLAIN * line.says.length;
    return { says: line.says, line: true, width, places: besideLine(line, width, { left, right, top, bottom }) };
  });
  const taken = { left: cx - SPOT, right: cx + SPOT, top: cy - SPOT, bottom: cy + SPOT };
  return apart([...names, ...edges], { left, right, top, bottom }, [taken]);
}

/** Possible places of a line's name: along the line, on either side.
 * @type {(line: { from: number[], to: number[] }, width: number, box: Sides) => number[][]} */
function besideLine({ from: [ax, ay], to: [bx, by] }, width, { left, right, top, bottom }) {
  const half = width / 2;
  const shares = [0.08, 0.25, 0.5, 0.75, 0.92];
  if (ax === bx) {
    return shares.flatMap((share) => [1, -1].map((side) => [ax + side * (half + ASIDE), top + share * (bottom - top)]));
  }
  if (ay === by) {
    return shares.flatMap((share) => [-1, 1].map((side) =>
      [clamp(left + share * (right - left), left + half, right - half), ay + side * (ASIDE + 5)]));
  }
  return shares.flatMap((share) => [1, -1].map((side) =>
    [ax + share * (bx - ax) + side * (half + ASIDE + 3), ay + share * (by - ay) + side * 5]));
}

/** A region, and its centre of mass. @type {(form: string, points: number[][]) => Drawn["regions"][number]} */
function regionOf(form, points) {
  let [area, cx, cy] = [0, 0, 0];
  points.forEach(([ax, ay], i) => {
    const [bx, by] = points[(i + 1) % points.length];
    const cross = ax * by - bx * ay;
    area += cross / 2;
    cx += (cross * (ax + bx)) / 6;
    cy += (cross * (ay + by)) / 6;
  });
  return { form, points, middle: area ? [cx / area, cy / area] : points[0], fits: Math.abs(area) > FITS };
}
