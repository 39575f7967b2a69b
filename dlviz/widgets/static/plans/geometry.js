// Step time over memory: the place of each plan and of the limit, and the plan at a point. Pure.
import { nearestPoint } from "../shared/chart.js";
import { scaleLog } from "../shared/scale.js";

/** @import { Mark } from "../shared/chart.js" */
/** @import { Scale } from "../shared/scale.js" */
/** @import { Plans } from "./state.js" */

const [LEFT, RIGHT, TOP, BOTTOM] = [58, 14, 14, 34]; // pixels
const ROOM = 1.25; // beyond the outermost plans, as a ratio
const NEAR = 9; // pixels from a plan to the pointer

/**
 * @typedef {object} Drawn
 * @property {Scale} x bytes
 * @property {Scale} y seconds
 * @property {Mark[]} across
 * @property {Mark[]} up
 * @property {[x: number, y: number][]} points of the plans
 * @property {number} cut x of the limit, within the picture
 */

/** The map of all plans in a picture of this size; `limit` in bytes.
 * @type {(plans: Plans, limit: number, width: number, height: number) => Drawn} */
export function mapOf({ memory, seconds }, limit, width, height) {
  const x = scaleLog(around(memory), [LEFT, width - RIGHT]);
  const y = scaleLog(around(seconds), [height - BOTTOM, TOP]);
  return {
    x, y, across: marks(x, 64), up: marks(y, 34),
    points: memory.map((bytes, i) => [x(bytes), y(seconds[i])]),
    cut: Math.max(LEFT, Math.min(width - RIGHT, x(limit))),
  };
}

/** @type {(values: number[]) => [number, number]} */
function around(values) {
  const [low, high] = values.reduce(([low, high], own) => [Math.min(low, own), Math.max(high, own)], [Infinity, 0]);
  return [low / ROOM, high * ROOM];
}

/** Round values of a logarithmic scale, at least `apart` pixels apart: as many of 1, 1.5, 2, 3, 5, 7 as fit.
 * @type {(scale: Scale, apart: number) => Mark[]} */
export function marks(scale, apart) {
  const [low, high] = scale.domain;
  for (const steps of [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    /** @type {Mark[]} */
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
      for (const step of steps) {
        const value = Number(`${step}e${power}`);
        if (value >= low && value <= high) found.push({ value, at: scale(value) });
      }
    }
    const near = found.some(({ at }, i) => i && Math.abs(at - found[i - 1].at) < apart);
    if (!near) return found;
    if (steps.length === 1) return found.filter((_, i) => i % 2 === 0);
  }
  return [];
}

/** The plan nearest to a point, within NEAR pixels; -1 if there is none.
 * @type {(drawn: Drawn, px: number, py: number) => number} */
export function planAt({ points }, px, py) {
  return nearestPoint(points, [px, py], NEAR);
}
