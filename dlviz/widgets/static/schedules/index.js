// Explores pipeline schedules: controls, the timeline of one or two of them, the bubble, the memory, a run.
import { alone } from "../board/alone.js";
import { drawingBoard } from "../board/index.js";
import { BOARD_KEYS } from "../board/keys.js";
import { levelBar } from "../board/levels.js";
import { stateOf, tableIn } from "../board/rules.js";
import { h, write } from "../shared/dom.js";
import { explorer } from "../shared/explorer.js";
import { viewport } from "../shared/viewport.js";
import { answers } from "./answers.js";
import { choosing } from "./choosing.js";
import { controls } from "./controls.js";
import { NOTHING, drawable, foresee, lastOf, reading } from "./kernel.js";
import { plots } from "./plots.js";
import { readSide } from "./state.js";
import { runWords } from "./words.js";

/** @import { KeyRow, Toggle } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Board, Explorer, Now } from "./context.js" */
/** @import { LevelBar } from "../board/levels.js" */

const SAVED = "This saved page has no kernel: select, zoom and draw; "
  + "for other sizes or real ranks, run the notebook's cell.";
const NO_CHART = { over: [], lines: {}, formulas: {} };
const SLIDERS = ["ranks", "microbatches", "chunks"]; // along which the kernel sends pictures ahead
const SHARED = "Each of a rank's v chunks takes 1/v of F, B, I and W.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = begun(model, el);
  const { shown } = own;
  own.choosing = choosing(own);
  reading(own);
  const boardBox = h("div", { class: "dlv-side", hidden: true });
  const boardShown = () => !boardBox.hidden;
  own.board = boardOf(own, boardBox);
  const { selects, rows, toggles } = controls(own);
  const levels = levelsOf(own);
  if (levels) own.frame.controls(levels.chips);
  else own.frame.controls(selects, [own.bar.start, drawButton(own)]);
  const about = h("p", { class: "dlv-about" });
  own.frame.body.append(...(levels ? [levels.box] : rows), own.trouble, boardBox, ...(levels ? [levels.solved] : []),
    own.bar.line, about, ...plots(own, boardShown), ...answers(own, boardShown, toggles));
  shown.paints(["data"], () => {
    if (shown.now.data.refused) write(own.trouble, "");
  });
  shown.paints(["sides", "away", "data"], () => write(about, aboutWords(own, boardShown())));
  return begin(own);
}

/** The explorer, with the state that is its own. @type {(model: Model, el: HTMLElement) => Explorer} */
function begun(model, el) {
  const data = JSON.parse(model.get("state"));
  const levels = data.levels && data.controls.beside !== "";
  const sides = data.sides.map(readSide);
  const to = lastOf(/** @type {any} */ ({ data, sides }));
  /** @type {(() => void) | null} */
  let drew = null;

  /** Answers without a kernel, from the drawing. */
  function without() {
    const own = alone(model);
    drew = own.drew;
    model.on("change:board", drew);
    return own;
  }

  /** @type {any} */
  const own = explorer(model, el, {
    name: "explorer of schedules", saved: SAVED, alone: without,
    keys: (begun) => keysOf(/** @type {any} */ (begun)),
    clear: () => own.choosing.clear(), foresee: /** @type {any} */ (foresee), runnable, ranWords,
    neighbours: (values) => nextTo(Object.keys(values).find((name) => SLIDERS.includes(name))),
    more: /** @type {any} */ ({
      sides, chart: data.chart ?? NO_CHART, csv: data.csv ?? "", from: 0, to, chosen: NOTHING, pointed: NOTHING,
      path: true, opened: "", away: Boolean(data.run?.start) || Boolean(levels),
    }),
  });
  own.stopDrawing = () => drew && model.off("change:board", drew);
  const last = () => lastOf(own.shown.now);
  own.part = viewport(own.shown, () => ({ from: 0, to: last(), least: last() / 500 }));
  const { choose } = own;
  own.choose = (/** @type {Record<string, unknown>} */ changes) => {
    const [[name, value]] = Object.entries(changes);
    if (own.can(name, value) && ["schedule", "level"].includes(name)) own.shown.set({ away: false });
    if (own.can(name, value) && name === "beside" && data.levels) own.shown.set({ away: value !== "" });
    choose(changes);
  };
  return /** @type {Explorer} */ (own);
}

/** Goes on without a kernel once it is gone, and takes the present selection. @type {(own: Explorer) => () => void} */
function begin(own) {
  const { shown } = own;
  shown.paints(["live"], () => shown.now.live || own.board.turnOff());
  shown.paints(["data"], () => shown.now.data.settled && own.choosing.follows());
  own.choosing.follows();
  const stop = own.begin();
  return () => {
    own.stopDrawing();
    own.choosing.stop();
    own.board.stop();
    stop();
  };
}

