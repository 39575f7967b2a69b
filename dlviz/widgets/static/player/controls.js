// The player's controls: buttons and keys, the slider, and the line about the shown round.
import { h, write } from "../shared/dom.js";
import { button } from "../shared/stage.js";
import { SPEEDS } from "./playing.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Travel } from "./playing.js" */
/** @import { Player } from "./state.js" */

/** What a reader can turn on and off; `predict` does nothing if no contents are known.
 * @typedef {{ predict: () => void, table: () => void, save: () => void }} Turns */

/** The keys of a player. @type {(player: Player, travel: Travel, turns: Turns) => KeyRow[]} */
export function keysOf({ scene, now }, { go, step, play, faster }, { predict, table }) {
  const [quicker, slower] = [() => faster(1), () => faster(-1)];
  return [
    ["← →", "round before, round after", { ArrowLeft: () => step(-1), ArrowRight: () => step(1) }],
    [", .", "round before, round after", { ",": () => step(-1), ".": () => step(1) }],
    ["Space", "play, pause", { " ": () => play(!now.playing) }],
    ["Home End", "first, last", { Home: () => go(0), End: () => go(scene.frames.length - 1) }],
    ["+ −", "faster, slower", { "+": quicker, "=": quicker, "-": slower, "−": slower }],
    ["p", "predict", { p: predict }],
    ["t", "tables", { t: table }],
  ];
}

/** The buttons of a player's toolbar, in groups.
 * @type {(player: Player, travel: Travel, turns: Turns) => (Node | string)[][]} */
export function buttonsOf({ scene, now, paints }, { go, step, play, faster }, { predict, table, save }) {
  const end = scene.frames.length - 1;
  const first = button("|◀", "first round", () => go(0));
  const back = button("◀ back", "back: round before", () => step(-1));
  const playing = button("▶ play", "play", () => play(!now.playing));
  const next = button("next ▶", "next: round after", () => step(1));
  const last = button("▶|", "last round", () => go(end));
  const slower = button("−", "slower", () => faster(-1));
  const rate = h("output", { "aria-label": "speed" });
  const quicker = button("+", "faster", () => faster(1));
  const predicting = button("predict", "predict mode: say which chunk moves next", predict);
  const tabled = button("tables", "show tables in place of the pictures", table);
  const svg = button("SVG", "save this round as an SVG file", save);
  playing.disabled = end === 0;
  predicting.disabled = !scene.values.length;
  paints(["number"], () => {
    first.disabled = back.disabled = now.number === 0;
    next.disabled = last.disabled = now.number === end;
  });
  paints(["playing"], () => {
    write(playing, now.playing ? "❚❚ pause" : "▶ play");
    playing.setAttribute("aria-label", now.playing ? "pause" : "play");
  });
  paints(["speed"], () => {
    write(rate, `${SPEEDS[now.speed]}×`);
    slower.disabled = now.speed === 0;
    quicker.disabled = now.speed === SPEEDS.length - 1;
  });
  paints(["predicting"], () => predicting.setAttribute("aria-pressed", String(now.predicting)));
  paints(["tabled"], () => tabled.setAttribute("aria-pressed", String(now.tabled)));
  return [[first, back, playing, next, last], ["speed", slower, rate, quicker], [predicting, tabled, svg]];
}

/** The slider over all rounds, and beside it the shown round in words.
 * @type {(player: Player, travel: Travel) => HTMLElement} */
export function scrubBar({ scene, now, paints }, { go }) {
  const end = scene.frames.length - 1;
  const slider = h("input", {
    type: "range", min: 0, max: end, step: 1, "aria-label": "round", oninput: () => go(Number(slider.value)),
    disabled: end === 0,
  });
  const [name, phase, summary] = [h("strong"), h("span", { class: "dlv-phase" }), h("span")];
  paints(["number"], () => {
    const { name: called, phase: during, summary: does } = scene.frames[now.number];
    write(name, called);
    write(phase, during);
    phase.hidden = !during;
    write(summary, now.number ? does : "before the first message");
    slider.value = String(now.number);
    slider.setAttribute("aria-valuetext", called + (during ? `, ${during}` : ""));
  });
  return h("div", { class: "dlv-scrub" }, slider, h("p", { class: "dlv-now" }, name, phase, summary));
}
