// Reads the kernel's answers: sides, read once each, and pictures sent ahead.
import { aheadOf } from "../shared/ahead.js";
import { spanOf } from "./geometry.js";
import { readSide } from "./state.js";
import { sideWords } from "./words.js";

/** @import { Ahead } from "../shared/ahead.js" */
/** @import { Chosen, Data, Explorer, Now } from "./context.js" */
/** @import { Side } from "./state.js" */
/** @import { Run } from "./words.js" */

export const NOTHING = { side: -1, span: -1, hole: -1, name: "" };

/** What can be shown before the kernel answers: pictures sent ahead, of sizes a little further along the moved
 * slider. @type {(data: Data, controls: Record<string, any>, ahead: Ahead) => Data} */
export function foresee(data, controls, ahead) {
  const sides = aheadOf(data, controls, ahead);
  return sides ? { ...data, controls, sides, run: null } : data;
}

/** Reads the sides at each new answer; the same action stays chosen, and a whole view stays whole.
 * @type {(own: Explorer) => void} */
export function reading(own) {
  const { shown, frame } = own;
  const { now } = shown;
  let [ran, read, said] = [now.data.ran, now.data.sides, saidOf(now.data)];

  shown.paints(["data"], () => {
    const { data } = now;
    if (data.ran !== ran) shown.set({ away: Boolean(data.run?.start) });
    if (data.sides !== read) {
      const whole = isWhole(now);
      const sides = data.sides.map(readSide);
      shown.set({ sides, chosen: found(sides, now.chosen), pointed: NOTHING });
      if (whole) shown.set({ from: 0, to: lastOf(now) });
    }
    if (data.chart) shown.set({ chart: data.chart });
    if (data.csv != null) shown.set({ csv: data.csv });
    const words = saidOf(data);
    if (words !== said && !data.error) frame.say(now.sides.map(sideWords).join(" "));
    [ran, read, said] = [data.ran, data.sides, words];
  });
}

/** @type {(data: Data) => string} when this changes, screen readers read the sides */
function saidOf({ controls, level, error }) {
  return JSON.stringify([controls, level, error]);
}

/** The same action in new sides. @type {(sides: Side[], chosen: Chosen) => Chosen} */
function found(sides, { side, span, name }) {
  if (span < 0 || !name || !sides[side] || sides[side].error) return NOTHING;
  const place = spanOf(sides[side], name);
  return place < 0 ? NOTHING : { side, span: place, hole: -1, name };
}

/** The sides without an error. @type {(now: Now) => Side[]} */
export function drawable({ sides }) {
  return sides.filter((side) => !side.error);
}

/** The end of the last shown side, in seconds. @type {(now: Now) => number} */
export function lastOf(now) {
  return Math.max(1e-9, ...drawable(now).map(({ makespan }) => makespan), ranOf(now)?.seconds ?? 0) * 1.002;
}

/** The run, if there is something to show. @type {(now: Now) => Run | null} */
export function ranOf({ data }) {
  return data.run?.start ? data.run : null;
}

/** Whether all is in view. @type {(now: Now) => boolean} */
export function isWhole(now) {
  return now.from <= 0 && now.to >= lastOf(now) * 0.999;
}
