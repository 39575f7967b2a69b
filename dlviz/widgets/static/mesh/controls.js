// The controls: how long each axis is, nodes, how slow the links between them are, and the runs.
import { recordedRuns, select, slider } from "../shared/controls.js";
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

/** A choice among numbers, with its name. */
function numbered(own, name, values) {
  return h("label", {}, `${name} `, select(own, name, values.map((many) => [many, String(many)])));
}

/** The choice among recorded runs, whose controls are chosen; a saved page holds them. */
function recordings(own) {
  const { shown: { now }, model, choose } = own;
  return recordedRuns(own, {
    runs: ({ runs }) => runs.map(({ controls }) => controls), now: ({ controls }) => controls,
    words: (_, controls) => choiceWords(controls),
    can: () => now.live || model.page,
    chosen: (run) => (now.live ? choose(run) : alone(model).show(run)),
    class: "dlv-recordedmesh",
  });
}
