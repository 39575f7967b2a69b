// The inputs and keys of an explorer's controls, which the kernel describes (dlviz/widgets/control.py).
import { clamp, placeOf } from "./arrays.js";
import { focusedNear, h, write } from "./dom.js";
import { bytes, percent, typed } from "./numbers.js";

/** @import { Child } from "./dom.js" */
/** @import { Explorer } from "./explorer.js" */
/** @import { KeyRow } from "./stage.js" */

/** A control as the kernel describes it: a Choice has `options`, a Slider all from `values` to `typed`, a Field `unit`
 * and `per`.
 * @typedef {{ kind: "Choice" | "Slider" | "Field", name: string, label: string, panel: string, where: [name: string,
 *   value: any] | null, keys: [shown: string, does: string] | null, options: [value: any, words: string][], values:
 *   any[], unit: string, says: string, short: string, words: [value: any, says: string, short: string][], typed:
 *   string, per: number }} Control */

/** @typedef {(name: string, value: any) => any} Fit the nearest value of a slider that can be chosen now */

/** @type {Record<string, (value: number) => string>} */
const UNITS = { number: String, bytes, percent };
/** @type {Record<string, [less: string, more: string]>} */
const ARROWS = { "← →": ["ArrowLeft", "ArrowRight"], "↑ ↓": ["ArrowDown", "ArrowUp"] };

/** The inputs of a panel in groups; "" is the toolbar.
 * @type {(own: Explorer<any, any>, panel?: string, fit?: Fit) => Child[][]} */
export function form(own, panel = "", fit = /** @type {Fit} */ ((name, value) => value)) {
  const { data: { form: groups } } = own.shown.now;
  return groups.map((/** @type {Control[]} */ group) => group.filter((one) => one.panel === panel))
    .filter((/** @type {Control[]} */ group) => group.length)
    .map((/** @type {Control[]} */ group) => group.map((one) => inputOf(own, one, fit)));
}

/** The keys that move the controls. @type {(own: Explorer<any, any>, groups: Control[][], fit?: Fit) => KeyRow[]} */
export function formKeys(own, groups, fit = /** @type {Fit} */ ((name, value) => value)) {
  return groups.flat().flatMap((control) => {
    const { name, keys } = control;
    if (!keys) return [];
    /** @type {(by: number) => (event: KeyboardEvent) => void} */
    const move = (by) => (event) => {
      if (own.tabs?.other(event.target)) return;
      own.choose({ [name]: fit(name, moved(control, own.shown.now.controls[name], by)) });
    };
    const [less, more] = ARROWS[keys[0]] ?? [];
    return [/** @type {KeyRow} */ ([...keys, less ? { [less]: move(-1), [more]: move(1) } : { [keys[0]]: move(1) }])];
  });
}

/** The value `by` places further; a slider stops at its ends, a choice wraps around.
 * @type {(control: Control, value: any, by: number) => any} */
function moved({ kind, options, values }, value, by) {
  const all = kind === "Choice" ? options.map(([one]) => one) : values;
  const place = placeIn(all, value) + by;
  return kind === "Choice" ? all[(place + all.length) % all.length] : all[clamp(place, 0, all.length - 1)];
}

/** The index of a value, or of the nearest one. @type {(values: any[], value: any) => number} */
function placeIn(values, value) {
  const place = values.indexOf(value);
  return place >= 0 || typeof value !== "number" ? Math.max(0, place) : placeOf(values, value);
}

/** @type {(own: Explorer<any, any>, control: Control, fit: Fit) => Child} */
function inputOf(own, control, fit) {
  const { where, kind } = control;
  const made = kind === "Choice" ? choiceOf(own, control) : kind === "Field" ? fieldOf(own, control)
    : sliderOf(own, control, fit);
  if (!where) return made;
  const element = h("span", { class: "dlv-knob" }, made);
  const [other, value] = where;
  own.shown.paints(["controls"], () => void (element.hidden = own.shown.now.controls[other] !== value));
  return element;
}

