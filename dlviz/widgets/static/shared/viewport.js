// The part of a picture in view: zoom, pan, fit, back and forward.
import { clamp } from "./arrays.js";

/** @import { State } from "./state.js" */

/** @typedef {{ from: number, to: number }} Part seconds */

/**
 * @typedef {object} Viewport
 * @property {(from: number, to: number) => void} show
 * @property {(factor: number, time?: number) => void} zoom by a factor, about the middle or a moment
 * @property {(share: number) => void} pan by a share of what is in view
 * @property {() => void} fitAll
 * @property {(from: number, to: number) => void} fit shows an interval and a little around it
 * @property {(from: number, to: number) => void} centre centres an interval, at the present zoom
 * @property {() => boolean} back to the previous part; false if there is none
 * @property {() => boolean} forward
 */

const SAME = 500; // ms: faster changes count as one
const STORED = 50; // parts to go back to

/** The part in view, a state's `from` and `to`; `limits()` is the whole and the shortest part.
 * @type {(shown: State<any>, limits: () => Part & { least: number }) => Viewport} */
export function viewport(shown, limits) {
  const { now } = shown;
  /** @type {Part[]} */
  let past = [];
  /** @type {Part[]} */
  let future = [];
  let changed = -Infinity;

  /** @type {(from: number, to: number) => void} */
  function show(from, to) {
    const time = performance.now();
    if (time - changed > SAME) {
      past = [...past.slice(-STORED), { from: now.from, to: now.to }];
      future = [];
    }
    changed = time;
    put(from, to);
  }

  /** @type {(from: number, to: number) => void} */
  function put(from, to) {
    const { from: low, to: high, least } = limits();
    const length = clamp(to - from, Math.min(least, high - low), high - low);
    const begin = clamp(from, low, high - length);
    shown.set({ from: begin, to: begin + length });
  }

  /** @type {(here: Part[], there: Part[]) => boolean} */
  function step(here, there) {
    const part = here.pop();
    if (!part) return false;
    there.push({ from: now.from, to: now.to });
    changed = -Infinity;
    put(part.from, part.to);
    return true;
  }

  return {
    show,
    zoom(factor, time = (now.from + now.to) / 2) {
      show(time - (time - now.from) * factor, time + (now.to - time) * factor);
    },
    pan(share) {
      const by = share * (now.to - now.from);
      show(now.from + by, now.to + by);
    },
    fitAll: () => show(limits().from, limits().to),
    fit(from, to) {
      const room = Math.max((to - from) * 0.08, limits().least / 2);
      show(from - room, to + room);
    },
    centre(from, to) {
      const half = (now.to - now.from) / 2;
      show((from + to) / 2 - half, (from + to) / 2 + half);
    },
    back: () => step(past, future),
    forward: () => step(future, past),
  };
}
