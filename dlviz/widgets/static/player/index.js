// Plays the messages of a run round by round: controls, what is pointed at and chosen, predictions.
import { clamp } from "../shared/arrays.js";
import { h, s, write } from "../shared/dom.js";
import { sharedSelection } from "../shared/selection.js";
import { sourcePanel } from "../shared/source.js";
import { button, stage, toggle } from "../shared/stage.js";
import { stripOf, unpacked } from "./geometry.js";
import { cellWords, rules, savedRound } from "./paint.js";
import {
  arithmeticPanel,
  chunksPanel,
  circlePanel,
  legend,
  messagesAt,
  stripPanel,
  tablesPanel,
  timesOf,
} from "./panels.js";
import { save } from "../shared/file.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const BEAT = 1600; // ms between two rounds at speed 1
const SPOKEN = 4; // messages read out per round
const ROOM = 332; // pixels for what each rank holds and, below it, the program's lines
const CODE = 100; // of them for the lines
const GUESS = 62; // pixels that the question of a prediction takes of it
const VARIABLES = Object.fromEntries(
  ["ink", "paper", "faint", "grid", "cell"].map((name) => [name, `var(--dlv-${name})`]),
);
const HINT = "Point at a message, a chunk or a rank to see what belongs to it.";
const STRIP = " The strip shows all rounds: the stronger the blue of a cell, the more ranks' numbers it holds; orange is wrong.";

/** Shows a model's messages in `el`, anew at each change of its state; returns what ends it. */
export function showMessages({ model, el }) {
  let shown = { number: 0, speed: SPEEDS.indexOf(1) };
  let player = build();

  function build() {
    return playerOf(model, el, shown, (now) => (shown = now));
  }

  function rebuild() {
    const focused = player.stop();
    player = build();
    if (focused) player.root.focus({ preventScroll: true });
  }

  model.on("change:state", rebuild);
  return () => {
    model.off("change:state", rebuild);
    player.stop();
  };
}

