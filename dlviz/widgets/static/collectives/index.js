// Explores what an all-reduce costs: controls, lines over size, the map of winners, and the player.
import { asking } from "../shared/rpc.js";
import { clamp } from "../shared/arrays.js";
import { h, s, write } from "../shared/dom.js";
import { bytes, digits, seconds, typed } from "../shared/numbers.js";
import { chartOf, mapOf, nearest } from "./geometry.js";
import { showMessages } from "../player/index.js";
import { runBar } from "../shared/running.js";
import { stage } from "../shared/stage.js";

const DASHES = { solid: null, dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
const FIELDS = [["alpha", "α", "µs a message", 1e6], ["beta", "β", "ns a byte", 1e9], ["gamma", "γ", "ns a byte added", 1e9]];
const HEIGHT = 206;
const COUNTING = "The map of this network is being calculated …";
const UNKNOWN = "The map of this network needs a kernel.";
const PAUSE = 250; // ms without a change until the messages are asked for
const SAVED = "This page has no kernel: algorithm and size can be chosen, all else needs a kernel.";

function render({ model, el }) {
  const read = () => JSON.parse(model.get("state"));
  let live = model.get("live");
  let lost = false; // the kernel is gone
  let state = read();
  let now = { ...state.controls };
  let pause = 0;
  let chart = null;
  let winners = null;
  let drawn = false;
  let told = null; // the lines of other ranks, once read
  let shown = "costs"; // of the two parts
  const queue = asking(model, { answer: () => state.answer, failed: () => state.error !== "", gone });

  const frame = stage(el, {
    name: "explorer of collectives",
    look: state.look,
    model,
    title: state.title,
    lines: live ? [] : [SAVED],
    details: state.details,
    keys: [
      ["← →", "smaller, larger", { ArrowLeft: (event) => moved(event, resize, -1), ArrowRight: (event) => moved(event, resize, 1) }],
      ["↑ ↓", "more ranks, fewer", { ArrowUp: (event) => moved(event, rerank, 1), ArrowDown: (event) => moved(event, rerank, -1) }],
      ["a", "next algorithm", { a: () => choose("algorithm", after(state.algorithms, now.algorithm)) }],
      ["m", "costs, messages", { m: () => show(tabs[shown === "costs" ? 1 : 0].dataset.part) }],
      ["r", "run it, stop it", { r: () => (show("costs"), bar.press()) }],
    ],
    onColors() {
      if (drawn) draw();
    },
  });

  // Controls

  const words = (name) => state.names[name];
  const option = (value, words) => h("option", { value }, words);
  const select = (name, label, options) => {
    const box = h("select", { "aria-label": label, onchange: () => choose(name, box.value) }, options);
    return box;
  };
  const algorithm = select("algorithm", "algorithm", state.algorithms.map((name) => option(name, words(name))));
  const topology = select("topology", "topology", Object.keys(state.topologies).map((name) => option(name, name)));
  const [fewest, most] = state.limits.ranks;
  const ranks = h("input", { type: "range", min: fewest, max: most, step: 1, class: "dlv-slide", "aria-label": "ranks", oninput: () => choose("ranks", Number(ranks.value)) });
  const many = h("output", { class: "dlv-amountnow", "aria-hidden": "true" });
  const size = h("input", { type: "range", min: 0, max: state.sizes.length - 1, step: 1, "aria-label": "size", class: "dlv-long", oninput: () => choose("nbytes", state.sizes[Number(size.value)]) });
  const large = h("output", { class: "dlv-amountnow", "aria-hidden": "true" });
  const fields = FIELDS.map(([name, letter, unit, per]) => {
    const box = h("input", {
      type: "text", inputmode: "decimal", class: "dlv-short dlv-price", "aria-label": `${name}, ${unit}`,
      onchange: () => choose(name, inSeconds(typed(box.value), per)),
    });
    return { name, per, box, label: h("label", {}, `${letter} `, box, ` ${unit}`) };
  });
  const bar = runBar(model, queue, { ready: runnable, told: ranWords, changed: drawRun });
  const tabs = ["costs", "messages"].map((part) => h("button", {
    type: "button", role: "tab", "data-part": part, onclick: () => show(part),
  }, part === "costs" ? "Costs" : "Messages"));
  frame.head(h("span", { class: "dlv-tabs", role: "tablist", "aria-label": "what is shown" }, tabs));
  frame.controls([h("label", {}, "algorithm ", algorithm)], [h("label", {}, "topology ", topology)], [h("label", {}, "ranks ", ranks), many], [h("label", {}, "size ", size), large]);
  const link = h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the link" }, fields.map(({ label }) => label), bar.start);

  const trouble = h("p", { class: "dlv-trouble", role: "alert" });
  const lines = s("svg", { class: "dlv-costs", role: "img" });
  const map = s("svg", { class: "dlv-costs", role: "img" });
  const [about, where] = [h("h4", { title: "Click to choose a size." }), h("h4", { title: "Click to choose ranks and size." })];
  const left = h("div", { class: "dlv-chart" }, about, lines);
  const right = h("div", { class: "dlv-chart dlv-map" }, where, map);
  const cheapest = h("p", { class: "dlv-cheapest" });
  const aboutRun = h("p");
  const marks = h("div", { class: "dlv-chartmarks" }, ["grey: the cheapest", "◇ another one takes over", "✕ measured"].map((line) => h("p", {}, line)), aboutRun);
  const table = h("div", { class: "dlv-scroll" });
  const charts = h("div", { class: "dlv-pictures" }, left, right);
  const costs = h("div", { role: "tabpanel", "aria-label": "costs" }, link, bar.line, charts, cheapest, h("div", { class: "dlv-pictures" }, table, marks));
  const player = h("div", { class: "dlv-player", role: "tabpanel", "aria-label": "messages" });
  const parts = { costs, messages: player };
  frame.body.append(trouble, costs, player);
  show(shown);
  if (!live) turnOff(topology, ranks, ...fields.map(({ box }) => box));

  function turnOff(...controls) {
    for (const control of controls) control.disabled = true;
  }

  /** Shows one of the two parts. */
  function show(part) {
    shown = part;
    frame.root.dataset.part = part;
    for (const [name, box] of Object.entries(parts)) box.hidden = name !== part;
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab.dataset.part === part));
      tab.tabIndex = tab.dataset.part === part ? 0 : -1;
    }
  }

  // What is asked of the kernel

  function choose(name, value) {
    if (!live && (lost || !["algorithm", "nbytes"].includes(name))) return;
    if (now[name] === value && !state.error) return;
    now = { ...now, [name]: value };
    if (live) queue.change(name, value);
    else if (name === "algorithm") messages.show(model.get("players")[value]);
    if (["algorithm", "nbytes"].includes(name) || (name === "ranks" && foreseen())) draw();
    else {
      drawControls(); // the lines wait for the kernel's numbers
      drawMap();
    }
  }

  function ahead() {
    return (told ??= JSON.parse(model.get("ahead") ?? "{}"));
  }

  function lookedAhead() {
    told = null;
    drawMap();
  }

  /** Takes the lines of the chosen ranks from those told ahead; false where there are none. */
  function foreseen() {
    const { ranks: lines } = ahead();
    if (!winnersNow() || !lines[now.ranks]) return false;
    state = { ...state, ...lines[now.ranks], now: null, run: null };
    return true;
  }

  /** Who is the cheapest by ranks and size on the chosen network; null until the kernel has told. */
  function winnersNow() {
    const { link, map: rows } = ahead();
    return link && Object.entries(link).every(([name, value]) => now[name] === value) ? rows : null;
  }

  function answered() {
    state = read();
    queue.answered();
    now = { ...state.controls, ...(state.error ? asTyped() : {}), ...queue.pending() };
    if (queue.settled() && !state.error && !state.settled) want();
    draw();
    if (state.error) frame.say(state.error);
  }

  /** Asks for the messages once the reader has paused. */
  function want() {
    clearTimeout(pause);
    pause = setTimeout(() => {
      if (!queue.settled() || state.settled) return;
      model.set("wanted", state.answer);
      model.save_changes();
    }, PAUSE);
  }

  function asTyped() {
    return Object.fromEntries(["algorithm", "topology", "ranks", "nbytes", ...FIELDS.map(([name]) => name)].map((name) => [name, model.get(name)]));
  }

  function runnable() {
    return live && !state.error && now.ranks <= state.limits.run;
  }

  /** No kernel answers any more. */
  function gone() {
    live = false;
    lost = true;
    frame.gone();
    turnOff(algorithm, topology, ranks, size, ...fields.map(({ box }) => box));
    draw();
  }

  /** What an arrow key does: on a slider it moves that one, on a tab it goes to the other. */
  function moved({ target }, usual, by) {
    if (tabs.includes(target)) {
      show(tabs.find((tab) => tab !== target).dataset.part);
      tabs.find((tab) => tab !== target).focus();
      return;
    }
    const own = new Map([[size, resize], [ranks, rerank]]).get(target) ?? usual;
    own(by);
  }

  function resize(by) {
    choose("nbytes", state.sizes[clamp(place() + by, 0, state.sizes.length - 1)]);
  }

  function rerank(by) {
    choose("ranks", clamp(now.ranks + by, fewest, most));
  }

  function place() {
    return nearest(state.sizes.map(Math.log), Math.log(now.nbytes));
  }

  // Pictures

  function styleOf(name) {
    const [color, dash] = state.styles[state.algorithms.indexOf(name)];
    return { stroke: color, "stroke-dasharray": DASHES[dash] };
  }

  function drawControls() {
    algorithm.value = now.algorithm;
    topology.value = now.topology;
    ranks.value = String(now.ranks);
    size.value = String(place());
    ranks.setAttribute("aria-valuetext", `${now.ranks} ranks`);
    size.setAttribute("aria-valuetext", bytes(now.nbytes));
    write(many, String(now.ranks));
    write(large, bytes(now.nbytes));
    for (const { name, per, box } of fields) {
      const said = typeof now[name] === "number" ? String(Number((now[name] * per).toPrecision(6))) : now[name];
      if (document.activeElement !== box) box.value = said;
    }
  }

  function draw() {
    drawControls();
    write(trouble, state.error);
    write(about, `Time over size: ${state.about}`);
    drawRun();
    drawLines();
    drawMap();
    drawTable();
    drawn = true;
  }

  function drawRun() {
    bar.draw();
    write(aboutRun, (state.run?.notes ?? []).join(" "));
  }

  function ranWords() {
    const { run } = state;
    if (!run) return live && now.ranks > state.limits.run ? `At most ${state.limits.run} ranks can be run here.` : "";
    if (run.error) return `The run failed: ${run.error}`;
    if (run.stopped) return run.stopped;
    const gap = `${run.gap < 0 ? "−" : "+"}${Math.abs(100 * run.gap).toFixed(1)} %`;
    const told = `${words(run.algorithm)} of ${bytes(run.nbytes)}: measured ${seconds(run.measured)}, predicted ${seconds(run.predicted)} (${gap}).`;
    return told;
  }

  function axes({ box, sizes }, marks, said, title) {
    return [
      s("g", { class: "dlv-axis" },
        sizes.map(({ at }) => s("path", { d: `M${at} ${box.top}V${box.bottom}` })),
        marks.map(({ at }) => s("path", { d: `M${box.left} ${at}H${box.right}` }))),
      sizes.map(({ value, at }) => s("text", { x: at, y: box.bottom + 13 }, bytes(value))),
      marks.map(({ value, at }) => s("text", { x: box.left - 6, y: at, class: "dlv-left" }, said(value))),
      s("text", { x: box.right, y: box.bottom + 31, class: "dlv-left" }, "size"),
      s("text", { x: box.left, y: box.bottom + 31, class: "dlv-start" }, title),
    ];
  }

  function open(svg, around) {
    const width = Math.max(300, around.clientWidth || 560);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
    return width;
  }

  function drawLines() {
    chart = chartOf(state, open(lines, left), HEIGHT);
    const path = (points) => `M${points.map((point) => point.map((part) => part.toFixed(1)).join(" ")).join("L")}`;
    const { box, measured } = chart;
    const at = chart.x(now.nbytes);
    lines.replaceChildren(
      ...axes(chart, chart.seconds, seconds, "time").flat(),
      s("path", { class: "dlv-best", d: path(chart.best) }),
      ...chart.lines.map(({ name, points }) => s("path", { class: name === now.algorithm ? "dlv-cost dlv-own" : "dlv-cost", d: path(points), ...styleOf(name) }, s("title", {}, words(name)))),
      ...chart.crossed.map(({ size: value, before, after, x, y }) => s("path", { class: "dlv-crossed", d: `M${x} ${y - 7}l7 7l-7 7l-7-7Z` }, s("title", {}, `from ${bytes(Math.round(value))} on ${words(after)}, below it ${words(before)}`))),
      s("path", { class: "dlv-here", d: `M${at} ${box.top}V${box.bottom}` }),
      s("circle", { class: "dlv-spot", cx: at, cy: chart.y(row(now.algorithm)[0]), r: 5, fill: styleOf(now.algorithm).stroke }),
      ...(measured ? [s("path", { class: "dlv-measured", d: `M${measured.x - 7} ${measured.y - 7}l14 14m0-14l-14 14` }, s("title", {}, "measured"))] : []),
    );
    lines.setAttribute("aria-label", `Time over size of ${state.algorithms.length} algorithms. ${cheapestWords()}`);
  }

  function cheapestWords() {
    const [[, first], ...later] = state.cheapest;
    const turns = later.map(([from, name]) => `then ${words(name)} from ${bytes(Math.round(from))}`);
    return `Cheapest (within ${100 * state.near} %): ${[words(first), ...turns].join(", ")}.`;
  }

  function drawMap() {
    const known = winnersNow();
    write(where, `Cheapest on ${state.topologies[now.topology].split(",")[0]}`);
    const width = open(map, right);
    winners = known && mapOf({ ...state, map: known }, width, HEIGHT);
    if (!known) {
      const words = live ? COUNTING : UNKNOWN;
      map.setAttribute("aria-label", words);
      return map.replaceChildren(s("text", { x: width / 2, y: HEIGHT / 2 }, words));
    }
    const cell = winners.cell(now.ranks, now.nbytes);
    map.replaceChildren(
      ...winners.parts.map(({ winner, x, y, width, height }) => s("rect", { x, y, width: width + 0.4, height: height + 0.4, fill: styleOf(state.algorithms[winner]).stroke })),
      ...axes({ box: winners.box, sizes: winners.sizes }, winners.ranks.filter(({ value }) => value % 2 === 0), String, "ranks").flat(),
      ...winners.names.filter(({ fits }) => fits).map(({ winner, x, y }) => s("text", { x, y, class: "dlv-winner" }, words(state.algorithms[winner]))),
      s("rect", { class: "dlv-chosencell", x: cell.x - 6, y: cell.y - 1, width: 12, height: cell.height + 2, rx: 2 }),
    );
    map.setAttribute("aria-label", `${where.textContent} by ranks and size: ${winners.names.map(({ winner }) => words(state.algorithms[winner])).join(", ")}`);
  }

  /** Seconds, algorithm and bus bandwidth of an algorithm at the chosen size. */
  function row(name) {
    if (!state.now) return [state.curves[name][place()], null, null]; // until the kernel has answered
    if (now.nbytes === state.controls.nbytes) return state.now[name];
    return state.at[name].map((values) => values[place()]);
  }

  function drawTable() {
    const rows = state.algorithms.map((name) => [name, ...row(name)]);
    const best = Math.min(...rows.map(([, took]) => took));
    const rate = (value) => (value == null ? "" : value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`);
    const cell = (text) => h("td", { class: "dlv-amount" }, text);
    const sample = (name) => s("svg", { width: 34, height: 10, "aria-hidden": "true" }, s("path", { class: "dlv-cost", d: "M1 5H33", ...styleOf(name) }));
    write(cheapest, cheapestWords());
    table.replaceChildren(h("table", { class: "dlv-prices" },
      h("caption", {}, `${bytes(now.nbytes)} on ${now.ranks} ranks`),
      h("thead", {}, h("tr", {}, ["algorithm", "predicted", "× the cheapest", "measured", "algorithm bandwidth", "bus bandwidth"].map((text, i) => h("th", { scope: "col", class: i && "dlv-amount" }, text)))),
      h("tbody", {}, rows.map(([name, took, algorithmic, bus]) => h("tr", { "aria-selected": String(name === now.algorithm) },
        h("th", { scope: "row" }, sample(name), " ", h("button", { type: "button", class: "dlv-link", onclick: () => choose("algorithm", name) }, words(name))),
        cell(seconds(took)), cell(`${digits(took / best)}${took === best ? " ◆" : ""}`),
        cell(state.run?.measured && state.run.algorithm === name ? seconds(state.run.measured) : ""),
        cell(rate(algorithmic)), cell(rate(bus)))))));
  }

  const point = (svg, { clientX, clientY }) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    return [(clientX - box.left) * scale, (clientY - box.top) * scale];
  };
  lines.addEventListener("click", (event) => choose("nbytes", state.sizes[nearest(state.sizes.map(chart.x), point(lines, event)[0])]));
  map.addEventListener("click", (event) => {
    if (!winners) return;
    const { ranks: at, place: sized } = winners.found(...point(map, event));
    choose("ranks", at);
    choose("nbytes", state.sizes[sized]);
  });

  const messages = playerIn(player, model);
  model.on("change:ahead", lookedAhead);
  const resized = new ResizeObserver(() => charts.clientWidth && draw());
  resized.observe(charts);
  model.on("change:state", answered);
  draw();
  return () => {
    model.off("change:state", answered);
    clearTimeout(pause);
    resized.disconnect();
    queue.close();
    bar.stop();
    messages.stop();
    frame.stop();
    frame.root.remove();
  };
}

/** The player of the explorer's messages, made anew where they are others. */
function playerIn(el, model) {
  const listeners = new Set();
  let state = model.get("player");
  const own = {
    get: (name) => (name === "state" ? state : model.get(name)),
    set: (name, value) => model.set(name, value),
    save_changes: () => model.save_changes(),
    on: (name, call) => (name === "change:state" ? listeners.add(call) : model.on(name, call)),
    off: (name, call) => (name === "change:state" ? listeners.delete(call) : model.off(name, call)),
  };
  const show = (text) => {
    if (!text || text === state) return;
    state = text;
    for (const call of listeners) call();
  };
  const changed = () => show(model.get("player"));
  model.on("change:player", changed);
  const stop = showMessages({ model: own, el });
  return {
    show,
    stop() {
      model.off("change:player", changed);
      stop();
    },
  };
}

function after(names, name) {
  return names[(names.indexOf(name) + 1) % names.length];
}

/** What was typed into a field, of which `per` make a second; a text as it is. */
function inSeconds(value, per) {
  return typeof value === "number" ? value / per : value;
}

export default { render };
