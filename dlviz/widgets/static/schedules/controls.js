// The controls of the explorer of schedules: schedule, size and costs.
import { focusedNear, h } from "../shared/dom.js";
import { typed } from "../shared/numbers.js";
import { toggle } from "../shared/stage.js";

/** @import { Toggle } from "../shared/stage.js" */
/** @import { Explorer } from "./context.js" */

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
/** @type {Record<string, string>} */
const EMPTY = { backward: "I+W", slow_stage: "none" }; // may be empty

/** The selects of the schedules, and the rows of sliders and fields below the toolbar.
 * @type {(own: Explorer) => { selects: HTMLElement[], rows: HTMLElement[], toggles: ReturnType<typeof togglesOf> }} */
export function controls(own) {
  const { shown } = own;
  const selects = [selectOf(own, "schedule", "schedule", []),
    selectOf(own, "beside", "schedule beside it", [h("option", { value: "" }, "none")])];
  const sliders = SLIDERS.map(([name, label]) => sliderOf(own, name, label));
  const fields = FIELDS.map(([name, symbol, data]) => fieldOf(own, name, symbol, data));
  const toggles = togglesOf(own);
  const costs = { class: "dlv-toolbar", role: "group", "aria-label": "seconds of one microbatch on a rank" };
  shown.paints(["live"], () => {
    const all = [...selects, ...sliders.flatMap(({ inputs }) => inputs), ...fields.map(({ input }) => input)];
    for (const one of all) one.disabled = !shown.now.live;
  });
  shown.paints(["controls", "data", "live"], () => {
    const { controls: now, data, live, sides } = shown.now;
    const free = [now.schedule, now.beside].some((name) => name === "drawn" || data.chunked.includes(name));
    const { inputs } = sliders[2];
    if (!live || sides[0].error) return;
    for (const one of inputs) one.disabled = !free;
    inputs[0].title = free ? "" : `${data.titles[now.schedule]} has its own number of chunks`;
  });
  return {
    selects: [h("label", {}, "schedule ", selects[0]), h("label", {}, "beside ", selects[1])],
    rows: [
      h("div", { class: "dlv-toolbar" }, sliders.map(({ label, inputs }) => h("span", {}, label, inputs[1]))),
      h("div", costs, fields.map(({ label }) => label), h("span", {}, Object.values(toggles))),
    ],
    toggles,
  };
}

/** @type {(explorer: Explorer, name: string, label: string, first: HTMLOptionElement[]) => HTMLSelectElement} */
function selectOf({ shown, choose }, name, label, first) {
  const { titles } = shown.now.data;
  const own = h("select", { name, "aria-label": label, onchange: () => choose({ [name]: own.value }) },
    first, Object.entries(titles).map(([value, title]) => h("option", { value }, title)));
  shown.paints(["controls"], () => void (own.value = shown.now.controls[name]));
  return own;
}

/** A slider, and a box to type its number.
 * @type {(explorer: Explorer, name: string, label: string) => { label: HTMLLabelElement, inputs: HTMLInputElement[]
 *   }} */
function sliderOf({ shown, choose, called }, name, label) {
  called[name] = { label };
  const slide = h("input", {
    type: "range", min: 1, max: shown.now.data.limits[name], step: 1, class: "dlv-slide", name, "aria-label": name,
    oninput: () => choose({ [name]: Number(slide.value) }),
  });
  const box = h("input", {
    type: "text", inputmode: "numeric", class: "dlv-short", name, "aria-label": `${name}, as a number`,
    onchange: () => choose({ [name]: valueIn(box, name) }),
  });
  shown.paints(["controls", "sides"], () => {
    const value = String(shown.now.controls[name] ?? shown.now.sides[0].chunks ?? 1);
    slide.value = value;
    if (focusedNear(box) !== box) box.value = value;
  });
  return { label: h("label", {}, `${label} `, slide), inputs: [slide, box] };
}

/** @type {(explorer: Explorer, name: string, symbol: string, data: string) => { input: HTMLInputElement, label:
 *   HTMLLabelElement }} */
function fieldOf({ shown, choose, called }, name, symbol, data) {
  called[name] = { label: symbol };
  const input = h("input", {
    type: "text", inputmode: "decimal", class: `dlv-short${name in EMPTY ? " dlv-worded" : ""}`,
    name, "aria-label": `${name}: ${data}`, title: data, placeholder: EMPTY[name] ?? null,
    onchange: () => choose({ [name]: valueIn(input, name) }),
  });
  shown.paints(["controls"], () => {
    const value = shown.now.controls[name];
    if (focusedNear(input) !== input) input.value = value == null ? "" : String(value);
  });
  return { input, label: h("label", {}, `${symbol} `, input) };
}

/** The value of a field: null if it may be empty, else a number or a text.
 * @type {(box: HTMLInputElement, name: string) => string | number | null} */
function valueIn(box, name) {
  return box.value.trim() === "" && name in EMPTY ? null : typed(box.value);
}

/** Toggles of the critical path and of what replaces the charts.
 * @type {(explorer: Explorer) => Record<"path" | "table" | "csv", Toggle>} */
function togglesOf({ shown, board }) {
  const path = toggle("critical path", "show the critical path (c)", true, (on) => shown.set({ path: on }));
  /** @type {(label: string, name: string, what: "table" | "csv") => Toggle} */
  const opens = (label, name, what) => toggle(label, name, false, (on) => shown.show({ opened: on ? what : "" }));
  const table = opens("table", "show a table of all actions (t)", "table");
  const csv = opens("CSV", "the schedule as CSV", "csv");
  shown.paints(["opened", "path"], () => {
    path.setAttribute("aria-pressed", String(shown.now.path));
    table.setAttribute("aria-pressed", String(shown.now.opened === "table"));
    csv.setAttribute("aria-pressed", String(shown.now.opened === "csv"));
    if (shown.now.opened === "board") return;
    for (const one of board?.openers() ?? []) if (one.getAttribute("aria-pressed") === "true") one.turn(false);
  });
  return { path, table, csv };
}
