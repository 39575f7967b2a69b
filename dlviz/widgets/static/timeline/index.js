// The Timeline: zoom, pan, select, search and follow what every rank did.
import { clamp } from "../shared/arrays.js";
import { focusedNear, h, roomFor, write } from "../shared/dom.js";
import { save } from "../shared/file.js";
import { gantt } from "../shared/gantt/index.js";
import { stylesOf } from "../shared/gantt/paint.js";
import { arranged } from "../shared/gantt/rows.js";
import { paintingOf } from "../shared/paint.js";
import { stage } from "../shared/stage.js";
import { state } from "../shared/state.js";
import { viewport } from "../shared/viewport.js";
import { answers } from "./answers.js";
import { beside } from "./beside.js";
import { arrangement } from "./arrangement.js";
import { controls, legend } from "./controls.js";
import { viewLink } from "./link.js";
import { marks } from "./marks.js";
import { minimap } from "./minimap.js";
import { moves } from "./moves.js";
import { ranges } from "./range.js";
import { search } from "./search.js";
import { selecting } from "./selecting.js";
import { readScene } from "./state.js";
import { stepChart } from "./steps.js";
import { savedRows } from "./svg.js";
import { linesOf } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Now, Painted, Range, Timeline } from "./context.js" */
/** @import { Clock, Scene } from "./state.js" */

const [LEAST, TALLEST] = [96, 262]; // pixels of the rows in view; of those of two Traces
const [HEADS, LINE, FEW, MANY] = [62, 18, 96, 168]; // pixels of the answers: heads, a line for each rank, bounds
const LONG = 232; // with a table or lines of source

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  let close = open({ model, el });
  const again = () => {
    const focused = el.contains(focusedNear(el));
    close();
    el.replaceChildren();
    close = open({ model, el });
    if (focused) /** @type {HTMLElement} */ (el.firstElementChild).focus({ preventScroll: true });
  };
  model.on("change:state", again);
  return () => {
    model.off("change:state", again);
    close();
  };
}

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function open({ model, el }) {
  const own = begun(model);
  const { scene, shown } = own;
  own.frame = stage(el, {
    name: "timeline", look: scene.look, model, title: scene.title, lines: scene.lines, details: scene.details,
    keys: keysOf(own), clear: () => clear(own),
    onColors: (colors) => {
      const styles = stylesOf(scene.span.kinds.of, scene.shades, scene.look.kinds, colors);
      own.look = { colors, styles, font: scene.look.font };
      own.picture?.restyle();
      shown.set({ look: own.look });
    },
  });
  own.answers = answers(own);
  own.picture = gantt({
    root: own.frame.root, part: own.part, picture: () => pictureOf(own),
    room: roomOf(own),
    describe: (target, time) => linesOf(shown.now.scene, own.clock(), target, time),
    pointed: (target) => shown.set({ hover: target?.span ?? -1 }),
    clicked: (target) => (target?.lost == null ? own.moves.click(target) : own.marks.show()),
    dragged: (from, to) => own.ranges.set(from, to),
  });
  own.moves = moves(own);
  own.ranges = ranges(own);
  own.search = search(own);
  own.marks = marks(own);
  const map = minimap(own);
  const other = beside(own, roomOf(own));
  const critical = h("p", { class: "dlv-found" });
  const link = viewLink(own);
  controls(own, [arrangement(own).button, link.button], stepChart(own));
  own.frame.body.append(own.answers.element, map, own.picture.plot, ...(other ? [other] : []), legend(own));
  own.answers.element.append(critical);
  shown.paints(["critical", "clock"], () => write(critical, shown.now.critical ? own.clock().summary : ""));
  shown.paints(["table", "source", "rowsOpen", "marksOpen", "clock", "from", "to", "hidden", "arrows", "critical",
    "hover", "span", "message", "range", "matches", "idle", "scene", "look"], () => paintPicture(own));
  shown.paints(["from", "to"], own.picture.still);
  own.selection = selecting(own);
  return begin(own, link);
}

