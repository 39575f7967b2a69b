// The Timeline: zoom, pan, select, search and follow what every rank did.
import { clamp } from "../shared/arrays.js";
import { h, oncePerPicture, roomFor, write } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";
import { swatch } from "../shared/paint.js";
import { save } from "../shared/file.js";
import { sharedSelection } from "../shared/selection.js";
import { sourcePanel } from "../shared/source.js";
import { button, stage, toggle } from "../shared/stage.js";
import { ARROWS, IDLE, drawList, hit } from "./geometry.js";
import { AXIS, fillsOf, paint, paintWhole, stylesOf } from "./paint.js";
import { spanPanel, spansTable, statisticsPanel } from "./panels.js";
import { at, beside, readScene } from "./state.js";
import { statistics } from "./statistics.js";
import { toSvg } from "./svg.js";
import {
  gapLines, headLine, idleLines, kindName, memoryLines, messageLines, momentOf, spanLines, titleOf,
} from "./words.js";

const [LEAST, TALLEST] = [96, 262]; // pixels: of the rows are in view; more are scrolled
const OVERVIEW = [4, 18, 34]; // pixels: a row of the minimap; the least and the most for all
const CLICK = 4; // pixels: a pointer that moves less has clicked
const EDGES = { // what keys move an edge of the range by, in views
  ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1, Home: -Infinity, End: Infinity,
};

function render({ model, el }) {
  let close = open({ model, el });
  const again = () => {
    const focused = el.contains(el.getRootNode().activeElement);
    close();
    el.replaceChildren();
    close = open({ model, el });
    if (focused) el.firstElementChild.focus({ preventScroll: true });
  };
  model.on("change:state", again);
  return () => {
    model.off("change:state", again);
    close();
  };
}

