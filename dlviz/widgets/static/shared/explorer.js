// The common part of explorers: controls that a kernel answers, a run, and a page without a kernel.
//
// An explorer's `index.js` describes it, adds its parts, and begins:
//
//   function render({ model, el }) {
//     const own = explorer(model, el, {
//       name: "explorer of sizes", saved: "This page has no kernel: …", ranWords: ({ data }) => data.run?.words ?? "",
//     });
//     own.frame.controls(...form(own), [own.bar.start]); // of form.js
//     own.frame.body.append(own.trouble, own.bar.line, chart(own)); // own.shown.paints(["data", "width"], () => …)
//     return own.begin();
//   }
//
// `data` is the kernel's last answer, for the controls `data.controls`; `controls` are those that the reader has set.
// The answer to a control waits for `data`, unless `foresee` already knows it.
import { h, write } from "./dom.js";
import { save } from "./file.js";
import { formKeys } from "./form.js";
import { pictureOf, print } from "./picture.js";
import { asking } from "./rpc.js";
import { runBar } from "./running.js";
import { button, stage } from "./stage.js";
import { state } from "./state.js";

/** @import { Control, Fit } from "./form.js" */
/** @import { Queue } from "./rpc.js" */
/** @import { KeyRow, Stage } from "./stage.js" */
/** @import { State } from "./state.js" */
/** @import { Tabs } from "./tabs.js" */
/** @import { Colors, Look, Model } from "./theme.js" */

/** What every kernel sends; `error` is a sentence or "", `settled` whether the parts that take longer are included.
 * @typedef {{ title: string, details?: string[], look: Look, controls: Record<string, any>, error: string, settled:
 *   boolean, form: Control[][], recorded?: { controls: Record<string, any>, words: string }[] }} Answer */

/**
 * What is shown now.
 * @template {Answer} T
 * @typedef {object} Now
 * @property {T} data
 * @property {T["controls"]} controls
 * @property {any} ahead the pictures sent ahead, {} at first
 * @property {boolean} live whether a kernel answers
 * @property {boolean} saved whether this is a saved page, which stores what `show` shows
 * @property {number} width pixels of the body; 0 while a notebook hides it
 * @property {Colors | null} colors
 */

/** Answers without a kernel: whether a control can be set to a value, and sets it.
 * @typedef {{ can: (name: string, value: unknown) => boolean, change: (name: string, value: unknown) => void }}
 *   Alone */

/**
 * The description of an explorer.
 * @template {Answer} T
 * @template {object} More
 * @typedef {object} Plan
 * @property {string} name
 * @property {string} saved the line on a page that never had a kernel
 * @property {string[]} [free] the controls that can be set there
 * @property {(model: Model) => Alone} [alone] answers without a kernel, in place of `free` and saved pages
 * @property {(own: Explorer<T, More>) => KeyRow[]} [keys] beside those of the controls
 * @property {Fit} [fit]
 * @property {() => boolean | void} [clear] what Escape does
 * @property {(data: T, controls: T["controls"], ahead: any) => T} [foresee] what to show before the kernel answers,
 *   made of its last answer and of what it sent ahead
 * @property {(values: Record<string, unknown>) => object | null} [neighbours] the fields of a request for pictures
 *   ahead, after a change to `values`
 * @property {((now: Now<T> & More) => boolean) | null} [runnable] null if nothing can ever be run
 * @property {(now: Now<T> & More) => string} [ranWords] the outcome of the last run
 * @property {More} [more] the first values of further state
 */

/** The label of a control; `per` of `unit` make one of the kernel's unit.
 * @typedef {{ label: string, unit?: string, per?: number }} Called */

/**
 * @template {Answer} T
 * @template {object} [More={}]
 * @typedef {object} Explorer
 * @property {Model} model
 * @property {State<Now<T> & More>} shown
 * @property {Stage} frame
 * @property {Record<string, Called>} called the controls as the reader knows them
 * @property {HTMLElement} trouble the line with the controls' error
 * @property {ReturnType<typeof runBar>} bar
 * @property {HTMLElement[]} files the buttons that save the picture, in the toolbar unless moved
 * @property {Tabs<any>} [tabs] which an explorer adds
 * @property {(name: string) => void} [near] asks ahead along a slider as the pointer or focus comes near
 * @property {(name: string, value?: unknown) => boolean} can whether a control can be set now, or set to a value
 * @property {(controls: Record<string, any>) => void} show sets all of these, which a saved page stores
 * @property {(changes: Record<string, unknown>) => void} choose
 * @property {(values: Record<string, unknown>) => void} ask asks the kernel for values that no control shows
 * @property {(fields: object) => void} lookAhead asks the kernel for what may be needed next
 * @property {() => () => void} begin paints all parts; returns what ends the explorer
 */

/** An explorer inside this module; `answered` paints what an answer changed.
 * @typedef {Explorer<any, any> & { answered: () => void }} Own */

/** @typedef {NonNullable<Plan<any, any>["foresee"]>} Foresee */