/** A player of the model's state; `remember` is told of the frame and the speed. */
function playerOf(model, el, { number, speed }, remember) {
  const scene = unpacked(JSON.parse(model.get("state")));
  const end = scene.frames.length - 1;
  const sending = scene.frames.reduce((last, { messages }, i) => (messages.length ? i : last), 0);
  number = clamp(number, 0, end);
  let timer = 0;
  let chosen = [];
  let predicting = false;
  let score = { right: 0, of: 0 };
  let told = "";
  let furthest = number; // the last round that was seen: a guess counts for one not seen yet
  let colors = scene.look.themes.light;
  let spot = [0, 0]; // row and chunk of the grid that the keys are at

  const frame = stage(el, {
    name: "message player",
    look: scene.look,
    model,
    title: scene.title,
    lines: scene.lines,
    details: scene.details,
    keys: [
      ["← →", "round before, round after", { ArrowLeft: () => step(-1), ArrowRight: () => step(1) }],
      [", .", "round before, round after", { ",": () => step(-1), ".": () => step(1) }],
      ["Space", "play, pause", { " ": () => play(!timer) }],
      ["Home End", "first, last", { Home: () => go(0), End: () => go(end) }],
      [
        "+ −",
        "faster, slower",
        { "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1), "−": () => faster(-1) },
      ],
      ["p", "predict", { p: () => predict.disabled || predict.turn() }],
      ["t", "tables", { t: () => tabled.turn() }],
    ],
    clear: () => {
      const any = chosen.length > 0;
      shared.choose({});
      return any;
    },
    onColors: (now) => (colors = now),
  });

  const first = button("|◀", "first round", () => go(0));
  const back = button("◀ back", "round before", () => step(-1));
  const playing = button("▶ play", "play", () => play(!timer));
  const next = button("next ▶", "round after", () => step(1));
  const last = button("▶|", "last round", () => go(end));
  const slower = button("−", "slower", () => faster(-1));
  const rate = h("output", { "aria-label": "speed" });
  const quicker = button("+", "faster", () => faster(1));
  const slider = h("input", {
    type: "range",
    min: 0,
    max: end,
    step: 1,
    "aria-label": "round",
    oninput: () => go(Number(slider.value)),
  });
  const predict = toggle("predict", "predict mode: say which chunk moves next", false, setPredicting);
  const tabled = toggle("tables", "show tables in place of the pictures", false, setTabled);
  const svg = button("SVG", "save this round as an SVG file", () =>
    save(savedRound(scene, layOut(), number, colors, scene.look.font), "messages.svg"),
  );
  predict.disabled = !scene.values.length;
  frame.controls([first, back, playing, next, last], ["speed", slower, rate, quicker], [predict, tabled, svg]);

  const phase = h("span", { class: "dlv-phase" });
  const name = h("strong");
  const summary = h("span");
  const now = h("p", { class: "dlv-now" }, name, phase, summary);
  const verdict = h("span", { class: "dlv-verdict" });
  const points = h("strong", { class: "dlv-score" });
  const reset = button("reset", "reset the score", () => setScore(0, 0));
  const guessing = h("div", { class: "dlv-guess", hidden: true }, verdict, points, reset);
  const circle = circlePanel(scene);
  const chunks = chunksPanel(scene);
  const sums = arithmeticPanel(scene, (row) => choose({ message: row }));
  const tables = tablesPanel(scene, layOut);
  const strip = stripPanel(scene, go);
  const source = sourcePanel(scene.sources, choose);
  const hint = HINT + (stripOf(scene, 600, 40).length ? STRIP : "");
  const pointed = h("p", { class: "dlv-told" }, hint);
  const lines = source.empty
    ? null
    : h("div", { class: "dlv-lines" }, h("h4", {}, "The lines that sent and received"), source.panel);
  const held = scene.values.length > 0;
  const body = h(
    "div",
    { class: "dlv-pictures" },
    h("div", { class: "dlv-beside" }, held ? circle.root : null, sums.root),
    h("div", { class: "dlv-main" }, held ? null : circle.root, chunks.root, legend(scene), pointed, lines),
  );
  const scrub = h("div", { class: "dlv-scrub" }, slider, now);
  frame.body.append(s("style", {}, rules(VARIABLES, ".dlv svg ")), scrub, strip.root, guessing, body, tables.root);

  function layOut() {
    chunks.lay(Math.max(320, chunks.box.clientWidth || 560), ROOM - (lines ? CODE : 0) - (predicting ? GUESS : 0));
    return chunks.layout();
  }

  function draw() {
    const { name: called, phase: in_, summary: does } = scene.frames[number];
    write(phase, in_);
    phase.hidden = !in_;
    write(name, called);
    write(summary, number ? does : "before the first message");
    slider.value = String(number);
    slider.setAttribute("aria-valuetext", called + (in_ ? `, ${in_}` : ""));
    write(rate, `${SPEEDS[speed]}×`);
    write(playing, timer ? "❚❚ pause" : "▶ play");
    playing.setAttribute("aria-label", timer ? "pause" : "play");
    off(first, number === 0);
    off(back, number === 0);
    off(next, number === end);
    off(last, number === end);
    off(playing, end === 0);
    off(slower, speed === 0);
    off(quicker, speed === SPEEDS.length - 1);
    slider.disabled = end === 0;
    const focused = frame.root.contains(document.activeElement);
    if (tables.root.hidden) {
      layOut();
      circle.draw(number, !predicting);
      chunks.draw(number);
      sums.draw(number);
      rove();
    } else tables.draw(number);
    strip.draw(number, predicting ? furthest : end);
    mark();
    if (focused && !frame.root.contains(document.activeElement)) frame.root.focus({ preventScroll: true });
  }

  /** Switches a button off without losing the focus that it may have. */
  function off(control, value) {
    if (value && document.activeElement === control) frame.root.focus({ preventScroll: true });
    control.disabled = value;
  }

  function go(to, moved = true) {
    to = clamp(to, 0, end);
    if (moved) play(false);
    if (to === number) return;
    number = to;
    furthest = Math.max(furthest, number);
    told = "";
    remember({ number, speed });
    point([], hint);
    prompt();
    draw();
    const { name: called, phase: in_, messages } = scene.frames[number];
    const words = messages.slice(0, SPOKEN).map((row) => scene.messages[row].sentence);
    if (messages.length > SPOKEN) words.push(`and ${messages.length - SPOKEN} more messages`);
    frame.say([[called, in_].filter(Boolean).join(", "), ...words].join(". "));
  }

  function step(by) {
    go(number + by);
  }

  function play(on) {
    if (on === Boolean(timer)) return;
    clearTimeout(timer);
    timer = 0;
    if (on) {
      if (predicting) predict.turn(false);
      if (number === end) go(0);
      const beat = () => {
        timer = number + 1 < end ? setTimeout(beat, BEAT / SPEEDS[speed]) : 0;
        go(number + 1, false);
      };
      timer = setTimeout(beat, BEAT / SPEEDS[speed]);
    }
    draw();
  }

  function faster(by) {
    speed = clamp(speed + by, 0, SPEEDS.length - 1);
    remember({ number, speed });
    frame.say(`speed ${SPEEDS[speed]}`);
    draw();
  }

  function setTabled(on) {
    body.hidden = on;
    tables.root.hidden = !on;
    draw();
  }

  // Pointing and choosing

  function point(rows, words) {
    write(pointed, words);
    const hot = new Set(rows.map(String));
    body.classList.toggle("dlv-pointing", hot.size > 0);
    for (const part of body.querySelectorAll("[data-message]"))
      part.classList.toggle("dlv-hot", hot.has(part.dataset.message));
  }

  function pointAt({ target }) {
    const part = target.closest?.("[data-message], [data-cell], [data-rank]");
    if (!part) return point([], hint);
    const { message, cell, rank } = part.dataset;
    if (message != null)
      return point([message], `${scene.messages[message].sentence}: ${timesOf(scene.messages[message])}`);
    if (rank != null) {
      const own = [...chunks.groups.values()]
        .filter((group) => group.cell.rank === Number(rank))
        .map((group) => cellWords(scene, group.cell));
      return point(messagesAt(scene, number, Number(rank)), own.slice(0, 12).join("\n"));
    }
    const at = chunks.cell(cell);
    point(messagesAt(scene, number, at.rank, at.chunk), cellWords(scene, at));
  }

  body.addEventListener("pointerover", pointAt);
  body.addEventListener("focusin", pointAt);
  body.addEventListener("pointerleave", () => point([], hint));
  body.addEventListener("click", ({ target }) => {
    const part = target.closest?.("svg [data-message], svg [data-cell]");
    if (!part) return;
    if (part.dataset.cell && predicting) return guess(part.dataset.cell);
    const at = part.dataset.cell && chunks.cell(part.dataset.cell);
    const rows = at ? messagesAt(scene, number, at.rank, at.chunk) : [Number(part.dataset.message)];
    choose(rows.length ? { message: rows[0] } : {});
  });

  function choose(value) {
    shared.choose(value);
  }

  const shared = sharedSelection(scene.trace, model, (value, own) => {
    const made = (test) =>
      Object.entries(scene.messages)
        .filter(([, message]) => test(message))
        .map(([row]) => Number(row));
    chosen = [];
    if (value.message != null && scene.frameOf.has(value.message)) chosen = [value.message];
    else if (value.span != null) chosen = made(({ spans }) => spans.includes(value.span));
    else if (value.where != null) chosen = made(({ where }) => where.includes(value.where));
    const here = chosen.some((row) => scene.frameOf.get(row) === number);
    if (chosen.length && !here) go(Math.min(...chosen.map((row) => scene.frameOf.get(row))));
    else if (chosen.length && !own) play(false);
    source.mark(value.where ? [value.where] : chosen.slice(0, 1).flatMap((row) => scene.messages[row].where));
    mark();
  });

  function mark() {
    const rows = new Set(chosen.map(String));
    for (const part of body.querySelectorAll("[data-message]")) {
      const is = rows.has(part.dataset.message);
      part.classList.toggle("dlv-chosen", is);
      if (part.matches("button")) part.setAttribute("aria-pressed", String(is));
    }
  }

  // Predictions

  function setPredicting(on) {
    predicting = on;
    told = "";
    guessing.hidden = !on;
    if (on) play(false);
    prompt();
    draw();
  }

  function prompt() {
    const ask =
      number >= sending
        ? "No round is left: go back to predict."
        : "Which chunk moves next? Click it at the rank that sends it (or arrow keys and Enter in the grid).";
    write(verdict, [told, ask].filter(Boolean).join(" "));
    write(points, `${score.right} of ${score.of} right`);
    off(reset, score.of === 0);
    body.classList.toggle("dlv-predicting", predicting && number < sending);
  }

  function setScore(right, of) {
    score = { right, of };
    furthest = number;
    prompt();
  }

  function guess(key) {
    if (number >= sending) return;
    const { rank, chunk } = chunks.cell(key);
    const sent = scene.frames[number + 1].messages.map((row) => scene.messages[row]);
    const hit = sent.filter(({ src, chunks: [from, to] }) => src === rank && chunk >= from && chunk < to);
    const called = scene.chunks[chunk].low < 0 ? "" : ` ${scene.chunks[chunk].name}`;
    const others = sent
      .slice(0, 4)
      .map(({ src, what }) => `rank ${src} sent ${what}`)
      .join(", ");
    const more = sent.length > 4 ? ", …" : "";
    const known = number + 1 <= furthest ? " You have already seen this round: it does not count." : "";
    const words =
      (hit.length
        ? `Right: ${hit[0].sentence}.`
        : `Wrong: rank ${rank} did not send${called}. Instead ${others}${more}.`) + known;
    if (!known) score = { right: score.right + (hit.length ? 1 : 0), of: score.of + 1 };
    step(1);
    told = words;
    prompt();
    frame.say(`${words} ${score.right} of ${score.of} right.`);
  }

  /** Makes one cell of the grid reachable by Tab, while there is something to choose in it. */
  function rove() {
    for (const [key, { group }] of chunks.groups) {
      if (predicting) {
        group.setAttribute("tabindex", key === spot.join(":") ? "0" : "-1");
        continue;
      }
      if (document.activeElement === group) frame.root.focus({ preventScroll: true });
      group.removeAttribute("tabindex");
    }
  }

  chunks.box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!predicting || event.ctrlKey || event.metaKey || event.altKey || !(by || event.key === "Enter")) return;
    event.preventDefault();
    if (!by) return guess(spot.join(":"));
    spot = [clamp(spot[0] + by[0], 0, scene.rows.length - 1), clamp(spot[1] + by[1], 0, scene.chunks.length - 1)];
    rove();
    chunks.groups.get(spot.join(":")).group.focus();
  });
  chunks.box.addEventListener("focusin", ({ target }) => {
    const key = target.closest("[data-cell]")?.dataset.cell;
    if (key) spot = key.split(":").map(Number);
  });

  const resized = new ResizeObserver(() => {
    if (tables.root.hidden && chunks.box.clientWidth) draw();
  });
  resized.observe(chunks.box);
  draw();
  prompt();
  shared.start();
  return {
    root: frame.root,
    stop() {
      const focused = frame.root.contains(document.activeElement);
      clearTimeout(timer);
      resized.disconnect();
      shared.stop();
      frame.stop();
      frame.root.remove();
      return focused;
    },
  };
}

export default { render: showMessages };
