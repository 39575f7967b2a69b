// Explores who waits for whom: a method and its parameter, workers and their speed; timeline, moment, run.
import { clamp } from "../shared/arrays.js";
import { h, write } from "../shared/dom.js";
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { seconds } from "../shared/numbers.js";
import { button } from "../shared/stage.js";
import { viewport } from "../shared/viewport.js";
import { momentPicture } from "./picture.js";
import { travelling } from "./playing.js";
import { plot } from "./plot.js";
import { readSide } from "./state.js";
import { workersTable } from "./table.js";
import { answerWords, ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Travel } from "./playing.js" */
/** @import { Consistency, Data, More, Which } from "./state.js" */

const SAVED = "This page has no kernel: the recorded runs can be shown and played; "
  + "for other controls, run the notebook's cell.";
const AT_FIRST = 0.6; // s of the timeline in view at first
const SLIDER = 1000; // steps of the slider over time

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = begun(model, el);
  const { shown, frame } = own;
  const travel = own.travel;
  reading(own);
  frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  frame.body.append(own.trouble, own.bar.line, answer(own, () => answerWords(shown.now.data)),
    ...plot(own, travel), timeBar(own, travel),
    h("div", { class: "dlv-pictures" }, momentPicture(own), workersTable(own)));
  const stop = own.begin();
  return () => {
    travel.stop();
    stop();
  };
}

/** The explorer, with the state that is its own.
 * @type {(model: Model, el: HTMLElement) => Consistency & { travel: Travel }} */
function begun(model, el) {
  const data = /** @type {Data} */ (JSON.parse(model.get("state")));
  const sides = sidesOf(data);
  /** @type {any} */
  const own = explorer(model, el, {
    name: "explorer of consistency", saved: SAVED, keys: (begun) => keysOf(/** @type {any} */ (begun)), ranWords,
    more: /** @type {More} */ ({ ...sides, ...startOf(sides) }),
  });
  own.part = viewport(own.shown, () => {
    const last = lastOf(own.shown.now);
    return { from: 0, to: last, least: last / 500 };
  });
  own.travel = travelling(own);
  return own;
}

/** Reads the sides from each answer of the kernel; new controls and a new run start at the first moment.
 * @type {(own: Consistency & { travel: Travel }) => void} */
function reading({ shown, travel }) {
  const { now } = shown;
  let known = JSON.stringify(now.data.predicted);
  let ran = JSON.stringify(now.data.run?.side ?? null);
  shown.paints(["data"], () => {
    const texts = [now.data.predicted, now.data.run?.side ?? null].map((side) => JSON.stringify(side));
    if (texts[0] === known && texts[1] === ran) return;
    [known, ran] = texts;
    travel.stop();
    const sides = sidesOf(now.data);
    shown.set({ ...sides, ...startOf(sides) });
  });
}

/** @type {(data: Data) => Pick<More, "predicted" | "measured">} */
function sidesOf({ predicted, run }) {
  return { predicted: readSide(predicted), measured: run?.side ? readSide(run.side) : null };
}

/** @type {(sides: Pick<More, "predicted" | "measured">) => Omit<More, "predicted" | "measured">} */
function startOf(sides) {
  const which = sides.measured ? "measured" : "predicted";
  return { which, at: 0, playing: false, from: 0, to: Math.min(AT_FIRST, lastOf(sides)) };
}

/** @type {(sides: Pick<More, "predicted" | "measured">) => number} */
function lastOf({ predicted, measured }) {
  return Math.max(predicted.last, measured?.last ?? 0);
}

/** The buttons and the slider that choose the moment and the side.
 * @type {(own: Consistency, travel: Travel) => HTMLElement} */
function timeBar({ shown }, travel) {
  const { now } = shown;
  const side = () => now[now.which] ?? now.predicted;
  const back = button("◀ back", "back: message before", () => travel.step(false));
  const playing = button("▶ play", "play", travel.turn);
  const next = button("next ▶", "next: message after", () => travel.step(true));
  const slider = h("input", {
    type: "range", min: 0, max: SLIDER, step: 1, "aria-label": "moment",
    oninput: () => travel.go((Number(slider.value) / SLIDER) * side().last),
  });
  const when = h("output", { class: "dlv-when" });
  /** @type {(which: Which, says: string) => HTMLElement} */
  const turn = (which, says) => h("button", {
    type: "button", "data-which": which, onclick: () => {
      shown.set({ which });
      travel.go(clamp(now.at, 0, side().last));
    },
  }, says);
  const sides = [turn("predicted", "predicted"), turn("measured", "the run")];
  const which = h("span", { role: "group", "aria-label": "which of the two is played" }, sides);
  shown.paints(["playing"], () => {
    write(playing, now.playing ? "❚❚ pause" : "▶ play");
    playing.setAttribute("aria-label", now.playing ? "pause" : "play");
  });
  shown.paints(["at", "which", "predicted", "measured"], () => {
    slider.value = String(Math.round((now.at / side().last) * SLIDER));
    slider.setAttribute("aria-valuetext", seconds(now.at));
    write(when, seconds(now.at));
    back.disabled = now.at <= 0;
    next.disabled = now.at >= side().last;
    which.hidden = !now.measured;
    for (const one of sides) one.setAttribute("aria-pressed", String(one.dataset.which === now.which));
  });
  return h("div", { class: "dlv-scrub" },
    h("span", { class: "dlv-travel", role: "group", "aria-label": "play" }, back, playing, next), which, slider, when);
}

/** @type {(own: Consistency & { travel: Travel }) => KeyRow[]} */
function keysOf(own) {
  return [
    ["← →", "message before, message after",
      { ArrowLeft: () => own.travel.step(false), ArrowRight: () => own.travel.step(true) }],
    ["Space", "play, pause", { " ": () => own.travel.turn() }],
    ["Home End", "first moment, last",
      { Home: () => own.travel.go(0), End: () => own.travel.go(lastOf(own.shown.now)) }],
    ["W S", "zoom in, out", { w: () => own.part.zoom(0.7), s: () => own.part.zoom(1 / 0.7) }],
    ["A D", "pan", { a: () => own.part.pan(-0.2), d: () => own.part.pan(0.2) }],
    ["0", "fit all", { 0: () => own.part.fitAll() }],
  ];
}

export default { render };
