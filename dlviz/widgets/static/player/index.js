// Plays the messages of a run round by round: what each rank holds, who sends to whom, the arithmetic.
import { clamp } from "../shared/arrays.js";
import { h, s } from "../shared/dom.js";
import { save } from "../shared/file.js";
import { sourcePanel } from "../shared/source.js";
import { stage } from "../shared/stage.js";
import { state } from "../shared/state.js";
import { buttonsOf, keysOf, scrubBar } from "./controls.js";
import { stripOf } from "./geometry.js";
import { rules } from "./paint.js";
import { arithmeticPanel, chunksPanel, circlePanel, legend, stripPanel, tablesPanel } from "./panels.js";
import { SPEEDS, travelling } from "./playing.js";
import { pointing, selecting } from "./pointing.js";
import { prediction } from "./prediction.js";
import { unpacked } from "./state.js";
import { savedRound } from "./svg.js";

/** @import { Selection } from "../shared/selection.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Player, Scene, Shown } from "./state.js" */
/** @import { ChunksPanel } from "./panels.js" */

const ROOM = 332; // pixels for the contents and, below, the program's lines
const CODE = 100; // of ROOM, for the lines or the question of a prediction
const GUESS = 62; // pixels of the question, without lines
const HINT = "Hover over a message, a chunk or a rank: all that belongs to it lights up.";
const UNFOCUSED = ":disabled, g:not([tabindex])";
const STRIP = " Strip of all rounds: a stronger blue, numbers of more ranks; orange, wrong.";

/** Shows a model's messages in `el`, and again at each change of its state; returns what ends it.
 * @type {(given: { model: Model, el: HTMLElement }) => () => void} */
export function showMessages({ model, el }) {
  let player = playerOf(model, el, { number: 0, speed: SPEEDS.indexOf(1) });

  function rebuild() {
    const { number, speed } = player.now;
    const focused = player.stop();
    player = playerOf(model, el, { number, speed });
    if (focused) player.root.focus({ preventScroll: true });
  }

  model.on("change:state", rebuild);
  return () => {
    model.off("change:state", rebuild);
    player.stop();
  };
}

/** A player of the model's state.
 * @type {(model: Model, el: HTMLElement, at: Pick<Shown, "number" | "speed">) => { root: HTMLElement, now:
 *   Readonly<Shown>, stop: () => boolean }} */
function playerOf(model, el, at) {
  const scene = unpacked(JSON.parse(model.get("state")));
  const shown = state(firstOf(scene, at));
  const { now, paints } = shown;
  /** @type {Player} */
  const player = { scene, now, paints, show, say: (sentence) => frame.say(sentence) };
  const travel = travelling(player);
  const panels = panelsOf(player, travel.go, (selection) => shared.choose(selection));
  const shared = selecting(player, travel, model, panels.source);
  const guesses = prediction(player, travel, panels.chunks);
  const turns = {
    predict: () => void (scene.values.length && guesses.turn()),
    table: () => show({ tabled: !now.tabled }),
    save: () =>
      save(savedRound(scene, panels.chunks.layout(), now.number, now.colors, scene.look.font), "messages.svg"),
  };
  const frame = stage(el, {
    name: "message player", look: scene.look, model,
    title: scene.title, lines: scene.lines, details: scene.details,
    keys: keysOf(player, travel, turns),
    clear() {
      const any = now.chosen.length > 0;
      shared.choose({});
      return any;
    },
    onColors: (colors) => shown.set({ colors }),
  });
  frame.controls(...buttonsOf(player, travel, turns));
  pointing(player, panels, guesses, (message) => shared.choose(message == null ? {} : { message }));
  const colors = Object.fromEntries(Object.keys(now.colors).map((name) => [name, `var(--dlv-${name})`]));
  const style = s("style", {}, rules(colors, ".dlv svg "));
  frame.body.append(style, scrubBar(player, travel), panels.strip, guesses.root, panels.body, panels.tables);

  /** Shows changes immediately; if the focused element is gone or disabled, the player gets the focus.
   * @type {(changes: Partial<Shown>) => void} */
  function show(changes) {
    const had = frame.root.contains(document.activeElement);
    shown.show(changes);
    const has = frame.root.contains(document.activeElement) && !document.activeElement?.matches(UNFOCUSED);
    if (had && !has) frame.root.focus({ preventScroll: true });
  }

  const { box } = panels.chunks;
  const resized = new ResizeObserver(() => box.clientWidth && show({ width: box.clientWidth }));
  resized.observe(box);
  show({ width: box.clientWidth });
  shared.start();
  return {
    root: frame.root,
    now,
    stop() {
      const focused = frame.root.contains(document.activeElement);
      travel.stop();
      resized.disconnect();
      shared.stop();
      frame.stop();
      shown.stop();
      frame.root.remove();
      return focused;
    },
  };
}

/** A player's first state. @type {(scene: Scene, at: Pick<Shown, "number" | "speed">) => Shown} */
function firstOf({ frames, look }, at) {
  const number = clamp(at.number, 0, frames.length - 1);
  return {
    number, furthest: number, speed: at.speed, playing: false, tabled: false, predicting: false, verdict: "",
    score: { right: 0, of: 0 }, spot: "0:0", chosen: [], pointed: null, width: 0, colors: look.themes.light,
  };
}

/** The panels, and when each is painted.
 * @type {(player: Player, go: (number: number) => void, choose: (selection: Selection) => void) => { body:
 *   HTMLDivElement, chunks: ChunksPanel, source: { panel: HTMLElement, empty: boolean, has: (where: string) =>
 *   boolean, mark: (places: string | string[]) => void }, strip: HTMLElement, tables: HTMLElement, pointedWords:
 *   HTMLParagraphElement, hint: string }} */
function panelsOf({ scene, now, paints }, go, choose) {
  const circle = circlePanel(scene);
  const chunks = chunksPanel(scene);
  const sums = arithmeticPanel(scene, (message) => choose({ message }));
  const tables = tablesPanel(scene);
  const strip = stripPanel(scene, go);
  const source = sourcePanel(scene.sources, choose);
  const pointedWords = h("p", { class: "dlv-summary" });
  const lines = source.empty
    ? null
    : h("div", { class: "dlv-lines" }, h("h4", {}, "The lines that sent and received"), source.panel);
  const held = scene.values.length > 0;
  const body = h("div", { class: "dlv-pictures" },
    h("div", { class: "dlv-beside" }, held ? circle.root : null, sums.root),
    h("div", { class: "dlv-main" }, held ? null : circle.root, chunks.root, legend(scene), pointedWords, lines));
  const hint = HINT + (stripOf(scene, 600, 40).length ? STRIP : "");

  paints(["width", "predicting"], () => {
    if (lines) lines.hidden = now.predicting;
    const code = lines && !scene.image ? CODE : 0;
    chunks.lay(Math.max(320, now.width || 560), ROOM - (code || (now.predicting ? GUESS : 0)));
  });
  paints(["number", "predicting", "width", "tabled"], () => {
    body.hidden = now.tabled;
    tables.root.hidden = !now.tabled;
    if (now.tabled) return tables.draw(now.number, chunks.layout());
    circle.draw(now.number, !now.predicting);
    chunks.draw(now.number);
    sums.draw(now.number);
  });
  paints(["number", "predicting", "furthest", "width"], () =>
    strip.draw(now.number, now.predicting ? now.furthest : scene.frames.length - 1));
  return { body, chunks, source, strip: strip.root, tables: tables.root, pointedWords, hint };
}

export default { render: showMessages };
