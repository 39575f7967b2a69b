// The controls: form, ranks, sizes by slider or typed, and the runs that can be shown again.
import { field, select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { alone, along, fitting, placeOf } from "./state.js";
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
  const ranks = Array.from({ length: most }, (_, i) => String(i + 1));
  return {
    groups: [
      [h("label", {}, "form ", select(own, "form", forms.map(([name, title]) => [name, title])))],
      [h("label", {}, "ranks ", numbered(own, ranks))], [own.bar.start, recordings(own)],
    ],
    sizes: h("div", { class: "dlv-toolbar", role: "group", "aria-label": "the sizes" },
      UNITS.map(([name, unit]) => h("span", {}, size(own, name, unit)))),
  };
}

/** A choice of ranks, which are numbers. */
function numbered({ shown, choose, can }, ranks) {
  const box = h("select", { "aria-label": "ranks", onchange: () => choose({ ranks: Number(box.value) }) },
    ranks.map((many) => h("option", { value: many }, many)));
  shown.paints(["controls", "live"], () => {
    box.value = String(shown.now.controls.ranks);
    box.disabled = !can("ranks");
  });
  return box;
}

/** A slider over sizes that the ranks can divide, and a field for any other. */
function size(own, /** @type {Size} */ name, unit) {
  const { now } = own.shown;
  const { sizes, names } = now.data;
  const { input, group: [label] } = slider(own, name, {
    label: names[name], min: 0, max: sizes.length - 1, class: "dlv-slide",
    place: (value) => (Number.isFinite(value) && value > 0 ? placeOf(sizes, value) : 0),
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

/** A choice among the runs that were recorded: with a kernel their controls are chosen, a saved page holds them. */
function recordings({ shown, model, choose }) {
  const { now } = shown;
  const box = h("select", {
    "aria-label": "recorded runs", class: "dlv-recorded",
    onchange() {
      const place = Number(box.value);
      if (place < 0) return;
      if (now.live) choose(now.data.recorded[place]);
      else alone(model).show(now.data.recorded[place]);
    },
  });
  const element = h("label", {}, "recorded runs ", box);
  shown.paints(["data", "live"], () => {
    const { data } = now;
    const words = data.recorded.map((controls) => choiceWords(data, controls));
    box.replaceChildren(...["choose …", ...words].map((text, i) => h("option", { value: i - 1 }, text)));
    box.value = String(words.indexOf(choiceWords(data, data.controls)));
    box.disabled = !now.live && !model.page;
    element.hidden = !words.length;
  });
  return element;
}
