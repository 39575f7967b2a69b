// Explores pipeline schedules: controls, the timeline of one or two of them, the bubble, the memory, a run.
import { asking } from "../shared/rpc.js";
import { clamp } from "../shared/arrays.js";
import { h, oncePerPicture, roomFor, s, write } from "../shared/dom.js";
import { typed } from "../shared/numbers.js";
import { BOARD_KEYS, drawingBoard } from "../board/index.js";
import { levelBar } from "../board/levels.js";
import { swatch } from "../shared/paint.js";
import { runBar } from "../shared/running.js";
import { drawList, hit, nameOf, neighbour, readSide, receivers, spanOf } from "./geometry.js";
import { AXIS, GUTTER, KINDS, fillsOf, paintSide } from "./paint.js";
import { actionsTable, bubbleChart, chartWords, comparison, memoryStrips } from "./panels.js";
import { actionLines, holeLines, causeOf, runDetails, runWords, sideWords } from "./words.js";
import { sharedSelection } from "../shared/selection.js";
import { button, stage, toggle } from "../shared/stage.js";
import { ticks } from "../timeline/geometry.js";

const SLIDERS = [["ranks", "ranks p"], ["microbatches", "microbatches m"], ["chunks", "chunks v"]];
const FIELDS = [
  ["forward", "F", "seconds of a forward"],
  ["backward", "B", "seconds of a whole backward; empty: I + W"],
  ["backward_input", "I", "seconds of an input gradient"],
  ["backward_weight", "W", "seconds of a weight gradient"],
  ["latency", "latency", "seconds that a message takes from rank to rank"],
  ["slow_stage", "slow stage", "the number of a slower stage; empty: none"],
  ["slow", "×", "how many times as long the slow stage takes"],
];
const EMPTY = new Set(["backward", "slow_stage"]); // may be left empty
const [CHART, MEASURED] = [132, 100]; // pixels of a chart, alone and with what was measured above it
const LEAST = 90; // pixels of what was opened
const PAUSE = 250; // ms without a change until what takes longer is asked for
const SAVED = "This saved page has no kernel: point, select and zoom here; to change or run anything, run the notebook's cell.";
const SHARED = "Each of a rank's v chunks takes 1/v of F, B, I and W.";
const HINT = "Click an action or a gap, or press an arrow key: its details appear here.";
const LETTERS = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };
const NOTHING = { side: -1, span: -1, hole: -1 };