const UNPRINTED = "This page may not print: save the picture as SVG, which other programs convert to PDF.";
const RUN = "r"; // the key that runs; a saved page cannot run
const PAUSE = 250; // ms without a change before the kernel is asked for the parts that take longer

/** @type {<T extends Answer, More extends object>(model: Model, el: HTMLElement, plan: Plan<T, More>) => Explorer<T,
 *   More>} */
export function explorer(model, el, {
  free = [], foresee = (/** @type {any} */ data) => data, keys = () => [], ...plan
}) {
  const first = read(model);
  const live = !model.page;
  /** @type {State<any>} */
  const shown = state({
    data: first, controls: first.controls, ahead: {}, live, saved: !live, width: 0, colors: null, ...plan.more,
  });
  /** @type {any} */
  const now = shown.now;
  let alone = live ? null : plan.alone?.(model);
  const queue = asking(model, {
    sent(values) {
      const wanted = plan.neighbours?.(values);
      if (wanted) own.lookAhead(wanted);
    },
    answered: () => own.answered(), gone,
  });
  /** @type {HTMLElement} */
  const trouble = h("p", { class: "dlv-trouble", role: "alert" });
  const bar = runBar(model, queue, {
    ready: () => now.live && !now.data.error && (plan.runnable?.(now) ?? true),
    idleWords: () => plan.ranWords?.(now) ?? "",
    changed: () => bar.draw(),
  });

  function gone() {
    alone = plan.alone?.(model);
    own.frame.gone();
    shown.show({ live: false });
  }

  const own = /** @type {Own} */ ({
    model, shown, trouble, bar, called: {},
    can: (name, value) => now.live || (alone ? alone.can(name, value) : now.saved && free.includes(name)),
    choose: (changes) => choose(own, queue, foresee, changes, alone),
    show: (controls) => (now.live ? own.choose(controls) : showSaved(own, foresee, controls)),
    ask: (values) => ask(own, queue, values),
    lookAhead: (fields) => queue.latest("ahead", fields, ({ ahead }) => ahead && shown.set({ ahead })),
    begin: () => begin(own, queue, foresee),
  });
  own.frame = stage(el, {
    name: plan.name, look: first.look, model, title: first.title, lines: live ? [] : [plan.saved],
    details: first.details, keys: allKeys(own, first, plan, keys(own)).filter(([key]) => live || key !== RUN),
    clear: plan.clear, onColors: (colors) => shown.set({ colors }),
  });
  own.files = savers(own, plan.name);
  own.frame.controls(own.files);
  shown.paints(["data"], () => write(trouble, asTyped(now.data.error, own.called)));
  shown.paints(["data", "controls"], () => {
    own.frame.body.dataset.stale = String(isStale(now));
  });
  shown.paints(["data", "controls", "live"], bar.draw);
  return own;
}

/** @type {(own: Own, first: Answer, plan: Pick<Plan<any, any>, "fit" | "runnable">, more: KeyRow[]) => KeyRow[]} */
function allKeys(own, { form }, { fit, runnable }, more) {
  const run = () => {
    if (own.tabs?.panels.costs) own.tabs.show("costs");
    own.bar.press();
  };
  return [...formKeys(own, form, fit), ...more,
    ...(runnable === null ? [] : [/** @type {KeyRow} */ ([RUN, "run it, stop it", { [RUN]: run }])])];
}

/** The line with the answer, written again when one of `names` changes.
 * @type {(own: Explorer<any, any>, words: () => string, names?: string[]) => HTMLElement} */
export function answer({ shown }, words, names = ["data"]) {
  const line = h("p", { class: "dlv-cheapest", role: "status" });
  shown.paints(names, () => write(line, words()));
  return line;
}

/** Whether the kernel refused the controls that the reader sees, so that the picture shows others.
 * @type {(now: Pick<Now<Answer>, "data" | "controls">) => boolean} */
export function isStale({ data, controls }) {
  const other = Object.keys(controls).some((name) => controls[name] !== data.controls[name]);
  return Boolean(data.error) && other;
}

const GIVEN = /\b(\w+)=('[^']*'|"[^"]*"|[^\s,:;()]*[^\s,:;().])(?: \(([^)]*)\))?/g;

/** A kernel's sentence with the labels of its controls, and values as the reader types them.
 * @type {(sentence: string, called: Record<string, Called>) => string} */
