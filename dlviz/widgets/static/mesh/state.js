// What the kernel sends of a mesh, what follows from a placement, and what a page without a kernel can show.

/** @import { Answer, Explorer } from "../shared/explorer.js" */
/** @import { Style } from "../shared/theme.js" */

/** `order` lists the axes, separated by commas, the one whose ranks are neighbours last; links between `nodes` are
 * `slower` times as slow as those inside.
 * @typedef {{ order: string, dp: number, pp: number, tp: number, nodes: number, slower: number }} Controls */

/** @typedef {"dp" | "pp" | "tp"} Axis */

/** @typedef {Record<Axis, number[]>} Bytes of each rank in a step */

/** What follows from an order of the axes; seconds are a list by speed of the slow links, null if not known yet.
 * @typedef {{ groups: Record<Axis, number[][]>, sent: Bytes, between: Bytes, seconds: Record<Axis, number[]>, total:
 *   number[] }} Placement */

/** @typedef {{ sent: Bytes, between: Bytes, total: number, late: string, summary: string[] }} Run */

/** @typedef {Answer & { controls: Controls, axes: [Axis, string][], slower: number[], owners: Style[], hues:
 * Record<Axis, string>, placements: Record<string, Placement>, run: { error?: string, stopped?: string } | null,
 * runs: { controls: Controls, run: Run }[] }} Data */

/** @typedef {Explorer<Data, { axis: Axis }>} Mesh `axis`: whose groups are shown */

/** The data for the chosen order and speed, which the kernel has already sent.
 * @type {(data: Data, controls: Controls) => Data} */
export function foresee(data, { order, slower }) {
  const same = order === data.controls.order && slower === data.controls.slower;
  if (same || data.placements[order]?.total[data.slower.indexOf(slower)] == null) return data;
  return { ...data, controls: { ...data.controls, order, slower }, run: null };
}

/** The chosen placement, the index of the chosen speed, and the run of these controls.
 * @type {(data: Data) => { placement: Placement, at: number, run: Run | null }} */
export function chosen({ controls, placements, slower, runs }) {
  return {
    placement: placements[controls.order], at: slower.indexOf(controls.slower),
    run: runs.find((one) => nameOf(one.controls) === nameOf(controls))?.run ?? null,
  };
}

/** The order with an axis at another place: at 0 its ranks are furthest apart, at 2 they are neighbours.
 * @type {(order: string, axis: Axis, place: number) => string} */
export function movedTo(order, axis, place) {
  const others = order.split(",").filter((one) => one !== axis);
  others.splice(place, 0, axis);
  return others.join();
}

/** The coordinates of a rank. @type {(controls: Controls, rank: number) => Record<Axis, number>} */
export function placeIn(controls, rank) {
  const places = /** @type {Record<Axis, number>} */ ({});
  for (const axis of /** @type {Axis[]} */ (controls.order.split(",").reverse())) {
    places[axis] = rank % controls[axis];
    rank = Math.floor(rank / controls[axis]);
  }
  return places;
}

/** Bytes of all ranks in a step.
 * @type {(found: Pick<Run, "sent" | "between">, axis: Axis) => { inside: number, between: number }} */
export function traffic({ sent, between }, axis) {
  /** @type {(values: number[]) => number} */
  const sum = (values) => values.reduce((all, one) => all + one, 0);
  return { inside: sum(sent[axis]) - sum(between[axis]), between: sum(between[axis]) };
}

/** @type {(controls: Controls) => string} */
function nameOf({ order, dp, pp, tp, nodes, slower }) {
  return [order, dp, pp, tp, nodes, slower].join(" ");
}
