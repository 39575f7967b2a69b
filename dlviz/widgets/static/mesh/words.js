// Placements and runs in words.
import { bytes, gapWords, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { chosen, placeIn, traffic } from "./state.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Axis, Controls, Data } from "./state.js" */

/** The cost of a placement, in a sentence or two. @type {(data: Data) => string} */
export function answerWords(data) {
  const { placement, at, run } = chosen(data);
  const total = placement.total[at];
  const least = Math.min(...Object.values(data.placements).map((one) => one.total[at]));
  const slow = data.axes.map(([axis]) => traffic(placement, axis).between).reduce((all, one) => all + one, 0);
  const best = total <= least * 1.005 ? "No placement is faster." : `The fastest placement takes ${seconds(least)}.`;
  const carried = data.controls.nodes > 1 ? `; the slow links carry ${bytes(slow)}` : "";
  const measured = run ? ` (measured ${seconds(run.total)}, ${gapWords(run.total, total)})` : "";
  return `A step takes ${seconds(total)}${measured}${carried}. ${best}`;
}

/** The groups of an axis, for screen readers. @type {(data: Data, axis: Axis) => string} */
export function pictureWords({ controls, placements }, axis) {
  const groups = placements[controls.order].groups[axis].map((group) => group.join(" ")).join("; ");
  return `${controls.nodes} nodes. The groups of ${axis}: ${groups}.`;
}

/** How many groups of how many ranks an axis has. @type {(groups: number[][]) => string} */
export function groupWords(groups) {
  return `${groups.length} of ${groups[0].length} rank${groups[0].length > 1 ? "s" : ""}`;
}

/** A rank in lines, the first its name. @type {(data: Data, rank: number) => string[]} */
export function rankLines({ controls, placements, axes }, rank) {
  const places = placeIn(controls, rank);
  const { groups, sent } = placements[controls.order];
  return [
    `rank ${rank}: ${axes.map(([axis]) => `${axis} ${places[axis]}`).join(", ")}`,
    ...axes.map(([axis]) => {
      const own = groups[axis].find((group) => group.includes(rank)) ?? [];
      return `${axis} group ${own.join(" ")}: sends ${bytes(sent[axis][rank])} in a step`;
    }),
  ];
}

/** Where an axis is among the three, in words. @type {(controls: Controls, axis: Axis) => string} */
export function placeWords({ order }, axis) {
  return ["its ranks lie furthest apart", "between the two others", "its ranks are neighbours"][
    order.split(",").indexOf(axis)];
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
export function ranWords({ data }) {
  if (data.run) return outcome(data.run, () => []);
  const { run } = chosen(data);
  return run ? outcome(run, () => run.summary) : "";
}