/** The timeline before anything is on the page. @type {(model: Model) => Timeline} */
function begun(model) {
  const scene = readScene(JSON.parse(model.get("state")));
  const first = wholeOf(scene.clocks[0], scene.beside);
  const shown = state({
    scene, clock: 0, from: first.from, to: first.to, hidden: new Set(), arrows: false, critical: scene.critical,
    table: false, source: false, rowsOpen: false, marksOpen: false, hover: -1, span: -1, message: -1, idle: -1,
    range: null, order: null, matches: null, query: "", reply: "", look: null,
    rows: { order: scene.shown, hidden: new Set(), pinned: new Set() },
  });
  const clock = () => shown.now.scene.clocks[shown.now.clock];
  /** @type {Timeline} */
  const own = /** @type {any} */ (/** @type {Partial<Timeline>} */ ({
    model, scene, shown, clock,
    part: viewport(shown, () => wholeOf(clock(), scene.beside)),
    setClock: (number) => setClock(own, number),
    arrange(rows) {
      shown.set({ rows, scene: arranged(scene, rows) });
    },
    saveSvg: () => saveSvg(own),
  }));
  return own;
}

/** The time of a clock and of the Trace beside, and the shortest part that can be in view.
 * @type {(clock: Clock, beside?: { clocks: Clock[] }) => { from: number, to: number, least: number }} */
function wholeOf({ low, high, quantum, name }, beside) {
  const other = beside?.clocks.find((one) => one.name === name) ?? beside?.clocks[0];
  const [from, to] = [Math.min(low, other?.low ?? low), Math.max(high, other?.high ?? high)];
  const room = (to - from) * 0.01;
  return { from: from - room, to: to + room, least: 20 * quantum };
}

/** The pixels that rows may take of those `wanted`: what the rest leaves of the widget's height, half of it beside
 * another Trace. The answers take what the rows do not want, up to a line for each rank.
 * @type {(timeline: Timeline) => (around: HTMLElement, above: number, wanted: number) => number} */
function roomOf({ frame, scene, answers: { element }, shown: { now } }) {
  const [least, most] = scene.beside ? [LEAST / 2, TALLEST / 2] : [LEAST, Infinity];
  const ranks = new Set(scene.rows.map(({ rank }) => rank)).size;
  const lines = scene.beside ? FEW : clamp(HEADS + LINE * ranks, FEW, MANY);
  return (around, above, wanted) => {
    const both = roomFor(frame.root, around, 0) + element.offsetHeight - above;
    const own = now.source || now.table ? Math.max(LONG, both - wanted) : clamp(both - wanted, FEW, lines);
    element.style.height = `${own}px`;
    return clamp(both - own, least, most);
  };
}

/** Draws once it has a size, and takes the present selection.
 * @type {(timeline: Timeline, link: { button: HTMLElement | null, stop: () => void }) => () => void} */
function begin({ shown, frame, picture, selection, marks: own }, link) {
  const resized = new ResizeObserver(() => {
    if (!picture.plot.clientWidth) return;
    shown.stale("look");
  });
  resized.observe(picture.plot);
  const taller = () => shown.stale("look"); // a saved page fills its window
  addEventListener("resize", taller);
  selection.start();
  own.start();
  return () => {
    resized.disconnect();
    removeEventListener("resize", taller);
    shown.stop();
    selection.stop();
    own.stop();
    link.stop();
    frame.stop();
  };
}

