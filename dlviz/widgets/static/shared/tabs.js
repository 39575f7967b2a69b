// The tabs of an explorer. Make them first: parts are painted only where they are visible.
import { h } from "./dom.js";

/** @import { Explorer } from "./explorer.js" */

/** @typedef {"costs" | "messages"} Part */

/**
 * @template {string} [P=Part]
 * @typedef {object} Tabs
 * @property {HTMLElement} element
 * @property {Record<P, HTMLElement>} panels
 * @property {(part: P) => void} show
 * @property {() => void} turn shows the next
 * @property {(target: EventTarget | null) => boolean} other goes to the next tab if `target` is one
 */

/** @type {[Part, string][]} */
export const COSTS = [["costs", "Costs"], ["messages", "Messages"]];

/**
 * @template {string} P
 * @param {Explorer<any, { part: P }>} own
 * @param {[P, string][]} parts
 * @returns {Tabs<P>}
 */
export function tabs({ shown, frame }, parts) {
  const { now } = shown;
  const panels = /** @type {any} */ (Object.fromEntries(parts.map(([part]) =>
    [part, h("div", { role: "tabpanel", "aria-label": part })])));
  /** @type {(part: P) => void} */
  const show = (part) => shown.show({ part });
  const turn = () => show(parts[(parts.findIndex(([part]) => part === now.part) + 1) % parts.length][0]);
  const buttons = parts.map(([part, words]) =>
    h("button", { type: "button", role: "tab", "data-part": part, onclick: () => show(part) }, words));
  shown.paints(["part"], () => {
    frame.root.dataset.part = now.part;
    for (const [part] of parts) panels[part].hidden = part !== now.part;
    for (const one of buttons) {
      const own = one.dataset.part === now.part;
      one.setAttribute("aria-selected", String(own));
      one.tabIndex = own ? 0 : -1;
    }
  });
  return {
    element: h("span", { class: "dlv-tabs", role: "tablist", "aria-label": "what is shown" }, buttons),
    panels, show, turn,
    other(target) {
      if (!buttons.some((one) => one === target)) return false;
      turn();
      buttons.find((one) => one.dataset.part === now.part)?.focus();
      return true;
    },
  };
}
