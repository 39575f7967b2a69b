// All plans: a row per mesh with its best plan; below the chosen mesh its plans, and below the chosen plan its run.
import { h, refill } from "../shared/dom.js";
import { bytes, digits, seconds } from "../shared/numbers.js";
import { tableOf } from "../shared/table.js";
import { chosenOf, limitOf, meshesOf, meshOf, nameOf, runOf } from "./state.js";
import { limitWords, rowWords } from "./words.js";

/** @import { Row } from "../shared/table.js" */
/** @import { Data, Planner, Run } from "./state.js" */

const VARIANT = "dlv-variant"; // a plan of the mesh above

/** @type {(own: Planner) => HTMLElement} */
export function planTable({ shown, choose }) {
  const { now } = shown;
  const box = h("div", { class: "dlv-scroll dlv-plans", role: "group", "aria-label": "all plans" });
  shown.paints(["data", "controls"], () => {
    const { data, controls } = now;
    const limit = limitOf(data, controls);
    const chosen = chosenOf(data, controls);
    refill(box, [plansOf(data, limit, chosen, (i) => choose({ plan: nameOf(data.plans, i) }))]);
    reveal(box);
  });
  return box;
}

/** Scrolls the table, and only the table, to the chosen row and the measured row below it.
 * @type {(box: HTMLElement) => void} */
function reveal(box) {
  const row = /** @type {HTMLElement | null} */ (box.querySelector("[aria-selected=true]"));
  if (!row) return;
  const head = /** @type {HTMLElement} */ (box.querySelector("thead")).offsetHeight;
  const { offsetTop: top, offsetHeight: height } = row;
  const next = /** @type {HTMLElement | null} */ (row.nextElementSibling);
  const below = next?.matches(".dlv-ran") ? next.offsetHeight : 0;
  const end = top + height + below;
  if (top - head < box.scrollTop) box.scrollTop = top - head;
  else if (end > box.scrollTop + box.clientHeight) box.scrollTop = end - box.clientHeight;
}

/** @type {(data: Data, limit: number, chosen: number, choose: (i: number) => void) => HTMLElement} */
function plansOf(data, limit, chosen, choose) {
  const { plans, axes, hues } = data;
  const exposed = Object.keys(plans.exposed);
  const heads = ["mesh, and its plans", "recompute", "a step", "memory", "bubble", ...exposed.map((axis) => axes[axis]),
    "what limits it"];
  /** @type {(i: number, name: string, kind: string) => Row} */
  const row = (i, name, kind) => ({
    name, press: () => choose(i), kind: plans.memory[i] > limit ? `${kind} dlv-failing` : kind,
    chosen: kind === VARIANT && i === chosen,
    cells: [plans.recompute[i], seconds(plans.seconds[i]), bytes(plans.memory[i]), digits(plans.bubble[i]),
      ...exposed.map((axis) => seconds(plans.exposed[axis][i])), h("td", { class: "dlv-limits" },
        h("span", { class: "dlv-hue", style: `background: ${hues[plans.limited_by[i]]}` }),
        limitWords(data, i, limit))],
  });
  /** @type {(run: Run) => Row} */
  const measured = (run) => ({
    name: "measured", kind: "dlv-ran",
    cells: ["", seconds(run.seconds), bytes(run.memory), digits(run.bubble),
      ...exposed.map((axis) => seconds(run.exposed[axis])), ""],
  });
  const rows = meshesOf(plans, limit).flatMap((mesh) => {
    const open = chosen >= 0 && meshOf(plans, chosen) === mesh.mesh;
    return [row(mesh.first, mesh.mesh, "dlv-meshrow"), ...(open ? mesh.plans : []).flatMap((i) => {
      const run = i === chosen ? runOf(data, i) : undefined;
      return [row(i, rowWords(data, i), VARIANT), ...(run ? [measured(run)] : [])];
    })];
  });
  return tableOf({ heads, rows, words: [0, 1, heads.length - 1] });
}