function render({ model, el }) {
  let live = model.get("live");
  let state = JSON.parse(model.get("state"));
  let sides = state.sides.map(readSide);
  let calm = JSON.parse(model.get("calm"));
  let now = { ...state.controls };
  let view = null; // {from, to} in seconds; null: all
  let chosen = { ...NOTHING };
  let pointed = { ...NOTHING };
  let showPath = true;
  let ranBefore = state.ran;
  let pause = 0;
  let before = "1f1b"; // the schedule to go back to from drawing
  let told = null; // what was told ahead, once read
  let board = null; // made when it is first drawn on
  let away = false; // whether the board made room for what was measured, or stands beside it
  const look = { font: state.look.font };
  const queue = asking(model, { answer: () => state.answer, failed: () => state.error !== "", gone });

  const frame = stage(el, {
    name: "explorer of schedules",
    look: state.look,
    model,
    title: state.title,
    lines: live ? [] : [SAVED],
    clear,
    keys: [
      ["← →", "previous, next action of the rank", { ArrowLeft: (event) => moved(event, -1, 0), ArrowRight: (event) => moved(event, 1, 0) }],
      ["↑ ↓", "rank above, below", { ArrowUp: (event) => moved(event, 0, -1), ArrowDown: (event) => moved(event, 0, 1) }],
      ["[ ]", "what it receives from, who receives from it", { "[": () => follow(true), "]": () => follow(false) }],
      ["o", "the other schedule", { o: other }],
      ["c", "critical path on, off", { c: () => pathButton.turn() }],
      ["W S", "zoom in, out", { w: () => zoom(0.7), s: () => zoom(1 / 0.7) }],
      ["A D", "pan", { a: () => pan(-0.2), d: () => pan(0.2) }],
      ["0", "fit all", { 0: fit }],
      ["t", "table of all actions", { t: () => tableButton.turn() }],
      ["r", "run it, stop it", { r: () => bar.press() }],
      ...BOARD_KEYS.map(([shown, does]) => [shown, `on the grid: ${does}`, {}]),
    ],
    onColors(colors) {
      look.colors = colors;
      board?.colors(colors);
      if (look.ready) draw();
    },
  });
  const { root } = frame;

  // ---- controls

  const options = () => Object.entries(state.titles).map(([name, title]) => h("option", { value: name }, title));
  const schedule = h("select", { "aria-label": "schedule", onchange: () => choose("schedule", schedule.value) }, options());
  const beside = h("select", { "aria-label": "schedule beside it", onchange: () => choose("beside", beside.value) },
    h("option", { value: "" }, "none"), options());
  const sliders = SLIDERS.map(([name, label]) => {
    const slide = h("input", { type: "range", min: 1, max: state.limits[name], step: 1, class: "dlv-slide", "aria-label": name, oninput: () => choose(name, Number(slide.value)) });
    const box = h("input", { type: "text", inputmode: "numeric", class: "dlv-short", "aria-label": `${name}, as a number`, onchange: () => choose(name, typedIn(box, name)) });
    return { name, slide, box, group: [h("label", {}, `${label} `, slide), box] };
  });
  const fields = FIELDS.map(([name, letter, told]) => {
    const box = h("input", {
      type: "text", inputmode: "decimal", class: `dlv-short${["backward", "slow_stage"].includes(name) ? " dlv-worded" : ""}`, "aria-label": `${name}: ${told}`, title: told,
      placeholder: name === "backward" ? "I+W" : name === "slow_stage" ? "none" : null,
      onchange: () => choose(name, typedIn(box, name)),
    });
    return { name, box, label: h("label", {}, `${letter} `, box) };
  });
  const bar = runBar(model, queue, { ready: runnable, told: ranWords, changed: drawRun });
  const drawButton = h("button", { type: "button", "aria-pressed": "false", onclick: drawOn }, "✎ Draw your own");
  const pathButton = toggle("critical path", "show the critical path (c)", true, (on) => {
    showPath = on;
    draw();
  });
  const tableButton = toggle("table", "show a table of all actions (t)", false, (on) => {
    tableBox.hidden = !on;
    opened(on ? tableButton : null);
  });
  const csvButton = toggle("CSV", "the schedule as CSV", false, (on) => {
    csvBox.hidden = !on;
    opened(on ? csvButton : null);
  });
  bar.line.classList.add("dlv-twolines");
  const levels = state.levels ? levelBar({ open: (number) => choose("level", number), compare: (name) => choose("beside", name), back: drawOn }) : null;
  away = Boolean(state.run?.start) || (levels != null && now.beside !== "");
  if (levels) {
    levels.actions.prepend(bar.start);
    frame.controls(levels.chips);
  } else frame.controls([h("label", {}, "schedule ", schedule), h("label", {}, "beside ", beside)], [bar.start, drawButton]);
  const sizes = h("div", { class: "dlv-toolbar" }, sliders.map(({ group }) => h("span", {}, group)));
  const costs = h("div", { class: "dlv-toolbar", role: "group", "aria-label": "seconds of one microbatch on a rank" },
    fields.map(({ label }) => label), h("span", {}, pathButton, tableButton, csvButton));

  const trouble = h("p", { class: "dlv-trouble", role: "alert" });
  const about = h("p", { class: "dlv-about" });
  const plots = [0, 1].map(plotOf);
  const legend = h("div", { class: "dlv-marks dlv-key" });
  const details = h("div", { class: "dlv-chosenaction", role: "region", "aria-label": "selected action" });
  const charts = h("div", { class: "dlv-sums" });
  const bubble = s("svg", { class: "dlv-costs dlv-bubble", role: "img" });
  const memory = s("svg", { class: "dlv-costs dlv-held", role: "img" });
  const bubbleTitle = h("h4");
  const bubbleBox = h("div", {}, bubbleTitle, bubble);
  const memoryBox = h("div", {}, h("h4", {}, "In flight, in microbatches"), memory);
  const table = h("div", { class: "dlv-numbers", tabindex: "0", role: "region", "aria-label": "the schedules in numbers" });
  const tableBox = h("div", { class: "dlv-opened", hidden: true });
  charts.append(bubbleBox, memoryBox, table);
  const shared = h("textarea", { readonly: true, rows: 4, "aria-label": "the schedule as CSV", spellcheck: "false" });
  const given = h("textarea", { rows: 4, "aria-label": "a schedule of your own as CSV", spellcheck: "false", placeholder: "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1" });
  const useButton = button("use it", "use this CSV", use);
  const refused = h("p", { class: "dlv-trouble", role: "alert" });
  const csvBox = h("div", { class: "dlv-opened", hidden: true },
    h("div", {}, h("h4", {}, "This schedule, as torch.distributed.pipelining reads it"), shared, button("copy", "copy the CSV", copy)),
    h("div", {}, h("h4", {}, "A schedule of your own"), given, useButton, refused));
  const boardBox = h("div", { class: "dlv-side", hidden: true });
  frame.body.append(...(levels ? [levels.box] : [sizes, costs]), trouble, boardBox, ...(levels ? [levels.solved] : []), bar.line, about,
    ...plots.map(({ box }) => box), legend, details, charts, csvBox, tableBox);
  if (!live) turnOff();

  const openers = () => [tableButton, csvButton, ...(board?.openers ?? [])];
  const isOpen = () => openers().some((one) => one.getAttribute("aria-pressed") === "true");

  /** Closes what else was opened, as all of it takes the room of the charts; null: something was closed. */
  function opened(button) {
    for (const one of openers()) if (button && one !== button && one.getAttribute("aria-pressed") === "true") one.turn(false);
    draw();
  }

  /** No kernel answers any more. */
  function gone() {
    live = false;
    frame.gone();
    board?.turnOff();
    turnOff();
    draw();
  }

  function turnOff() {
    for (const control of [schedule, beside, drawButton, given, useButton, ...sliders.flatMap(({ slide, box }) => [slide, box]), ...fields.map(({ box }) => box)]) control.disabled = true;
  }

  /** What was typed into a field: nothing where that is allowed, else a number or a text. */
  function typedIn(box, name) {
    return box.value.trim() === "" && EMPTY.has(name) ? null : typed(box.value);
  }

  // ---- what is asked of the kernel

  function choose(name, value) {
    if (!live || (now[name] === value && !state.error)) return;
    if (name === "schedule" && value === "drawn") before = now.schedule;
    if (name === "schedule" || name === "level") away = false;
    if (levels && name === "beside") away = value !== "";
    now = { ...now, [name]: value };
    if (foreseen(name, value)) draw();
    else drawControls(); // the pictures wait for the kernel's
    queue.change(name, value);
    root.dataset.asking = "true";
  }

  /** Takes the pictures from those told ahead; false where there are none. */
  function foreseen(name, value) {
    told ??= JSON.parse(model.get("ahead"));
    const pictures = told.name === name && !state.error && told.pictures[value];
    if (!pictures || Object.entries(told.of).some(([other, own]) => other !== name && now[other] !== own)) return false;
    state = { ...state, controls: now, sides: pictures, run: null };
    sides = pictures.map(readSide);
    chosen = found(chosen);
    return true;
  }

  function lookedAhead() {
    told = null;
  }

  function answered() {
    state = JSON.parse(model.get("state"));
    sides = state.sides.map(readSide);
    const ran = state.ran !== ranBefore;
    ranBefore = state.ran;
    if (ran) away = Boolean(state.run?.start);
    queue.answered();
    now = { ...state.controls, ...(state.error ? asTyped() : {}), ...queue.pending() };
    chosen = found(chosen);
    pointed = { ...NOTHING };
    for (const { tip } of plots) tip.hidden = true; // what it told of has changed
    clearTimeout(pause);
    if (queue.settled() && !state.error) pause = setTimeout(want, PAUSE);
    draw();
    if (state.error) frame.say(state.error);
    else if (!ran) frame.say(sides.map(sideWords).join(" "));
  }

  /** Asks for what takes longer, once the reader has paused. */
  function want() {
    if (!queue.settled() || state.error || calm.shown === state.shown) return;
    model.set("wanted", model.get("wanted") + 1);
    model.save_changes();
  }

  function calmed() {
    calm = JSON.parse(model.get("calm"));
    follows();
    drawCharts();
    drawCsv();
  }

  function asTyped() {
    return Object.fromEntries(Object.keys(state.controls).map((name) => [name, model.get(name)]));
  }

  /** Whether what is shown can be run. */
  function runnable() {
    return live && !state.error && !sides[0].error && sides[0].ranks <= state.limits.run;
  }

  /** Draws on, or goes back to the schedule before; from what was measured back to the board. */
  function drawOn() {
    if (levels) choose("beside", "");
    else choose("schedule", now.schedule === "drawn" && !away ? before : "drawn");
    away = false;
    draw();
  }

  function ranWords() {
    return runWords(state, live && sides[0].ranks > state.limits.run ? state.limits.run : 0);
  }

  function use() {
    if (given.value.trim()) queue.change("csv", given.value);
    else choose("schedule", "drawn");
    root.dataset.asking = String(!queue.settled());
  }

  function copy() {
    shared.select();
    navigator.clipboard?.writeText(shared.value);
    frame.say("copied");
  }

  // ---- selecting

  let selection = null;

  /** Shares what is selected with other widgets of the Trace that is shown now. */
  function follows() {
    if (selection?.trace === state.trace) return;
    const first = selection == null;
    selection?.stop();
    selection = { trace: state.trace, ...sharedSelection(state.trace, model, ({ span }) => {
      if (span === undefined ? chosen.side === 1 : span === chosen.span && chosen.side === 0) return;
      chosen = span < sides[0].count ? { side: 0, span, hole: -1 } : { ...NOTHING };
      tell();
    }) };
    if (first) selection.start();
    else selection.choose(chosen.side === 0 && chosen.span >= 0 ? { span: chosen.span } : {});
  }

  function select(next, onBoard = false) {
    chosen = { ...NOTHING, ...next };
    const side = sides[chosen.side];
    if (!onBoard) board?.choose(side?.name === "drawn" && chosen.span >= 0 ? actionOf(side, chosen.span) : null);
    selection.choose(chosen.side === 0 && chosen.span >= 0 ? { span: chosen.span } : {});
    tell();
  }

  function tell() {
    if (chosen.span >= 0) reveal();
    draw();
    if (chosen.side >= 0) frame.say(chosenLines().join(". "));
  }

  function reveal() {
    if (!view) return;
    const side = sides[chosen.side];
    const [from, to] = [side.start[chosen.span], side.end[chosen.span]];
    if (to >= view.from && from <= view.to) return;
    const half = (view.to - view.from) / 2;
    show((from + to) / 2 - half, (from + to) / 2 + half);
  }

  /** Selects what the reader chose on the board. */
  function fromBoard(action) {
    const side = sides.findIndex(({ name, error }) => name === "drawn" && !error);
    const span = action && side >= 0 ? spanOf(sides[side], `${action.stage}${action.kind}${action.microbatch}`) : -1;
    select(span >= 0 ? { side, span } : {}, true);
  }

  /** The same action in the new pictures. */
  function found({ side, span, name }) {
    if (span < 0 || !name || !sides[side] || sides[side].error) return { ...NOTHING };
    const place = spanOf(sides[side], name);
    return place < 0 ? { ...NOTHING } : { side, span: place, hole: -1, name };
  }

  function chosenLines() {
    const side = sides[chosen.side];
    return chosen.span >= 0 ? actionLines(side, chosen.span, chosen.side === 0 ? run() : null) : holeLines(side, side.holes[chosen.hole]);
  }

  function moved(event, along, by) {
    if (event.target.matches?.("input[type=range]")) {
      if (along > 0 || by < 0) event.target.stepUp();
      else event.target.stepDown();
      event.target.dispatchEvent(new Event("input"));
      return;
    }
    const side = sides[Math.max(chosen.side, 0)];
    if (side.error || !side.count) return;
    if (chosen.span < 0) select({ side: Math.max(chosen.side, 0), span: chosen.hole >= 0 ? Math.max(side.holes[chosen.hole].next, 0) : 0 });
    else select({ side: chosen.side, span: neighbour(side, chosen.span, along, by) });
  }

  function follow(back) {
    if (chosen.span < 0) return frame.say("Nothing is selected.");
    const side = sides[chosen.side];
    const to = back ? causeOf(side, chosen.span) : receivers(side, chosen.span)[0] ?? -1;
    if (to >= 0) select({ side: chosen.side, span: to });
    else frame.say(back ? "It receives nothing from another stage." : "No other stage receives from it.");
  }

  function other() {
    const to = 1 - Math.max(chosen.side, 0);
    if (!sides[to] || sides[to].error) return;
    const name = chosen.span >= 0 ? nameOf(sides[chosen.side], chosen.span) : "";
    select({ side: to, span: Math.max(spanOf(sides[to], name), 0) });
  }

  function clear() {
    if (chosen.side < 0 && !view) return false;
    view = null;
    select({});
    return true;
  }

  // ---- the part in view

  const last = () => Math.max(1e-9, ...drawable().map(({ makespan }) => makespan), run()?.seconds ?? 0);
  const run = () => (state.run?.start ? state.run : null);
  const drawable = () => sides.filter((side) => !side.error);

  function show(from, to) {
    const length = clamp(to - from, last() / 500, last());
    const begin = clamp(from, 0, last() - length);
    view = length > last() * 0.9999 ? null : { from: begin, to: begin + length };
    draw();
  }

  function zoom(factor, time) {
    const { from, to } = view ?? { from: 0, to: last() };
    const at = time ?? (from + to) / 2;
    show(at - (at - from) * factor, at + (to - at) * factor);
  }

  function pan(share) {
    if (!view) return;
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  }

  function fit() {
    view = null;
    draw();
  }

  // ---- pictures

  function plotOf(place) {
    const canvas = h("canvas", { class: "dlv-canvas", role: "img" });
    const heading = h("h4", { class: "dlv-sidename" });
    const told = h("p", { class: "dlv-trouble", role: "alert" });
    const tip = h("div", { class: "dlv-tip", hidden: true, "aria-hidden": "true" });
    const plot = h("div", { class: "dlv-plot" }, canvas, tip);
    const own = { canvas, heading, told, tip, plot, list: null, box: h("div", { class: "dlv-side" }, heading, told, plot) };
    const pointOf = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left - GUTTER, event.clientY - box.top - own.axis];
    };
    const target = (event) => (own.list ? hit(own.list, ...pointOf(event)) : null);
    canvas.addEventListener("click", (event) => {
      root.focus({ preventScroll: true });
      const at = target(event);
      select(at ? { side: place, span: at.span ?? -1, hole: at.hole ?? -1 } : {});
    });
    canvas.addEventListener("dblclick", fit);
    canvas.addEventListener("pointermove", (event) => {
      const at = target(event);
      const next = at ? { side: place, span: at.span ?? -1, hole: at.hole ?? -1 } : { ...NOTHING };
      if (next.span !== pointed.span || next.side !== pointed.side) {
        pointed = next;
        drawPlots();
      }
      tip.hidden = !at;
      if (!at) return;
      const side = sides[place];
      const lines = at.span != null ? actionLines(side, at.span, place === 0 ? run() : null) : holeLines(side, side.holes[at.hole]);
      tip.replaceChildren(...lines.map((line, i) => h(i ? "div" : "strong", {}, line)));
      const box = plot.getBoundingClientRect();
      tip.style.left = `${clamp(event.clientX - box.left + 14, 0, Math.max(box.width - tip.offsetWidth - 4, 0))}px`;
      tip.style.top = `${event.clientY - box.top + 18}px`;
    });
    canvas.addEventListener("pointerleave", () => {
      tip.hidden = true;
      pointed = { ...NOTHING };
      drawPlots();
    });
    plot.addEventListener("wheel", (event) => {
      if (event.ctrlKey) {
        const { from, to } = view ?? { from: 0, to: last() };
        zoom(Math.exp(clamp(event.deltaY, -100, 100) * 0.004), from + (pointOf(event)[0] / own.width) * (to - from));
      } else if (event.shiftKey && view) pan(event.deltaY / 800);
      else return;
      event.preventDefault();
    }, { passive: false });
    return own;
  }

  function drawControls() {
    schedule.value = now.schedule;
    beside.value = now.beside;
    drawButton.setAttribute("aria-pressed", String(now.schedule === "drawn" && !away));
    const free = [now.schedule, now.beside].some((name) => name === "drawn" || state.chunked.includes(name));
    for (const { name, slide, box } of sliders) {
      const value = now[name] ?? sides[0].chunks ?? 1;
      slide.value = String(value);
      if (document.activeElement !== box) box.value = String(value);
      if (live && name === "chunks") {
        slide.disabled = box.disabled = !free;
        slide.title = free ? "" : `${state.titles[now.schedule]} has its own number of chunks`;
      }
    }
    for (const { name, box } of fields) {
      if (document.activeElement !== box) box.value = now[name] == null ? "" : String(now[name]);
    }
  }

  function draw() {
    drawControls();
    write(trouble, state.refused ? "" : state.error);
    write(refused, state.refused);
    bar.draw();
    drawBoard();
    const chunked = drawable().some(({ chunks }) => chunks > 1);
    write(about, [chunked && boardBox.hidden ? SHARED : "", ...new Set(drawable().map(({ note }) => note ?? ""))].filter(Boolean).join(" "));
    levels?.draw(state, JSON.parse(model.get("board")).level, away, live);
    paintPlots();
    drawLegend();
    drawCharts();
    drawDetails();
    drawTable();
    drawCsv();
    for (const panel of root.querySelectorAll(".dlv-opened:not([hidden])")) panel.style.maxHeight = `${roomFor(root, panel, LEAST)}px`;
    Object.assign(root.dataset, { shown: state.shown, asking: !queue.settled() });
    look.ready = true;
  }

  /** Whether the board stands for the timeline of what is drawn. */
  const onBoard = (side) => side?.name === "drawn" && !boardBox.hidden;

  function drawRun() {
    bar.draw();
  }

  function drawBoard() {
    const shown = [state.controls.schedule, state.controls.beside].includes("drawn") && !away;
    if (boardBox.hidden === shown) frame.keys(shown ? BOARD_KEYS : undefined);
    boardBox.hidden = !shown;
    if (!shown || board) return;
    const room = () => (sides.length > 1 ? 100 : 168);
    board = drawingBoard({ model, el: boardBox, look: state.look, room, say: frame.say, selected: fromBoard, opened });
    board.colors(look.colors);
  }

  const drawPlots = oncePerPicture(paintPlots);

  function paintPlots() {
    const width = frame.body.clientWidth - GUTTER;
    if (!(width > 0) || !look.colors) return; // a notebook has put it aside
    const { from, to } = view ?? { from: 0, to: last() * 1.002 };
    const own = { from, to, width, path: showPath, sides: sides.length, ticks: ticks(from, to, (time) => ((time - from) / (to - from)) * width) };
    look.fills ??= fillsOf(plots[0].canvas.getContext("2d"), state.look);
    plots.forEach((plot, place) => {
      const side = sides[place];
      plot.box.hidden = !side || (onBoard(side) && (levels || !side.error)) || (!boardBox.hidden && isOpen());
      if (plot.box.hidden) return;
      write(plot.heading, side.error ? side.title : sideWords(side));
      write(plot.told, side.error ?? "");
      plot.plot.hidden = Boolean(side.error);
      if (side.error) return;
      plot.width = width;
      plot.list = drawList(side, own, place === 0 ? run() : null);
      const axis = place === 0 || onBoard(sides[0]) ? AXIS : 2; // the second side is below the first one's
      plot.axis = axis;
      const mine = (which, name) => (which.side === place ? which[name] : -1);
      paintSide(plot.canvas, side, plot.list, { ...own, axis }, look, { span: mine(chosen, "span"), hole: mine(chosen, "hole"), hover: mine(pointed, "span") });
      plot.canvas.setAttribute("aria-label", `Timeline. ${sideWords(side)} Arrow keys walk through its ${side.count} actions; the table lists them.`);
    });
    root.dataset.draws = Number(root.dataset.draws ?? 0) + 1;
  }

  function drawLegend() {
    const shown = [...new Set(drawable().flatMap((side) => [...new Set(side.kind)]))];
    const chunks = Math.max(1, ...drawable().map((side) => side.chunks));
    const key = `${shown.join()} ${chunks} ${run() != null}`;
    if (legend.dataset.key === key) return;
    legend.dataset.key = key;
    const mark = (style, text) => h("span", {}, swatch(style), text);
    legend.replaceChildren(
      ...Object.keys(KINDS).filter((kind) => shown.includes(kind)).map((kind) => mark(state.look.kinds[KINDS[kind]], `${kind} ${LETTERS[kind]}`)),
      mark(state.look.kinds.idle, "idle"),
      ...(chunks > 1 ? [h("span", {}, "lighter: a later chunk")] : []),
      h("span", {}, "number: microbatch"),
      h("span", {}, s("svg", { width: 22, height: 10, "aria-hidden": "true" }, s("path", { d: "M1 5H21", class: "dlv-critical" })), "critical path"),
      ...(run() ? [h("span", {}, "lower bar: measured")] : []),
    );
  }

  function drawCharts() {
    const plotted = drawable().some((side) => !onBoard(side)) && (boardBox.hidden || !isOpen());
    charts.hidden = Boolean(levels) || isOpen() || !drawable().length || (!boardBox.hidden && sides.length > 1);
    details.hidden = !plotted;
    legend.hidden = !plotted || !boardBox.hidden; // the board has its own
    if (charts.hidden) return;
    bubbleBox.hidden = drawable().every(({ name }) => name === "drawn");
    table.hidden = !boardBox.hidden; // the board says so itself
    write(bubbleTitle, chartWords(calm));
    const width = Math.max(220, bubbleBox.clientWidth || 400);
    const styles = state.styles;
    const high = run() ? MEASURED : CHART;
    bubbleChart(bubble, calm, drawable(), high, width, styles, run());
    memoryStrips(memory, drawable(), table.hidden ? 84 : high, Math.max(220, memoryBox.clientWidth || 400), styles);
    comparison(table, drawable(), styles, run());
  }

  function drawDetails() {
    chosen.name = chosen.span >= 0 ? nameOf(sides[chosen.side], chosen.span) : "";
    root.dataset.chosen = chosen.name || (chosen.hole >= 0 ? "idle" : "");
    if (chosen.side < 0) return details.replaceChildren(runDetails(state) || HINT);
    const [title, ...lines] = chosenLines();
    const side = sides[chosen.side];
    const to = chosen.span >= 0 ? causeOf(side, chosen.span) : causeOf(side, side.holes[chosen.hole].next, true);
    const link = (i, text) => h("button", { type: "button", class: "dlv-link", onclick: () => select({ side: chosen.side, span: i }) }, text);
    const focused = details.contains(document.activeElement);
    details.replaceChildren(h("strong", {}, title), ` ${lines.join("; ")}. `,
      to >= 0 ? link(to, `go to ${nameOf(side, to)}`) : "", " ",
      ...(chosen.span >= 0 ? receivers(side, chosen.span).map((i) => link(i, `go to ${nameOf(side, i)}, which receives the result`)) : []));
    if (focused) root.focus({ preventScroll: true });
  }

  function drawTable() {
    if (!tableBox.hidden) actionsTable(tableBox, sides, run(), chosen, (side, span) => select({ side, span }));
  }

  function drawCsv() {
    if (csvBox.hidden) return;
    if (shared.value !== (calm.csv ?? "")) shared.value = calm.csv ?? "";
  }

  model.on("change:state", answered);
  model.on("change:calm", calmed);
  model.on("change:ahead", lookedAhead);
  const resized = new ResizeObserver(() => frame.body.clientWidth && draw());
  resized.observe(frame.body);
  follows();
  draw();
  return () => {
    model.off("change:state", answered);
    model.off("change:calm", calmed);
    model.off("change:ahead", lookedAhead);
    queue.close();
    bar.stop();
    clearTimeout(pause);
    drawPlots.cancel();
    resized.disconnect();
    selection.stop();
    board?.stop();
    frame.stop();
    root.remove();
  };
}

function actionOf(side, i) {
  return { stage: side.stage[i], kind: side.kind[i], microbatch: side.microbatch[i] };
}

export default { render };
