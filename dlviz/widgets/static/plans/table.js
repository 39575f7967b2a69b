// All plans: a row a mesh, for which its best plan stands; below the chosen mesh its plans, and below one its run.
import { h, refill } from "../shared/dom.js";
import { bytes, digits, seconds } from "../shared/numbers.js";
import { chosenOf, limitOf, meshesOf, meshOf, nameOf, runOf } from "./state.js";
import { limitWords, rowWords } from "./words.js";

/** @import { Data, Planner, Run } from "./state.js" */

/** @type {(own: Planner) => HTMLElement} */
export function planTable({ shown, choose }) {
  const { now } = shown;
  const box = h("div", { class: "dlv-scroll dlv-plans", role: "group", "aria-label": "all plans" });
  shown.paints(["data", "controls"], () => {
    const { data, controls } = now;
    const limit = limitOf(data, controls);
    const chosen = chosenOf(data, controls);
    refill(box, [tableOf(data, limit, chosen, (i) => choose({ plan: nameOf(data.plans, i) }))]);
    reveal(box);
  });
  return box;
}

/** Has the chosen row in view, with what was measured below it, within the table alone.
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
function tableOf(data, limit, chosen, choose) {
  const { plans, axes } = data;
  const exposed = Object.keys(plans.exposed);
  const heads = ["mesh, and its plans", "recompute", "a step", "memory", "bubble", ...exposed.map((axis) => axes[axis]),
    "what limits it"];
  /** @type {(i: number, words: string, classes: string) => HTMLElement} */
  const row = (i, words, classes) => rowOf(data, i, { words, classes, limit, chosen, choose, exposed });
  const meshes = meshesOf(plans, limit);
  return h("table", { class: "dlv-prices dlv-ways" },
    h("thead", {}, h("tr", {}, heads.map((text, i) =>
      h("th", { scope: "col", class: i > 1 && i < heads.length - 1 && "dlv-amount" }, text)))),
    h("tbody", {}, meshes.flatMap((mesh) => {
      const open = chosen >= 0 && meshOf(plans, chosen) === mesh.mesh;
      const own = open ? mesh.plans : [];
      return [row(mesh.first, mesh.mesh, "dlv-meshrow"), ...own.flatMap((i) => {
        const run = i === chosen ? runOf(data, i) : undefined;
        return [row(i, rowWords(data, i), "dlv-variant"), ...(run ? [measured(run, exposed)] : [])];
      })];
    })));
}

/** @type {(data: Data, i: number, how: { words: string, classes: string, limit: number, chosen: number,
 *   choose: (i: number) => void, exposed: string[] }) => HTMLElement} */
function rowOf({ plans, ...data }, i, { words, classes, limit, chosen, choose, exposed }) {
  const variant = classes === "dlv-variant";
  const fails = plans.memory[i] > limit;
  return h("tr", {
    class: `${classes}${fails ? " dlv-failing" : ""}`,
    "aria-selected": String(variant && i === chosen),
  },
  h("th", { scope: "row" }, h("button", { type: "button", class: "dlv-link", onclick: () => choose(i) }, words)),
  h("td", {}, plans.recompute[i]),
  [seconds(plans.seconds[i]), bytes(plans.memory[i]), digits(plans.bubble[i]),
    ...exposed.map((axis) => seconds(plans.exposed[axis][i]))].map((text) => h("td", { class: "dlv-amount" }, text)),
  h("td", { class: "dlv-limits" },
    h("span", { class: "dlv-hue", style: `background: ${data.hues[plans.limited_by[i]]}` }),
    limitWords({ plans, ...data }, i, limit)));
}

/** @type {(run: Run, exposed: string[]) => HTMLElement} */
function measured(run, exposed) {
  return h("tr", { class: "dlv-ran" }, h("th", { scope: "row" }, "measured"), h("td"),
    [seconds(run.seconds), bytes(run.memory), digits(run.bubble), ...exposed.map((axis) => seconds(run.exposed[axis]))]
      .map((text) => h("td", { class: "dlv-amount" }, text)), h("td", {}));
}
