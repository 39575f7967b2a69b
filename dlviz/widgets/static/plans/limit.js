// The memory limit of a device.
import { h } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";
import { button } from "../shared/stage.js";
import { limitOf } from "./state.js";

/** @import { Planner } from "./state.js" */

const PLACES = 200; // of the slider
const ROOM = 1.25; // beyond the least and the most memory of a plan, as a ratio

/** The slider of the memory limit, from below the smallest plan to above all, and a button that lifts the limit.
 * @type {(own: Planner) => HTMLElement[]} */
export function memoryLimit(own) {
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
  return [h("label", {}, "memory limit ", input, amount), all(own)];
}

/** @type {(own: Planner) => HTMLElement} */
function all({ shown, choose, can }) {
  const element = button("all", "all memory of a device", () => choose({ memory: null }));
  shown.paints(["live"], () => void (element.disabled = !can("memory")));
  return element;
}

/** The bytes at a position of the slider, to three digits. @type {(ends: [number, number], place: number) => number} */
function limitAt([low, high], place) {
  return Number((low * (high / low) ** (place / PLACES)).toPrecision(3));
}
