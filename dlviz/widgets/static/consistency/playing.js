// Moving through a run: to a moment, from message to message, or playing.
import { clamp } from "../shared/arrays.js";
import { advanced, doingAt, stepped } from "./geometry.js";
import { momentWords } from "./words.js";

/** @import { Consistency } from "./state.js" */

/**
 * @typedef {object} Travel
 * @property {(at: number) => void} go to a moment, and stop there
 * @property {(forward: boolean) => void} step to the next, or previous, moment at which a message leaves or arrives
 * @property {() => void} turn play or pause
 * @property {() => void} stop
 */

const BEAT = 500; // ms between two messages if motion is not wanted

/** @type {(own: Consistency) => Travel} */
export function travelling({ shown, frame }) {
  const { now } = shown;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let asked = 0;
  let before = 0; // ms: time of the last frame

  const side = () => now[now.which] ?? now.predicted;

  /** @type {(at: number, playing: boolean) => void} */
  function show(at, playing) {
    const { from, to } = now;
    const seen = to - from;
    const away = at < from || at > to;
    const begin = away ? clamp(at - 0.1 * seen, 0, Math.max(0, side().last - seen)) : from;
    shown.set({ at, playing, from: begin, to: begin + seen });
  }

  /** @type {(at: number) => void} */
  function go(at) {
    cancelAnimationFrame(asked);
    show(clamp(at, 0, side().last), false);
    shown.flush();
    frame.say(momentWords(side(), now.data.shown, now.at, doingAt(side(), now.at)));
  }

  /** @type {(time: number) => void} */
  function play(time) {
    const passed = Math.min(time - before, BEAT);
    if (!still.matches || passed >= BEAT) {
      before = time;
      const at = still.matches ? stepped(side(), now.at, true) : advanced(side(), now.at, passed);
      show(at, at < side().last);
    }
    if (now.playing) asked = requestAnimationFrame(play);
  }

  return {
    go,
    step: (forward) => go(stepped(side(), now.at, forward)),
    turn() {
      if (now.playing) return go(now.at);
      shown.set({ at: now.at < side().last ? now.at : 0, playing: true });
      before = performance.now();
      asked = requestAnimationFrame(play);
    },
    stop: () => cancelAnimationFrame(asked),
  };
}
