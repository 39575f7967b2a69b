// The controls: algorithm, network, ranks, size, and the link in numbers.
import { clamp, placeOf } from "../shared/arrays.js";
import { field, select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Collectives } from "./state.js" */

/** @typedef {(by: number) => void} Move */

/**
 * @typedef {object} Bar
 * @property {Child[][]} groups
 * @property {HTMLElement[]} link
 * @property {Move} resize
 * @property {Move} rerank
 * @property {(target: EventTarget | null) => Move | undefined} mover of a slider
 */

/** @type {["alpha" | "beta" | "gamma", string, string, number][]} the last is how many of the unit make a second */
const FIELDS = [
  ["alpha", "α", "µs a message", 1e6], ["beta", "β", "ns a byte", 1e9], ["gamma", "γ", "ns a byte added", 1e9],
];

/**
 * The groups of the toolbar, the fields of the link, and what arrow keys do: on a slider they move that one.
 * @param {Collectives} own
 * @returns {Bar}
 */
export function controls(own) {
  const { shown: { now }, choose } = own;
  const { names, algorithms, topologies, sizes, limits } = now.data;
  const [fewest, most] = limits.ranks;
  const algorithm = select(own, "algorithm", algorithms.map((name) => [name, names[name]]));
  const topology = select(own, "topology", Object.keys(topologies).map((name) => [name, name]));
  const ranks = slider(own, "ranks", {
    label: "ranks", min: fewest, max: most, class: "dlv-slide", place: Number, value: Number,
    says: (value) => `${value} ranks`, short: String,
  });
  const size = slider(own, "nbytes", {
    label: "size", min: 0, max: sizes.length - 1, class: "dlv-long", place: (value) => placeOf(sizes, value),
    value: (place) => sizes[place], says: bytes, short: bytes,
  });
  const resize = (by) => {
    choose({ nbytes: sizes[clamp(placeOf(sizes, now.controls.nbytes) + by, 0, sizes.length - 1)] });
  };
  const rerank = (by) => choose({ ranks: clamp(now.controls.ranks + by, fewest, most) });
  return {
    groups: [
      [h("label", {}, "algorithm ", algorithm)], [h("label", {}, "topology ", topology)], ranks.group, size.group,
    ],
    link: FIELDS.map(([name, letter, unit, per]) => field(own, name, { letter, unit, per })),
    resize, rerank,
    mover: (target) => (target === size.input ? resize : target === ranks.input ? rerank : undefined),
  };
}