/** @type {(own: Timeline) => KeyRow[]} */
function keysOf(own) {
  const { part, shown, scene } = own;
  const [closer, farther, left, right] =
    [() => part.zoom(0.7), () => part.zoom(1 / 0.7), () => part.pan(-0.15), () => part.pan(0.15)];
  /** @type {(name: "arrows" | "critical" | "table") => () => void} */
  const turn = (name) => () => shown.set({ [name]: !shown.now[name] });
  /** @type {KeyRow[]} */
  const rows = [
    ["W S", "zoom in, out", { w: closer, s: farther }],
    ["A D", "pan", { a: left, d: right, ArrowLeft: left, ArrowRight: right }],
    ["+ − 0", "zoom in, out, fit all", { "+": closer, "=": closer, "-": farther, 0: () => part.fitAll() }],
    ["Z Y", "back to what was in view before, forward again",
      { z: () => own.moves.back(), y: () => own.moves.forward() }],
    [", .", "previous, next span of the row", { ",": () => own.moves.walk(false), ".": () => own.moves.walk(true) }],
    ["↑ ↓", "row above, below", { ArrowUp: () => own.moves.climb(-1), ArrowDown: () => own.moves.climb(1) }],
    ["F", "centre the selection, again: fit it", { f: () => own.moves.centre() }],
    ["[ ]", "follow the arrow to its sender, receiver",
      { "[": () => own.moves.follow("sender"), "]": () => own.moves.follow("receiver") }],
    ["G", "go to what it waited for", { g: () => own.moves.goToCause() }],
    ["R", "range of the selection", { r: () => own.ranges.ofSelection() }],
    ["N", "mark a moment with a note", { n: () => own.marks.add() }],
    ["/", "search", { "/": () => own.search.focus() }],
    ["M", "messages: all, the selection's", { m: turn("arrows") }],
    ["P", "critical path on, off", { p: turn("critical") }],
    ["C", "device or wall clock", { c: () => own.setClock((shown.now.clock + 1) % scene.clocks.length) }],
    ["T", "table", { t: turn("table") }],
    ["Ctrl+wheel", "zoom at the pointer", {}],
    ["Shift+wheel", "pan, as Shift+drag", {}],
    ["drag", "select a range", {}],
    ["double-click", "fit all", {}],
  ];
  const hasPath = scene.clocks.some((one) => one.critical.length);
  const missing = [scene.clocks.length > 1 ? "" : "C", hasPath ? "" : "P", scene.messageCount ? "" : "M"];
  return rows.filter(([keys]) => !missing.includes(keys));
}

/** @type {(timeline: Timeline) => { rows: Scene, times: Clock, view: Readonly<Now>, look: Painted, chosen: { row:
 *   number, range: Range | null, matches: Uint8Array | null, message: number, idle: number } }} */
function pictureOf({ shown: { now }, clock, look }) {
  const { scene, span, range, matches, message, idle } = now;
  const row = span >= 0 ? scene.slots[scene.slotOf[span]].row : -1;
  return { rows: scene, times: clock(), view: now, look, chosen: { row, range, matches, message, idle } };
}

/** Draws, and describes the picture for screen readers. @type {(own: Timeline) => void} */
function paintPicture(own) {
  const { shown: { now }, frame: { root }, picture, clock } = own;
  if (!picture.draw()) return;
  own.ranges.place();
  own.marks.place();
  own.controls.describe();
  const { scene, span, message } = now;
  Object.assign(root.dataset, {
    from: now.from, to: now.to, clock: clock().name, critical: now.critical,
    draws: Number(root.dataset.draws ?? 0) + 1,
    span: span >= 0 ? scene.span.row[span] : "",
    message: message >= 0 ? scene.message.row[message] : "",
  });
}

/** Changes to another clock; the part in view and the range stay at the same place in the run.
 * @type {(own: Timeline, number: number) => void} */
function setClock(own, number) {
  const { shown, frame, scene } = own;
  const { now } = shown;
  if (number === now.clock) return;
  const [before, after] = [own.clock(), scene.clocks[number]];
  /** @type {(time: number) => number} */
  const share = (time) => (time - before.low) / (before.high - before.low);
  /** @type {(time: number) => number} */
  const moved = (time) => after.low + share(time) * (after.high - after.low);
  const range = now.range && { ...now.range, from: moved(now.range.from), to: moved(now.range.to) };
  const [from, to] = [moved(now.from), moved(now.to)];
  shown.set({ clock: number });
  const line = /** @type {Element} */ (frame.root.querySelector("header p"));
  write(line, scene.lines[0].replace(/(wall-clock|device) time/, after.axis));
  shown.set({ range: range?.step != null ? { ...own.ranges.windowOf(range.step), step: range.step } : range });
  own.part.show(from, to);
  frame.say(`times by the ${after.name} clock`);
}

/** Clears range, search and selection; false if there was none. @type {(own: Timeline) => boolean} */
function clear(own) {
  const { now } = own.shown;
  if (!now.range && !now.matches && now.span < 0 && now.message < 0 && now.idle < 0) return false;
  own.search.clear();
  own.shown.set({ range: null, idle: -1, reply: "" });
  own.selection.choose({});
  return true;
}

/** @type {(timeline: Timeline) => void} */
function saveSvg({ picture, look, scene, frame }) {
  const painting = paintingOf(picture.canvas);
  if (!painting) return;
  save(savedRows(painting, scene.title, look.colors, look.font), "timeline.svg");
  frame.say("timeline.svg is saved");
}

export default { render };
