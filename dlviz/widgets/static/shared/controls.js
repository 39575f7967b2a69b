// The controls of an explorer: each shows what is chosen, and chooses.
import { focusedNear, h, write } from "./dom.js";
import { typed } from "./numbers.js";

/** @import { Explorer } from "./explorer.js" */

/**
 * A choice among a few values.
 * @param {Explorer<any, any>} own
 * @param {string} name of the control
 * @param {[value: any, words: string][]} options
 * @param {string} [label]
 * @returns {HTMLSelectElement}
 */
export function select({ shown, choose, can, called }, name, options, label = name) {
  called[name] ??= { label };
  const box = h("select", {
    name, "aria-label": label, onchange: () => choose({ [name]: options[box.selectedIndex][0] }),
  }, options.map(([value, words]) => h("option", { value: String(value) }, words)));
  shown.paints(["controls", "live"], () => {
    box.value = String(shown.now.controls[name]);
    box.disabled = !can(name);
  });
  return box;
}

/**
 * A choice among the runs that were recorded, once there is one.
 * @param {Explorer<any, any>} own
 * @param {object} look
 * @param {(data: any) => any[]} look.runs what tells each run from others
 * @param {(data: any) => any} look.now the same of what is shown
 * @param {(data: any, run: any) => string} look.words
 * @param {() => boolean | undefined} look.can whether one can be chosen
 * @param {(run: any, place: number) => void} look.chosen
 * @param {string} [look.class]
 * @returns {HTMLElement}
 */
export function recordedRuns({ shown }, { runs, now, words, can, chosen, class: kind = "dlv-recorded" }) {
  const box = h("select", {
    "aria-label": "recorded runs", class: kind,
    onchange() {
      const place = Number(box.value);
      if (place >= 0) chosen(runs(shown.now.data)[place], place);
    },
  });
  const element = h("label", {}, "recorded runs ", box);
  shown.paints(["data", "controls", "live"], () => {
    const { data } = shown.now;
    const all = runs(data).map((run) => words(data, run));
    box.replaceChildren(...["choose …", ...all].map((text, i) => h("option", { value: i - 1 }, text)));
    box.value = String(now(data) == null ? -1 : all.indexOf(words(data, now(data))));
    box.disabled = !can();
    element.hidden = !all.length;
  });
  return element;
}

/**
 * A slider, its label and what it is at.
 * @param {Explorer<any, any>} own
 * @param {string} name of the control
 * @param {object} look whatever else the input has
 * @param {string} look.label
 * @param {number} look.min
 * @param {number} look.max
 * @param {string} look.class
 * @param {(value: any) => number} look.place where a value is on the slider
 * @param {(place: number) => any} look.value
 * @param {(value: any) => string} look.says the value in words
 * @param {(value: any) => string} look.short
 * @returns {{ input: HTMLInputElement, group: HTMLElement[] }}
 */
export function slider({ shown, choose, can, called }, name, { label, place, value, says, short, ...look }) {
  called[name] = { label };
  const input = h("input", {
    type: "range", step: 1, name, "aria-label": label, ...look,
    oninput: () => choose({ [name]: value(Number(input.value)) }),
  });
  const amount = h("output", { class: "dlv-amountnow", "aria-hidden": "true" });
  shown.paints(["controls", "live"], () => {
    const chosen = shown.now.controls[name];
    input.value = String(place(chosen));
    input.disabled = !can(name);
    input.setAttribute("aria-valuetext", says(chosen));
    write(amount, short(chosen));
  });
  return { input, group: [h("label", {}, `${label} `, input), amount] };
}

/**
 * A field for a number of which `per` make one of the kernel's unit; a text that is no number stays as it is.
 * @param {Explorer<any, any>} own
 * @param {string} name of the control
 * @param {{ letter: string, unit: string, per: number }} look
 * @returns {HTMLLabelElement}
 */
export function field({ shown, choose, can, called }, name, { letter, unit, per }) {
  called[name] = { label: called[name]?.label ?? letter, per, unit: per === 1 ? "" : unit };
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
  return h("label", {}, `${letter} `, box, ` ${unit}`);
}