export function asTyped(sentence, called) {
  return sentence.replace(GIVEN, (all, name, value, inBrackets) => {
    if (!(name in called)) return all;
    const { label, unit = "", per = 1 } = called[name];
    const [, text = value] = value.match(/^["'](.*)["']$/) ?? [];
    const number = Number(text || NaN);
    const typed = Number.isFinite(number) ? `${Number((number * per).toPrecision(6))} ${unit}`.trim()
      : text === value ? text : text && `“${text}”`;
    const more = inBrackets == null || inBrackets === label ? "" : ` (${inBrackets})`;
    return `${label} = ${typed || "nothing"}${more}`;
  });
}

/** The buttons that save the picture. @type {(own: Pick<Own, "frame" | "trouble">, name: string) => HTMLElement[]} */
function savers({ frame, trouble }, name) {
  const file = name.replaceAll(" ", "-");
  return [
    button("SVG", "save the picture as an SVG file", () => save(pictureOf(frame.root).text, `${file}.svg`)),
    button("PDF", "print the picture, or save it as a PDF file", () =>
      print(pictureOf(frame.root), file, () => write(trouble, UNPRINTED))),
  ];
}

/** @type {(model: Model) => any} */
function read(model) {
  return JSON.parse(model.get("state"));
}

/** @type {(own: Own, queue: Queue, foresee: Foresee, changes: Record<string, unknown>, alone?: Alone | null) =>
 *   void} */
function choose(own, queue, foresee, changes, alone) {
  const { shown: { set, flush, now }, can } = own;
  /** @type {(pair: [string, unknown]) => boolean} */
  const other = ([name, value]) => can(name, value) && (now.controls[name] !== value || now.data.error);
  const news = Object.entries(changes).filter(other);
  if (!news.length) return;
  if (alone) return news.forEach(([name, value]) => alone.change(name, value));
  const controls = { ...now.controls, ...Object.fromEntries(news) };
  if (!now.live) return showSaved(own, foresee, controls);
  set({ controls, data: foresee(now.data, controls, now.ahead) });
  ask(own, queue, Object.fromEntries(news));
  flush();
}

/** Shows what a saved page stores for these controls.
 * @type {(own: Own, foresee: Foresee, some: Record<string, any>) => void} */
function showSaved({ model, shown: { set, flush, now } }, foresee, some) {
  const controls = { ...now.controls, ...some };
  /** @type {{ controls: Record<string, any>, state: Record<string, any> }[]} */
  const pages = JSON.parse(model.get("pages") ?? "[]");
  const found = pages.find((one) => Object.entries(one.controls).every(([name, value]) => controls[name] === value));
  const { player, ...state } = found?.state ?? {};
  if (player != null) model.set("player", player);
  const data = foresee({ ...now.data, ...state, ...(found ? { error: state.error ?? "" } : {}) }, controls, {});
  set({ controls, data: found && !data.error ? { ...data, controls } : data });
  flush();
}

/** @type {(own: Pick<Own, "frame">, queue: Queue, values: Record<string, unknown>) => void} */
function ask({ frame }, queue, values) {
  queue.change(values);
  frame.root.dataset.asking = String(!queue.settled());
}

/** Paints the parts, takes the kernel's answers, and asks for the slow parts once the reader pauses.
 * @type {(own: Own, queue: Queue, foresee: Foresee) => () => void} */
function begin(own, queue, foresee) {
  const { model, shown, frame, bar } = own;
  const { now } = shown;
  let pause = 0;

  function heard() {
    const data = read(model);
    const controls = { ...data.controls, ...(data.error ? typedIn(model, data) : {}), ...queue.pending() };
    shown.set({ controls, data: foresee(data, controls, now.ahead) });
    own.answered();
    if (data.error) frame.say(asTyped(data.error, own.called));
  }

  own.answered = () => {
    shown.flush();
    bar.draw();
    frame.root.dataset.asking = String(!queue.settled());
    clearTimeout(pause);
    if (wanting()) pause = setTimeout(want, PAUSE);
  };

  function wanting() {
    return now.live && queue.settled() && !now.data.error && !now.data.settled;
  }

  function want() {
    if (wanting()) queue.latest("settle", {}, () => {});
  }

  const resized = new ResizeObserver(() => shown.set({ width: frame.body.clientWidth }));
  resized.observe(frame.body);
  shown.paints(["data", "width"], () => {
    if (frame.body.clientWidth) return;
    shown.set({ width: 0 }); // hidden by a notebook: paint again once it is back
    resized.unobserve(frame.body);
    resized.observe(frame.body); // reports that, even if it was hidden for less than a frame
  });
  shown.paints(["data", "controls"], () => {
    for (const one of /** @type {NodeListOf<HTMLInputElement>} */ (frame.root.querySelectorAll("[name]"))) {
      const refused = now.data.error && now.controls[one.name] !== now.data.controls[one.name];
      one.setAttribute("aria-invalid", String(Boolean(refused)));
    }
  });
  model.on("change:state", heard);
  frame.root.dataset.asking = "false";
  shown.show({ width: frame.body.clientWidth });
  return () => {
    model.off("change:state", heard);
    clearTimeout(pause);
    resized.disconnect();
    shown.stop();
    queue.close();
    bar.stop();
    frame.stop();
    frame.root.remove();
  };
}

/** The controls that the reader set and the kernel refused.
 * @type {(model: Model, data: Pick<Answer, "controls">) => Record<string, any>} */
function typedIn(model, { controls }) {
  return Object.fromEntries(Object.keys(controls).map((name) => [name, model.get(name)]));
}
