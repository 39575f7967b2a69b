// Explores all plans of a model on a machine: the best one, the memory limit, why a plan fails; runs one.
import { answer, explorer } from "../shared/explorer.js";
import { form, recordedRuns } from "../shared/form.js";
import { memoryLimit } from "./limit.js";
import { planMap } from "./map.js";
import { chosenOf, limitOf, meshesOf, meshOf, nameOf } from "./state.js";
import { planTable } from "./table.js";
import { answerWords, ranWords } from "./words.js";

/** @import { KeyRow } from "../shared/stage.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Planner } from "./state.js" */

const HEIGHT = 166; // pixels of the map
const SAVED = "This page has no kernel: plans and the memory limit can be chosen; for all else, run its notebook.";

/** @type {(given: { model: Model, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const own = /** @type {Planner} */ (explorer(model, el, {
    name: "explorer of plans", saved: SAVED, free: ["memory", "plan"],
    keys: (begun) => keysOf(/** @type {Planner} */ (begun)),
    clear() {
      const any = own.shown.now.controls.plan != null;
      own.choose({ plan: null });
      return any;
    },
    runnable: ({ data }) => data.settled && !data.long, ranWords,
    more: { pointed: -1 },
  }));
  const { shown } = own;
  own.frame.controls(...form(own), [memoryLimit(own)], [own.bar.start, recordedRuns(own)]);
  const words = () => answerWords(shown.now.data, shown.now.controls);
  const former = [planMap(own, HEIGHT), planTable(own)]; // dimmed while new plans are computed
  shown.paints(["data"], () => {
    for (const part of former) part.setAttribute("aria-busy", String(!shown.now.data.settled));
  });
  own.frame.body.append(own.trouble, own.bar.line, answer(own, words, ["data", "controls"]), ...former);
  return own.begin();
}

/** @type {(own: Planner) => KeyRow[]} */
function keysOf({ shown: { now }, choose }) {
  /** @type {(i: number) => void} */
  const plan = (i) => choose({ plan: nameOf(now.data.plans, i) });
  const chosen = () => chosenOf(now.data, now.controls);
  /** @type {(by: number) => () => void} */
  const mesh = (by) => () => {
    const meshes = meshesOf(now.data.plans, limitOf(now.data, now.controls));
    const at = meshes.findIndex((one) => one.mesh === meshOf(now.data.plans, chosen())) + by;
    if (meshes[at]) plan(meshes[at].first);
  };
  /** @type {(by: number) => () => void} */
  const within = (by) => () => { // along the map, among the plans of the mesh
    const { plans } = now.data;
    const name = meshOf(plans, chosen());
    const own = plans.memory.map((_, i) => i).filter((i) => meshOf(plans, i) === name)
      .sort((a, b) => plans.memory[a] - plans.memory[b] || a - b);
    const next = own[own.indexOf(chosen()) + by];
    if (next != null) plan(next);
  };
  return [
    ["↑ ↓", "the mesh before, after", { ArrowUp: mesh(-1), ArrowDown: mesh(1) }],
    ["← →", "its plan with less, more memory", { ArrowLeft: within(-1), ArrowRight: within(1) }],
    ["b", "the best plan", { b: () => choose({ plan: null }) }],
  ];
}

export default { render };