function open({ model, el }) {
  const scene = readScene(JSON.parse(model.get("state")));
  const whole = scene.clocks.map(({ low, high }) => {
    const room = (high - low) * 0.01;
    return { from: low - room, to: high + room };
  });
  const now = {
    clock: 0, ...whole[0], hidden: new Set(), arrows: null, critical: scene.critical, table: false, hover: -1,
    span: -1, message: -1, range: null, order: null, matches: null, query: "", centred: -1, list: null,
  };
  const look = {};
  const clock = () => scene.clocks[now.clock];
  const above = AXIS + scene.above; // pixels over the first row

  const hasPath = scene.clocks.some((one) => one.critical.length);

  // ---- what stands where
  const [closer, farther, left, right] = [() => zoom(0.7), () => zoom(1 / 0.7), () => pan(-0.15), () => pan(0.15)];
  const keys = [
    ["W S", "zoom in, out", { w: closer, s: farther }],
    ["A D", "pan", { a: left, d: right, ArrowLeft: left, ArrowRight: right }],
    ["+ − 0", "zoom in, out, fit all", { "+": closer, "=": closer, "-": farther, 0: fitAll }],
    [", .", "previous, next span of the row", { ",": () => walk(false), ".": () => walk(true) }],
    ["↑ ↓", "row above, below", { ArrowUp: () => climb(-1), ArrowDown: () => climb(1) }],
    ["F", "centre the selection, again: fit it", { f: centre }],
    ["[ ]", "follow the arrow to its sender, receiver", { "[": () => follow("sender"), "]": () => follow("receiver") }],
    ["G", "go to what it waited for", { g: goToCause }],
    ["R", "range of the selection", { r: rangeOfSelection }],
    ["/", "search", { "/": () => search.focus() }],
    ["M", "messages off, all on", { m: () => arrowsButton.turn() }],
    ["P", "critical path on, off", { p: () => criticalButton.turn() }],
    ["C", "device or wall clock", { c: () => setClock((now.clock + 1) % scene.clocks.length) }],
    ["T", "table", { t: () => tableButton.turn() }],
    ["Ctrl+wheel", "zoom at the pointer", {}],
    ["Shift+wheel", "pan, as Shift+drag", {}],
    ["drag", "select a range", {}],
    ["double-click", "fit all", {}],
  ].filter(([shown]) => (shown !== "C" || scene.clocks.length > 1) && (shown !== "P" || hasPath));
  const frame = stage(el, {
    name: "timeline", look: scene.look, model, title: scene.title, lines: scene.lines, details: scene.details,
    keys, clear,
    onColors: (colors) => {
      Object.assign(look, { colors, styles: stylesOf(scene, colors), font: scene.look.font });
      if (look.fills) restyle();
    },
  });
  const { root, body } = frame;
  const canvas = h("canvas", { class: "dlv-canvas", role: "img" });
  const tall = h("div", { class: "dlv-tall" }, canvas);
  const scroller = h("div", { class: "dlv-rows", role: "group", "aria-label": "rows" }, tall);
  const overview = h("canvas", { role: "img", "aria-label": "the whole run" });
  const inView = h("div", { class: "dlv-window" });
  const minimap = h("div", { class: "dlv-minimap" }, overview, inView);
  const thin = clamp(OVERVIEW[0] * scene.rows.length, OVERVIEW[1], OVERVIEW[2]);
  minimap.style.height = `${thin}px`;
  const edges = ["from", "to"].map((side) => h("div", {
    class: "dlv-edge", role: "slider", tabindex: "0", hidden: true, "data-side": side,
    "aria-label": `${side === "from" ? "start" : "end"} of the range`,
  }));
  const tip = h("div", { class: "dlv-tip", hidden: true, "aria-hidden": "true" });
  const plot = h("div", { class: "dlv-plot" }, scroller, edges, tip);
  const legend = h("div", { class: "dlv-legend", role: "group", "aria-label": "kinds shown" });
  const criticalNote = h("p", { class: "dlv-found" });
  const details = h("div", { class: "dlv-panel", role: "region", "aria-label": "selected span" });
  const stats = h("div", { class: "dlv-panel dlv-most", role: "region", "aria-label": "statistics of the range" });
  const tableBox = h("div", { class: "dlv-panel dlv-wide", hidden: true });
  const source = sourcePanel(scene.sources, (value) => shared.choose(value));
  const sourceBox = h("div", { class: "dlv-panel", hidden: true, role: "region", "aria-label": "source" },
    source.panel);
  const answers = h("div", {
    class: "dlv-panels dlv-answers", role: "group", "aria-label": "answers", tabindex: "0",
  }, details, stats, sourceBox, tableBox);
  body.append(answers, minimap, plot, legend, criticalNote);

  /** Brings the panel that answers to the top of the others. */
  function answer(panel) {
    for (const one of [details, stats, sourceBox, tableBox]) one.style.order = one === panel ? "-1" : "0";
    answers.scrollTop = 0;
    answers.classList.toggle("dlv-long", !(tableBox.hidden && sourceBox.hidden));
  }

  const search = h("input", {
    type: "search", placeholder: "search names", "aria-label": "search spans by name", size: "14",
    oninput: () => find(search.value),
    onkeydown: (event) => {
      if (event.key === "Enter") nextMatch(!event.shiftKey);
      if (event.key === "Escape") {
        find((search.value = ""));
        root.focus();
      }
      if (["Enter", "Escape"].includes(event.key)) event.preventDefault();
    },
  });
  const found = h("span", { class: "dlv-found", role: "status" });
  const steps = [...new Set(scene.span.step)].filter((step) => step >= 0).sort((a, b) => a - b);
  const stepSelect = h("select", { "aria-label": "step", onchange: () => chooseStep(stepSelect.value) },
    h("option", { value: "" }, "all steps"), steps.map((step) => h("option", { value: step }, `step ${step}`)));
  const arrowsButton = toggle("messages", "show messages as arrows; the selection's show anyway (M)", true, (on) => {
    now.arrows = on;
    draw();
  });
  const arrowsNote = h("span", { class: "dlv-found" });
  const criticalButton = toggle("critical path", "show the critical path (P)", scene.critical, (on) => {
    now.critical = on;
    frame.say(on ? clock().told : "the critical path is not shown");
    draw();
  });
  const tableButton = toggle("table", "show a table of the spans in view (T)", false, (on) => {
    now.table = on;
    tableBox.hidden = !on;
    answer(tableBox);
    draw();
  });
  const sourceButton = toggle("source", "show the lines of source", false, (on) => {
    sourceBox.hidden = !on;
    answer(sourceBox);
    if (now.span >= 0) source.mark(scene.span.where[now.span]);
  });
  const clockButtons = scene.clocks.map((one, number) =>
    h("button", { type: "button", "aria-pressed": String(number === 0), onclick: () => setClock(number) }, one.axis));
  frame.controls(
    [button("−", "zoom out (S)", farther), button("+", "zoom in (W)", closer), button("fit", "fit all (0)", fitAll)],
    steps.length > 1 ? [stepSelect] : [],
    [search, found],
    scene.messageCount ? [arrowsButton, arrowsNote] : [],
    hasPath ? [criticalButton] : [],
    scene.clocks.length > 1 ? h("span", { role: "group", "aria-label": "clock" }, clockButtons) : [],
    [tableButton, ...(source.empty ? [] : [sourceButton])],
    [button("SVG", "save what is in view as an SVG file", saveSvg)],
  );
  const kinds = scene.span.kinds.of.map((kind, number) => [kind, number]);
  const idleName = scene.span.kinds.of.includes("idle") ? "idle time" : "idle";
  if (scene.clocks.some((one) => one.idle.count)) kinds.push([idleName, IDLE]);
  for (const [kind, number] of kinds) {
    const swatches = h("span", { class: "dlv-swatches" });
    legend.append(h("button", {
      type: "button", "aria-pressed": "true", title: `show or hide ${kindName(kind)}`, "data-kind": number,
      onclick: (event) => {
        const shown = now.hidden.delete(number);
        if (!shown) now.hidden.add(number);
        event.currentTarget.setAttribute("aria-pressed", String(shown));
        draw();
      },
    }, swatches, ` ${kindName(kind).slice(0, 40)}`));
  }
  if (scene.total > scene.count) {
    legend.append(h("span", { class: "dlv-gaps" }, h("span", { class: "dlv-swatches" }), " not drawn"));
  }

  /** The small pictures of the legend, in the colours of the page; of kinds that take time by this clock. */
  function drawLegend() {
    const { shades, idle, gaps } = look.styles;
    const { start, end } = clock();
    const lasting = new Set([String(IDLE), undefined]);
    scene.kindOf.forEach((kind, i) => end[i] > start[i] && lasting.add(String(kind)));
    for (const one of legend.children) {
      const kind = one.dataset.kind;
      one.hidden = !lasting.has(kind);
      const own = kind == null ? [gaps] : Number(kind) === IDLE ? [idle] : shades[kind];
      one.querySelector(".dlv-swatches").replaceChildren(...own.map(swatch));
    }
  }

  /** Puts something else into a panel; the focus in what goes passes to the whole. */
  function fillPanel(panel, ...children) {
    const focused = panel.contains(root.getRootNode().activeElement);
    panel.replaceChildren(...children);
    if (focused) root.focus({ preventScroll: true });
  }

  // ---- drawing
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = `11px ${scene.look.font}`;
  const widths = scene.rows.slice(0, 400).map((row) => measure.measureText(row.label).width);
  const gutter = Math.ceil(Math.min(Math.max(52, ...widths) + 14, 180)); // whole pixels: so bars are sharp
  let measured = null;

  /**
   * Where the rows lie in the picture; where a notebook has put it aside, where they lay. The rows take
   * what all else leaves them of the widget's height.
   */
  function geometry() {
    if (scroller.clientWidth) {
      const room = Math.min(roomFor(root, scroller, LEAST + above) - above, TALLEST);
      scroller.style.maxHeight = `${room + above}px`;
      measured = {
        whole: scroller.clientWidth, left: gutter, width: Math.max(scroller.clientWidth - gutter, 50),
        height: Math.min(scene.height + 4, room), top: scroller.scrollTop,
      };
    }
    return measured;
  }

  tall.style.height = `${scene.height + 4 + above}px`;

  const draw = oncePerPicture(() => {
    write(criticalNote, now.critical ? clock().told : "");
    drawTable(); // before the rows, which take the room that is left
    if (!geometry()) return;
    const view = { ...now, ...geometry() };
    makeFills();
    now.list = drawList(scene, view);
    const row = now.span >= 0 ? scene.slots[scene.slotOf[now.span]].row : -1;
    paint(canvas, scene, now.list, view, look, { ...now, row });
    place(view);
    Object.assign(root.dataset, {
      from: now.from, to: now.to, clock: clock().name, critical: now.critical,
      draws: Number(root.dataset.draws ?? 0) + 1,
      span: now.span >= 0 ? scene.span.row[now.span] : "",
      message: now.message >= 0 ? scene.message.row[now.message] : "",
    });
  });

  /** Edges of the range, the minimap's window, and the words beside the picture. */
  function place(view) {
    const scale = view.width / (now.to - now.from);
    edges.forEach((edge) => {
      const time = now.range?.[edge.dataset.side];
      const x = (time - now.from) * scale;
      edge.hidden = time == null || x < -1 || x > view.width + 1;
      if (edge.hidden) return;
      edge.style.left = `${view.left + x}px`;
      edge.setAttribute("aria-valuenow", String(time));
      edge.setAttribute("aria-valuemin", String(clock().low));
      edge.setAttribute("aria-valuemax", String(clock().high));
      edge.setAttribute("aria-valuetext", momentOf(clock())(time));
    });
    const { low, high } = clock();
    const part = (time) => clamp((time - low) / (high - low), 0, 1) * 100;
    inView.style.left = `${part(now.from)}%`;
    inView.style.width = `${Math.max(part(now.to) - part(now.from), 0.3)}%`;
    const left = now.arrows === false ? 0 : now.list.messagesLeftOut;
    const why = now.list.messagesInView > ARROWS ? "in view: zoom in to see them" : "would cover labels";
    write(arrowsNote, left ? `${left.toLocaleString("en")} ${why}` : "");
    const shown = `${scene.count} spans on ${scene.rows.length} rows, ${seconds(now.to - now.from)} in view`;
    canvas.setAttribute("aria-label", `Timeline of ${shown}. The table lists them.`);
  }

  function drawOverview() {
    if (geometry()) paintWhole(overview, scene, clock(), measured.whole, thin, look);
  }

  function makeFills() {
    if (look.fills) return;
    look.fills = fillsOf(canvas.getContext("2d"), look.styles);
    drawLegend();
  }

  function restyle() {
    look.fills = null;
    makeFills();
    drawOverview();
    draw();
  }

  function saveSvg() {
    if (!geometry()) return;
    const view = { ...now, ...measured, hover: -1 };
    const drawn = toSvg(scene, drawList(scene, view), view, { ...look, title: scene.title });
    save(drawn, "timeline.svg");
    frame.say("timeline.svg is saved");
  }

  const drawTable = () => {
    if (!now.table) return;
    const key = [now.from, now.to, now.clock, now.critical, now.query, now.span, ...now.hidden].join();
    if (tableBox.dataset.key === key) return;
    tableBox.dataset.key = key;
    fillPanel(tableBox, spansTable(scene, clock(), { ...now, chosen: now.span, go }));
  };

  // ---- the part in view
  function show(from, to) {
    const { from: low, to: high } = whole[now.clock];
    const length = clamp(to - from, clock().quantum * 20, high - low);
    now.from = clamp(from, low, high - length);
    now.to = now.from + length;
    tip.hidden = true; // what it told of has moved
    draw();
  }

  function zoom(factor, time = (now.from + now.to) / 2) {
    show(time - (time - now.from) * factor, time + (now.to - time) * factor);
  }

  function pan(share) {
    const by = share * (now.to - now.from);
    show(now.from + by, now.to + by);
  }

  function fitAll() {
    show(whole[now.clock].from, whole[now.clock].to);
  }

  function fit(from, to) {
    const room = Math.max((to - from) * 0.08, clock().quantum * 10);
    show(from - room, to + room);
  }

  function centre() {
    if (now.span < 0) return now.range && fit(now.range.from, now.range.to);
    const [start, end] = [clock().start[now.span], clock().end[now.span]];
    if (now.centred === now.span) return fit(start, end);
    const half = (now.to - now.from) / 2;
    show((start + end) / 2 - half, (start + end) / 2 + half);
    now.centred = now.span;
  }

  function reveal(span) {
    const [start, end] = [clock().start[span], clock().end[span]];
    if (end < now.from || start > now.to) {
      const half = Math.max((now.to - now.from) / 2, (end - start) * 0.6);
      show((start + end) / 2 - half, (start + end) / 2 + half);
    }
    const row = scene.rows[scene.slots[scene.slotOf[span]].row];
    const seen = geometry();
    if (!seen) return; // it is not on the page yet
    const { top, height } = seen;
    if (row.top < top || row.bottom > top + height) scroller.scrollTop = row.middle - height / 2;
  }

  function setClock(number) {
    if (number === now.clock) return;
    const [before, after] = [clock(), scene.clocks[number]];
    const move = (time) => after.low + ((time - before.low) / (before.high - before.low)) * (after.high - after.low);
    const range = now.range && { ...now.range, from: move(now.range.from), to: move(now.range.to) };
    const view = [move(now.from), move(now.to)];
    now.clock = number;
    clockButtons.forEach((one, i) => one.setAttribute("aria-pressed", String(i === number)));
    root.querySelector("header p").textContent = scene.lines[0].replace(/(wall-clock|device) time/, after.axis);
    now.range = range?.step != null ? { ...windowOf(range.step), step: range.step } : range;
    drawLegend();
    drawOverview();
    show(...view);
    showDetails();
    showStatistics();
    frame.say(`times by the ${after.name} clock`);
  }

  // ---- selecting
  const shared = sharedSelection(scene.trace, model, (value, own) => {
    now.span = now.message = -1;
    now.centred = -1;
    if (value.where != null) {
      now.matches = Uint8Array.from(scene.span.where, (where) => Number(where === value.where));
      write(found, told(now.matches));
      const first = now.matches.indexOf(1);
      if (first >= 0 && !own) reveal(first);
    } else if (now.query === "") clearMatches();
    if (value.span != null) now.span = scene.rowOf.get(value.span) ?? -1;
    if (now.span >= 0) now.message = scene.span.flow[now.span];
    if (value.message != null) {
      now.message = scene.messageOf.get(value.message) ?? -1;
      const ends = now.message < 0 ? [] : [scene.message.receiver[now.message], scene.message.sender[now.message]];
      now.span = ends.find((end) => end >= 0) ?? -1;
    }
    if (now.span >= 0) reveal(now.span);
    source.mark(value.where ?? (now.span >= 0 ? scene.span.where[now.span] : ""));
    showDetails();
    if (now.span >= 0) frame.say(spanLines(scene, clock(), now.span).join(", "));
    draw();
  });

  function go(span) {
    if (span < 0) return;
    shared.choose({ span: scene.span.row[span] });
    reveal(span);
  }

  function showDetails() {
    if (now.span < 0) {
      fillPanel(details, h("p", {}, scene.count
        ? "Click a bar, or press . to walk from span to span: its details appear here."
        : "Nothing was recorded."));
      return;
    }
    answer(details);
    fillPanel(details, ...spanPanel(scene, now.clock, now.span, {
      go,
      show: (where) => {
        sourceButton.turn(true);
        source.mark(where);
      },
      sourced: source.has,
    }));
  }

  function walk(forward) {
    if (now.span < 0) return go(at(scene, clock(), scene.slots[0]?.row ?? 0, now.from + (now.to - now.from) * 0.01));
    go(beside(scene, clock(), now.span, forward));
  }

  function climb(by) {
    if (now.span < 0) return walk(true);
    const middle = (Math.max(clock().start[now.span], now.from) + Math.min(clock().end[now.span], now.to)) / 2;
    for (let row = scene.slots[scene.slotOf[now.span]].row + by; row >= 0 && row < scene.rows.length; row += by) {
      const span = at(scene, clock(), row, middle);
      if (span >= 0) return go(span);
    }
  }

  function follow(end) {
    if (now.message < 0) return tell(now.span < 0 ? "Nothing is selected." : "The selected span carries no message.");
    const span = scene.message[end][now.message];
    if (span < 0) return tell(`The ${end}'s span is not in this picture.`);
    go(span);
  }

  function goToCause() {
    const wait = clock().waits.get(now.span);
    if (wait && wait.at >= 0) return go(wait.at);
    tell(now.span < 0 ? "Nothing is selected." : "The selected span waited for nobody.");
  }

  /** Says why a key did nothing. */
  function tell(words) {
    showDetails();
    details.prepend(h("p", { class: "dlv-reply" }, words));
    answer(details);
    frame.say(words);
  }

  function clear() {
    if (!now.range && !now.matches && now.span < 0 && now.message < 0) return false;
    now.range = null;
    stepSelect.value = "";
    find((search.value = ""));
    shared.choose({});
    showStatistics();
    draw();
    return true;
  }

  // ---- a range and its statistics
  function setRange(from, to, step = null) {
    const [low, high] = [clock().low, clock().high];
    now.range = { from: clamp(Math.min(from, to), low, high), to: clamp(Math.max(from, to), low, high), step };
    if (step == null) stepSelect.value = "";
    answer(stats);
    showStatistics();
    draw();
  }

  function rangeOfSelection() {
    if (now.span >= 0) setRange(clock().start[now.span], clock().end[now.span]);
    else setRange(now.from, now.to);
  }

  function windowOf(step) {
    let [from, to] = [Infinity, -Infinity];
    for (let i = 0; i < scene.count; i++) {
      if (scene.span.step[i] !== step) continue;
      from = Math.min(from, clock().start[i]);
      to = Math.max(to, clock().end[i]);
    }
    return { from, to };
  }

  function chooseStep(value) {
    if (value === "") {
      now.range = null;
      showStatistics();
      return fitAll();
    }
    const { from, to } = windowOf(Number(value));
    setRange(from, to, Number(value));
    fit(from, to);
  }

  const showStatistics = oncePerPicture(() => {
    if (!now.range) {
      fillPanel(stats, h("p", {}, "Drag over the picture, press R or choose a step: "
        + "the time of each rank and its longest wait appear here."));
      return;
    }
    const { from, to, step } = now.range;
    const focused = stats.contains(root.getRootNode().activeElement) && now.sorted;
    const found = statistics(scene, clock(), now.range);
    fillPanel(stats,
      h("h4", {}, `${step == null ? "Range" : `Step ${step}`}: ${seconds(to - from)}`),
      ...statisticsPanel(scene, clock(), now.range, found, { go, order: now.order, sort: sortRanks }),
    );
    if (focused) stats.querySelector("th[aria-sort] button")?.focus();
    now.sorted = false;
  });

  /** Sorts the ranks by a column, the most first; the same column again: the least first. */
  function sortRanks(by) {
    now.order = { by, down: now.order?.by === by ? !now.order.down : by !== "rank" };
    now.sorted = true;
    showStatistics();
  }

  edges.forEach((edge) => {
    const side = edge.dataset.side;
    const other = side === "from" ? "to" : "from";
    const move = (time) => {
      const limit = now.range[other];
      const kept = side === "from" ? Math.min(time, limit) : Math.max(time, limit);
      setRange(side === "from" ? kept : limit, side === "from" ? limit : kept);
    };
    edge.addEventListener("keydown", (event) => {
      const by = EDGES[event.key];
      if (!by) return;
      event.preventDefault();
      move(now.range[side] + by * (now.to - now.from));
    });
    edge.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      edge.focus();
      edge.setPointerCapture(event.pointerId);
    });
    edge.addEventListener("pointermove", (event) => {
      if (edge.hasPointerCapture(event.pointerId)) move(timeAt(event));
    });
  });

  // ---- search
  function find(query) {
    now.query = query.trim().toLowerCase();
    if (!now.query) return clearMatches();
    const { kind, name, label, where } = scene.span;
    const known = new Map();
    now.matches = Uint8Array.from({ length: scene.count }, (_, i) => {
      const text = `${titleOf(scene, i)} ${kind[i]} ${name[i]} ${label[i].join(" ")} ${where[i]}`;
      if (!known.has(text)) known.set(text, Number(text.toLowerCase().includes(now.query)));
      return known.get(text);
    });
    write(found, told(now.matches));
    draw();
  }

  function told(matches) {
    const count = matches.reduce((sum, one) => sum + one, 0);
    return `${count.toLocaleString("en")} found`;
  }

  function clearMatches() {
    now.matches = null;
    now.query = "";
    write(found, "");
    draw();
  }

  function nextMatch(forward) {
    if (!now.matches) return;
    const start = clock().start;
    const places = [];
    now.matches.forEach((match, i) => match && places.push(i));
    places.sort((a, b) => start[a] - start[b] || a - b);
    if (!places.length) return;
    const own = places.indexOf(now.span);
    const after = own >= 0 ? own + (forward ? 1 : -1) : places.findIndex((i) => start[i] >= now.from);
    go(places[(Math.max(after, own >= 0 ? after : 0) + places.length) % places.length]);
  }

  // ---- pointer
  let press = null;

  function pointOf(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left - gutter, event.clientY - box.top - above];
  }

  function timeAt(event) {
    return now.from + (pointOf(event)[0] / geometry().width) * (now.to - now.from);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    root.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    press = { x: event.clientX, time: timeAt(event), from: now.from, to: now.to, moved: false, pan: event.shiftKey };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!press) return hover(event);
    press.moved ||= Math.abs(event.clientX - press.x) > CLICK;
    if (!press.moved) return;
    tip.hidden = true;
    if (press.pan) {
      const by = ((press.x - event.clientX) / geometry().width) * (press.to - press.from);
      show(press.from + by, press.to + by);
    } else setRange(press.time, timeAt(event));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (press && !press.moved) click(event);
    press = null;
  });
  canvas.addEventListener("pointercancel", () => (press = null));
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    now.hover = -1;
    draw();
  });
  canvas.addEventListener("dblclick", fitAll);
  scroller.addEventListener("scroll", draw);
  plot.addEventListener("wheel", (event) => {
    const { deltaX, deltaY } = event;
    if (event.ctrlKey) zoom(Math.exp(clamp(deltaY, -100, 100) * 0.004), timeAt(event));
    else if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) pan((deltaX || deltaY) / 800);
    else return;
    event.preventDefault();
  }, { passive: false });

  function click(event) {
    const target = now.list && hit(now.list, ...pointOf(event));
    if (target?.message != null) {
      const end = scene.message[target.end][target.message];
      if (end >= 0) go(end);
      else shared.choose({ message: scene.message.row[target.message] });
    } else if (target?.span != null) go(target.span);
    else if (target?.idle != null) {
      shared.choose({});
      const cause = clock().idle.at[target.idle];
      answer(details);
      fillPanel(details,
        ...idleLines(scene, clock(), target.idle).map((line) => h("p", {}, line)),
        cause < 0 ? "" : h("button", { type: "button", class: "dlv-link", onclick: () => go(cause) },
          `show it: ${titleOf(scene, cause)}`),
      );
    } else shared.choose({});
  }

  function hover(event) {
    const [x, y] = pointOf(event);
    const target = now.list && x >= 0 ? hit(now.list, x, y) : null;
    const span = target?.span ?? -1;
    if (span !== now.hover) {
      now.hover = span;
      draw();
    }
    tip.hidden = !target;
    if (!target) return;
    const lines = linesOf(target, event);
    tip.replaceChildren(...lines.map((line, i) => h(i ? "div" : "strong", {}, line)));
    const box = plot.getBoundingClientRect();
    tip.style.left = `${clamp(event.clientX - box.left + 14, 0, Math.max(box.width - tip.offsetWidth - 4, 0))}px`;
    const [under, over] = [event.clientY - box.top + 18, event.clientY - box.top - tip.offsetHeight - 10];
    tip.style.top = `${under + tip.offsetHeight > box.height && over > 0 ? over : under}px`;
  }

  /** What lies under the pointer, in lines. */
  function linesOf(target, event) {
    if (target.message != null) return [...messageLines(scene, clock(), target.message), `click: the ${target.end}`];
    if (target.told) return ["waits for ever", target.told];
    if (target.idle != null) return idleLines(scene, clock(), target.idle);
    if (target.gap != null) return gapLines(scene, clock(), target.gap);
    if (target.memory) return memoryLines(target.memory, timeAt(event), clock());
    if (target.head != null) return [titleOf(scene, target.span), headLine(scene, clock(), target.head)];
    return spanLines(scene, clock(), target.span);
  }

  const moveWindow = (event) => {
    const box = minimap.getBoundingClientRect();
    const time = clock().low + ((event.clientX - box.left) / box.width) * (clock().high - clock().low);
    const half = (now.to - now.from) / 2;
    show(time - half, time + half);
  };
  minimap.addEventListener("pointerdown", (event) => {
    minimap.setPointerCapture(event.pointerId);
    moveWindow(event);
  });
  minimap.addEventListener("pointermove", (event) => {
    if (minimap.hasPointerCapture(event.pointerId)) moveWindow(event);
  });

  const resized = new ResizeObserver(() => {
    if (!minimap.clientWidth) return;
    makeFills();
    drawOverview();
    draw();
  });
  resized.observe(plot);
  showDetails();
  showStatistics();
  shared.start();
  return () => {
    resized.disconnect();
    draw.cancel();
    showStatistics.cancel();
    shared.stop();
    frame.stop();
  };
}

export default { render };
