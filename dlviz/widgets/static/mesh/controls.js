// The controls: how long each axis is, nodes, how slow the links between them are, and the runs.
import { slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import { alone } from "./state.js";
import { choiceWords } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Mesh } from "./state.js" */

/**
 * The groups of the toolbar.
 * @param {Mesh} own
 * @returns {Child[][]}
 */
export function controls(own) {
  const { limits: { lengths, nodes, slower }, axes } = own.shown.now.data;
  const slowness = slider(own, "slower", {
    label: "between them", min: 0, max: slower.length - 1, class: "dlv-slide",
    place: (times) => slower.indexOf(times), value: (place) => slower[place],
    says: (times) => `${digits(times)} times as slow as inside`, short: (times) => `${digits(times)}× slower`,
  });
  return [
    axes.map(([axis]) => numbered(own, axis, lengths)), [numbered(own, "nodes", nodes), ...slowness.group],
    [own.bar.start, recordings(own)],
  ];
}

/** A choice among numbers. */
function numbered({ shown, choose, can }, name, values) {
  const box = h("select", { "aria-label": name, onchange: () => choose({ [name]: Number(box.value) }) },
    values.map((many) => h("option", { value: many }, many)));
  shown.paints(["controls", "live"], () => {
    box.value = String(shown.now.controls[name]);
    box.disabled = !can(name);
  });
  return h("label", {}, `${name} `, box);
}

/** A choice among the runs that were recorded: with a kernel their controls are chosen, a saved page holds them. */
function recordings({ shown, model, choose }) {
  const { now } = shown;
  const box = h("select", {
    "aria-label": "recorded runs", class: "dlv-recordedmesh",
    onchange() {
      const place = Number(box.value);
      if (place < 0) return;
      const own = now.data.runs[place].controls;
      if (now.live) choose(own);
      else alone(model).show(own);
    },
  });
  const element = h("label", {}, "recorded runs ", box);
  shown.paints(["data", "live"], () => {
    const words = now.data.runs.map((one) => choiceWords(one.controls));
    box.replaceChildren(...["choose …", ...words].map((text, i) => h("option", { value: i - 1 }, text)));
    box.value = String(words.indexOf(choiceWords(now.data.controls)));
    box.disabled = !now.live && !model.page;
    element.hidden = !words.length;
  });
  return element;
}
