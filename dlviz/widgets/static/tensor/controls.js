// The controls: form, ranks, sizes by slider or typed, and the runs that can be shown again.
import { placeOf } from "../shared/arrays.js";
import { field, recordedRuns, select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { alone, along, fitting } from "./state.js";
import { choiceWords } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Size, Tensor } from "./state.js" */

/** @type {[Size, string][]} */
const UNITS = [["batch", "rows"], ["inputs", "inputs"], ["outputs", "outputs"]];

/**
 * The groups of the toolbar, and a toolbar for the sizes.
 * @param {Tensor} own
 * @returns {{ groups: Child[][], sizes: HTMLElement }}
 */
export function controls(own) {
  const { shown: { now } } = own;
  const { forms, most } = now.data;
  /** @type {[number, string][]} */
  const ranks = Array.from({ length: most }, (_, i) => [i + 1, String(i + 1)]);
  return {
    groups: [
      [h("label", {}, "form ", select(own, "form", forms.map(([name, title]) => [name, title])))],
      [h("label", {}, "ranks ", select(own, "ranks", ranks))], [own.bar.start, recordings(own)],
    ],
    sizes: h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the sizes" },
      UNITS.map(([name, unit]) => h("span", {}, size(own, name, unit)))),
  };
}

/** A slider over sizes that the ranks can divide, and a field for any other. */
function size(own, /** @type {Size} */ name, unit) {
  const { now } = own.shown;
  const { sizes, names } = now.data;
  const { input, group: [label] } = slider(own, name, {
    label: names[name], min: 0, max: sizes.length - 1, class: "dlv-slide",
    place: (value) => placeOf(sizes, value),
    value: (place) => fitting(now.data, now.controls, name, sizes[place]),
    says: (value) => `${value} ${unit}`, short: String,
  });
  const near = () => {
    const wanted = now.live && along(now, { [name]: true });
    if (wanted) own.lookAhead(wanted);
  };
  for (const event of ["pointerenter", "focus"]) input.addEventListener(event, near);
  return [label, field(own, name, { letter: "", unit, per: 1 })];
}

/** The choice among recorded runs, whose controls are chosen; a saved page holds them. */
function recordings(own) {
  const { shown: { now }, model, choose } = own;
  return recordedRuns(own, {
    runs: ({ recorded }) => recorded, now: ({ controls }) => controls, words: choiceWords,
    can: () => now.live || model.page,
    chosen: (run) => (now.live ? choose(run) : alone(model).show(run)),
  });
}
