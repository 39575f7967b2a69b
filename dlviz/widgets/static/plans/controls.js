// The controls: model, device, links, nodes, devices, batch and the memory limit; the runs that can be shown again.
import { placeOf } from "../shared/arrays.js";
import { field, recordedRuns, select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";
import { button } from "../shared/stage.js";
import { limitOf } from "./state.js";
import { recordedWords } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Controls, Planner } from "./state.js" */

const PLACES = 200; // of the slider of the memory limit
const ROOM = 1.25; // beyond the least and the most that a plan needs, as a ratio

/**
 * The groups of the toolbar: what is trained, the machine, the recorded runs.
 * @param {Planner} own
 * @returns {Child[][]}
 */
export function controls(own) {
  const { models, chips, links, counts, batches } = own.shown.now.data;
  own.called.node = { label: "a node" };
  const named = (/** @type {string[]} */ names) => names.map((name) => /** @type {[string, string]} */ ([name, name]));
  const part = (name, names) => [h("label", { class: "dlv-machine" }, `${name} `, select(own, name, named(names)))];
  return [
    [h("label", {}, "model ", select(own, "model", named(models)))],
    [many(own, "devices", counts), field(own, "devices", { letter: "", unit: "in all", per: 1 })],
    [many(own, "batch", batches), field(own, "batch", { letter: "", unit: "sequences", per: 1 })],
    [own.bar.start],
    part("device", chips), part("inside", links), part("between", links),
    [field(own, "node", { letter: "nodes of", unit: "devices", per: 1 })],
    [memory(own), all(own)],
    [recordings(own)],
  ];
}

/** A slider over numbers. */
function many(own, name, values) {
  return slider(own, name, {
    label: name, min: 0, max: values.length - 1, class: "dlv-slide",
    place: (value) => placeOf(values, value), value: (place) => values[place],
    says: (value) => `${value} ${name}`, short: String,
  }).group[0];
}

/** The slider of the memory limit: from below the plan that needs least to above all. */
function memory(own) {
  const { shown } = own;
  const { now } = shown;
  /** @type {() => [low: number, high: number]} */
  const ends = () => {
    const all = [...now.data.plans.memory, limitOf(now.data, now.controls)];
    return [Math.min(...all) / ROOM, Math.max(...all) * ROOM];
  };
  const input = h("input", {
    type: "range", min: 0, max: PLACES, step: 1, class: "dlv-slide", "aria-label": "memory limit",
    oninput: () => own.choose({ memory: limitAt(ends(), Number(input.value)) }),
  });
  const amount = h("output", { class: "dlv-amountnow", "aria-hidden": "true" });
  shown.paints(["data", "controls", "live"], () => {
    const limit = limitOf(now.data, now.controls);
    const [low, high] = ends();
    input.value = String(Math.round(PLACES * Math.log(limit / low) / Math.log(high / low)));
    input.disabled = !own.can("memory");
    input.setAttribute("aria-valuetext", bytes(limit));
    amount.textContent = bytes(limit);
  });
  return h("label", {}, "memory limit ", input, amount);
}

/** What takes the limit away. */
function all({ shown, choose, can }) {
  const element = button("all", "all memory of a device", () => choose({ memory: null }));
  shown.paints(["live"], () => void (element.disabled = !can("memory")));
  return element;
}

/** The bytes at a place of the slider, to three digits. */
function limitAt([low, high], place) {
  return Number((low * (high / low) ** (place / PLACES)).toPrecision(3));
}

/** The choice among the plans that were run with these controls. */
function recordings(own) {
  const { shown: { now }, choose, can } = own;
  return recordedRuns(own, {
    runs: ({ runs }) => runs.map(({ plan }) => plan), now: () => now.controls.plan, words: recordedWords,
    can: () => can("plan"), chosen: (plan) => choose({ plan }), class: "dlv-recordedplan",
  });
}
