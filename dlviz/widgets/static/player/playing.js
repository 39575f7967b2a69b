// Moving through the rounds: step by step, or playing at a speed.
import { clamp } from "../shared/arrays.js";
import { roundSpoken } from "./words.js";

/** @import { Player } from "./state.js" */

/** `go` shows a round and stops; `play` plays or pauses. @typedef {{ go: (to: number) => void, step: (by: number) =>
 * void, play: (on: boolean) => void, faster: (by: number) => void, stop: () => void }} Travel */

export const SPEEDS = [0.25, 0.5, 1, 2, 4];
const BEAT = 1600; // ms between two rounds at speed 1

/** Moves a player through its rounds. @type {(player: Player) => Travel} */
export function travelling({ scene, now, show, say }) {
  const end = scene.frames.length - 1;
  let timer = 0;

  /** @type {(to: number, playing?: boolean) => void} */
  function go(to, playing = false) {
    if (!playing) clearTimeout(timer);
    const number = clamp(to, 0, end);
    if (number === now.number) return show({ playing });
    show({ number, playing, furthest: Math.max(now.furthest, number), verdict: "", pointed: null });
    say(roundSpoken(scene, number));
  }

  function wait() {
    timer = setTimeout(() => {
      go(now.number + 1, now.number + 1 < end);
      if (now.playing) wait();
    }, BEAT / SPEEDS[now.speed]);
  }

  /** @type {(on: boolean) => void} */
  function play(on) {
    if (on === now.playing) return;
    if (on && now.number === end) go(0);
    clearTimeout(timer);
    show(on ? { playing: true, predicting: false } : { playing: false });
    if (on) wait();
  }

  /** @type {(by: number) => void} */
  function faster(by) {
    show({ speed: clamp(now.speed + by, 0, SPEEDS.length - 1) });
    say(`speed ${SPEEDS[now.speed]}`);
  }

  return {
    go: (to) => go(to), step: (by) => go(now.number + by), play, faster, stop: () => clearTimeout(timer),
  };
}
