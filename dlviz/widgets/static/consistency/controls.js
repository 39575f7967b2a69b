// The controls: method and its own knob, workers, how slow; the runs that can be shown again.
import { recordedRuns, select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import { choiceWords } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Consistency, Knob } from "./state.js" */

/**
 * The groups of the toolbar.
 * @param {Consistency} own
 * @returns {Child[][]}
 */
export function controls(own) {
  const { methods, ways, knobs, limits: { workers: [fewest, most], slow } } = own.shown.now.data;
  const workers = slider(own, "workers", {
    label: "workers", min: fewest, max: most, class: "dlv-slide", place: Number, value: Number,
    says: (many) => `${many} workers`, short: String,
  });
  const slowness = slider(own, "slow", {
    label: "takes", min: 2, max: 2 * slow, class: "dlv-slide", place: (times) => Math.round(2 * times),
    value: (place) => place / 2, says: (times) => `${digits(times)} times as long`,
    short: (times) => `${digits(times)}×`,
  });
  return [
    [h("label", {}, "method ", select(own, "method", methods)),
      Object.entries(knobs).flatMap(([method, all]) => all.map((knob) => knobOf(own, method, knob)))],
    workers.group,
    [h("label", {}, "slow: ", select(own, "way", ways)), ...slowness.group],
  ];
}

/** A knob of one method, which only shows where that is chosen. */
function knobOf(own, method, /** @type {Knob} */ [option, says, values]) {
  const { shown } = own;
  const group = typeof values[0] === "string"
    ? [h("label", {}, `${says} `, select(own, option, values.map((value) => [String(value), String(value)])))]
    : slider(own, option, {
      label: says, min: 0, max: values.length - 1, class: "dlv-slide", place: (value) => values.indexOf(value),
      value: (place) => values[place], says: String, short: String,
    }).group;
  const element = h("span", { class: "dlv-knob" }, group);
  shown.paints(["controls"], () => void (element.hidden = shown.now.controls.method !== method));
  return element;
}

/**
 * The choice among recorded runs: with a kernel their controls are chosen, a saved page holds them.
 * @param {Consistency} own
 * @returns {HTMLElement}
 */
export function recordings(own) {
  const { shown: { now }, model, choose } = own;
  /** @type {() => any[]} */
  const kept = () => JSON.parse(model.get("recordings") ?? "[]");
  return recordedRuns(own, {
    runs: ({ recorded }) => recorded, now: ({ controls }) => controls, words: choiceWords,
    can: () => now.live || kept().length > 0,
    chosen(run, place) {
      if (now.live) return choose(run);
      const { controls, predicted, run: ran } = kept()[place];
      model.set("state", JSON.stringify({ ...now.data, controls, predicted, run: ran }));
    },
  });
}