/** A choice with its label. @type {(own: Explorer<any, any>, control: Control) => Child} */
function choiceOf({ shown, choose, can, called }, { name, label }) {
  called[name] = { label };
  /** @type {() => Control["options"]} */
  const now = () => shown.now.data.form.flat().find((/** @type {Control} */ one) => one.name === name).options;
  const box = h("select", {
    name, "aria-label": label, onchange: () => choose({ [name]: now()[box.selectedIndex][0] }),
  });
  shown.paints(["data"], () => {
    const options = now();
    if (options.length === box.options.length) return;
    box.replaceChildren(...options.map(([value, words]) => h("option", { value: String(value) }, words)));
  });
  shown.paints(["data", "controls", "live"], () => {
    box.value = String(shown.now.controls[name]);
    box.disabled = !can(name);
  });
  return h("label", {}, `${label} `, box);
}

/** A slider, with its value in words or a field for it.
 * @type {(own: Explorer<any, any>, control: Control, fit: Fit) => Child} */
function sliderOf(own, control, fit) {
  const { shown, choose, can, called, near } = own;
  const { name, label, values, unit, typed: inField } = control;
  called[name] = { label };
  const first = values.every((value, i) => value === values[0] + i) ? values[0] : 0; // whole numbers stay whole
  const input = h("input", {
    type: "range", step: 1, name, "aria-label": label, min: first, max: first + values.length - 1,
    class: unit === "bytes" ? "dlv-long" : "dlv-slide",
    oninput: () => choose({ [name]: fit(name, values[Number(input.value) - first]) }),
    onpointerenter: () => near?.(name), onfocus: () => near?.(name),
  });
  const amount = h("output", { class: "dlv-amountnow", "aria-hidden": "true" });
  shown.paints(["controls", "live"], () => {
    const chosen = shown.now.controls[name];
    const [says, short] = wordsOf(control, chosen);
    input.value = String(first + placeIn(values, chosen));
    input.disabled = !can(name);
    input.setAttribute("aria-valuetext", says);
    write(amount, short);
  });
  const field = inField && fieldOf(own, { ...control, label: "", unit: inField, per: 1 });
  return [h("label", {}, `${label} `, input), field || amount];
}

/** A value of a slider in words: for screen readers, and beside it.
 * @type {(control: Pick<Control, "unit" | "says" | "short" | "words">, value: any) => string[]} */
export function wordsOf({ unit, says, short, words }, value) {
  const own = words.find(([one]) => one === value);
  if (own) return own.slice(1);
  const text = typeof value === "number" ? UNITS[unit](value) : String(value);
  return [says, short].map((sentence) => sentence.replace("{}", text));
}

/** A field for a number; other text stays, for the kernel to refuse.
 * @type {(own: Explorer<any, any>, control: Control) => Child} */
function fieldOf({ shown, choose, can, called }, { name, label, unit, per }) {
  called[name] = { label: called[name]?.label ?? label, per, unit: per === 1 ? "" : unit };
  const box = h("input", {
    type: "text", inputmode: "decimal", class: "dlv-short dlv-price", name, "aria-label": `${name}, ${unit}`,
    onchange: () => {
      const value = typed(box.value);
      choose({ [name]: typeof value === "number" ? value / per : value });
    },
  });
  shown.paints(["controls", "live"], () => {
    const value = shown.now.controls[name];
    box.disabled = !can(name);
    if (focusedNear(box) === box) return;
    box.value = typeof value === "number" ? String(Number((value * per).toPrecision(6))) : value;
  });
  return h("label", {}, `${label} `, box, ` ${unit}`);
}

/** The choice of a recorded run, once there is one. @type {(own: Explorer<any, any>) => HTMLElement} */
export function recordedRuns({ shown, show }) {
  const box = h("select", {
    "aria-label": "recorded runs", class: "dlv-recorded",
    onchange() {
      const run = shown.now.data.recorded[Number(box.value)];
      if (run) show(run.controls);
    },
  });
  const element = h("label", {}, "recorded runs ", box);
  shown.paints(["data", "controls", "live"], () => {
    const { live, saved, data: { recorded, controls } } = shown.now;
    /** @type {(some: Record<string, any>) => boolean} */
    const now = (some) => Object.entries(some).every(([name, value]) => String(controls[name]) === String(value));
    const all = recorded.map((/** @type {{ words: string }} */ { words }, /** @type {number} */ i) =>
      h("option", { value: i }, words));
    box.replaceChildren(h("option", { value: -1 }, "choose …"), ...all);
    box.value = String(recorded.findIndex((/** @type {{ controls: object }} */ one) => now(one.controls)));
    box.disabled = !(live || saved);
    element.hidden = !all.length;
  });
  return element;
}
