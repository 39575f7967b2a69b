// Explores which axis of a mesh belongs on the fast links: the groups of each, bytes over both kinds of links, a run.
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { axesBar, move, next } from "./axes.js";
import { meshPicture } from "./picture.js";
import { foresee } from "./state.js";
import { trafficTable } from "./table.js";
import { answerWords, ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Axis, Mesh } from "./state.js" */

const SAVED = "No kernel: placements, speed and recorded runs can be chosen; for all else, run the notebook's cell.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Mesh} */ (explorer(model, el, {
    name: "explorer of meshes", saved: SAVED, free: ["order", "slower"],
    keys: (begun) => keysOf(/** @type {Mesh} */ (begun)), foresee, ranWords,
    more: { axis: /** @type {Axis} */ ("tp") },
  }));
  own.frame.controls(...form(own), [own.bar.start, recordedRuns(own)]);
  own.frame.body.append(own.trouble, axesBar(own), meshPicture(own), own.bar.line,
    answer(own, () => answerWords(own.shown.now.data)), trafficTable(own));
  return own.begin();
}

/** @type {(own: Mesh) => KeyRow[]} */
function keysOf(own) {
  const { now } = own.shown;
  /** @type {(steps: number) => () => void} */
  const by = (steps) => () => move(own, now.axis, now.controls.order.split(",").indexOf(now.axis) + steps);
  return [
    ["← →", "the axis further apart, closer", { ArrowLeft: by(-1), ArrowRight: by(1) }],
    ["a", "next axis", { a: () => next(own) }],
  ];
}

export default { render };