/** @type {(own: Explorer) => KeyRow[]} */
function keysOf(own) {
  const { shown } = own;
  /** @type {(along: number, by: number) => (event: KeyboardEvent) => void} */
  const move = (along, by) => (event) => own.choosing.moved(event, along, by);
  const table = () => shown.show({ opened: shown.now.opened === "table" ? "" : "table" });
  return [
    ["← →", "previous, next action of the rank", { ArrowLeft: move(-1, 0), ArrowRight: move(1, 0) }],
    ["↑ ↓", "rank above, below", { ArrowUp: move(0, -1), ArrowDown: move(0, 1) }],
    ["[ ]", "what it receives from, who receives from it",
      { "[": () => own.choosing.follow(true), "]": () => own.choosing.follow(false) }],
    ["o", "the other schedule", { o: () => own.choosing.other() }],
    ["c", "critical path on, off", { c: () => shown.set({ path: !shown.now.path }) }],
    ["W S", "zoom in, out", { w: () => own.part.zoom(0.7), s: () => own.part.zoom(1 / 0.7) }],
    ["A D", "pan", { a: () => own.part.pan(-0.2), d: () => own.part.pan(0.2) }],
    ["0", "fit all", { 0: () => own.part.fitAll() }],
    ["t", "table of all actions", { t: table }],
    ...BOARD_KEYS.map(([keys, does]) => /** @type {KeyRow} */ ([keys, `on the grid: ${does}`, {}])),
  ];
}

/** The board, made at its first use. @type {(own: Explorer, el: HTMLElement) => Board} */
function boardOf(own, el) {
  const { shown, model } = own;
  const { now } = shown;
  /** @type {any} */
  let board = null;

  /** A panel of the board replaces all other open panels; null: one was closed.
   * @type {(button: HTMLElement | null) => void} */
  function opened(button) {
    /** @type {Toggle[]} */
    const all = board.openers;
    const open = all.filter((one) => one.getAttribute("aria-pressed") === "true");
    if (!button && (now.opened !== "board" || open.length)) return;
    for (const one of open) if (button && one !== button) one.turn(false);
    shown.set({ opened: button ? "board" : "" });
    shown.stale("opened"); // another panel of the board may be open
    shown.flush();
  }

  shown.paints(["data", "away", "sides"], () => {
    const wanted = [now.data.controls.schedule, now.data.controls.beside].includes("drawn") && !now.away;
    if (el.hidden === wanted) own.frame.keys(wanted ? BOARD_KEYS : undefined);
    el.hidden = !wanted;
    if (!wanted || board) return;
    board = drawingBoard({
      model, el, look: now.data.look, room: () => (now.sides.length > 1 ? 100 : 168), say: own.frame.say,
      selected: own.choosing.fromBoard, opened,
    });
    if (now.colors) board.colors(now.colors);
  });
  shown.paints(["colors"], () => board?.colors(now.colors));
  shown.paints(["data", "away", "sides"], () => { // the board has its own file button
    const files = /** @type {HTMLElement} */ (own.files[0].parentElement);
    files.hidden = !el.hidden && (now.sides.length === 1 || Boolean(now.data.levels));
  });
  own.frame.root.addEventListener("keydown", (event) => { // the line of keys lists the grid's
    if (event.target === own.frame.root && !el.hidden) board.press(event);
  }, true);
  return {
    element: el, choose: (action) => board?.choose(action),
    openers: () => board?.openers ?? [], turnOff: () => board?.turnOff(), stop: () => board?.stop(),
  };
}

/** The bar of the levels, in the game. @type {(own: Explorer) => LevelBar | null} */
function levelsOf(own) {
  const { shown, model } = own;
  if (!shown.now.data.levels) return null;
  const bar = levelBar({
    open: (level) => own.choose({ level }), compare: (name) => own.choose({ beside: name }),
    back: () => goOnDrawing(own),
  });
  bar.actions.prepend(own.bar.start);
  shown.paints(["data", "away", "live"], () => {
    const { data, away, live } = shown.now;
    const able = live || own.can("level", data.level);
    bar.draw(/** @type {any} */ (data), /** @type {any} */ (stateOf(tableIn(model)).level), away, able);
  });
  return bar;
}

/** A button that opens the board, or goes back to the previous schedule.
 * @type {(own: Explorer) => HTMLButtonElement} */
function drawButton(own) {
  const { shown } = own;
  let before = "1f1b";
  const button = h("button", {
    type: "button",
    onclick: () => {
      const { controls: { schedule }, away } = shown.now;
      own.choose({ schedule: schedule === "drawn" && !away ? before : "drawn" });
      shown.set({ away: false });
    },
  }, "✎ Draw your own");
  shown.paints(["controls", "away", "live"], () => {
    const { controls: { schedule }, away, live } = shown.now;
    if (schedule !== "drawn") before = schedule;
    button.setAttribute("aria-pressed", String(schedule === "drawn" && !away));
    button.disabled = !live && !own.can("schedule", schedule === "drawn" ? before : "drawn");
  });
  return button;
}

/** Goes back to the grid from a measurement or comparison. @type {(explorer: Explorer) => void} */
function goOnDrawing({ choose, shown }) {
  choose({ beside: "" });
  shown.set({ away: false });
}

/** @type {(name: string | undefined) => { name: string } | null} */
function nextTo(name) {
  return name ? { name } : null;
}

/** @type {(now: Pick<Now, "data" | "sides">) => boolean} */
function runnable({ data, sides }) {
  return !sides[0].error && sides[0].ranks <= data.limits.run;
}

/** @type {(now: Pick<Now, "live" | "data" | "sides">) => string} */
function ranWords({ live, data, sides }) {
  return runWords(data.run, sides[0], live && sides[0].ranks > data.limits.run ? data.limits.run : 0);
}

/** @type {(explorer: Explorer, boardShown: boolean) => string} */
function aboutWords({ shown: { now } }, boardShown) {
  const chunked = drawable(now).some(({ chunks }) => chunks > 1);
  const remarks = drawable(now).map(({ remark }) => remark ?? "");
  return [chunked && !boardShown ? SHARED : "", ...new Set(remarks)].filter(Boolean).join(" ");
}

export default { render };
