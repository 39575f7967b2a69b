// The two parts of an explorer of costs, of which one is shown. To be made first: other parts are painted where they
// are seen.
import { h } from "./dom.js";

/** @import { Explorer } from "./explorer.js" */

/** @typedef {"costs" | "messages"} Part */

/**
 * @typedef {object} Tabs
 * @property {HTMLElement} element
 * @property {Record<Part, HTMLElement>} panels
 * @property {(part: Part) => void} show
 * @property {() => void} turn
 * @property {(target: EventTarget | null) => boolean} other goes to the other tab where `target` is one
 */

/** @type {[Part, string][]} */
const PARTS = [["costs", "Costs"], ["messages", "Messages"]];

/**
 * @param {Explorer<any, { part: Part }>} own
 * @returns {Tabs}
 */
export function tabs({ shown, frame }) {
  const { now } = shown;
  const [costs, messages] = PARTS.map(([part]) => h("div", { role: "tabpanel", "aria-label": part }));
  const panels = { costs, messages };
  /** @type {(part: Part) => void} */
  const show = (part) => {
    shown.set({ part });
    shown.flush();
  };
  const turn = () => show(now.part === "costs" ? "messages" : "costs");
  const buttons = PARTS.map(([part, words]) =>
    h("button", { type: "button", role: "tab", "data-part": part, onclick: () => show(part) }, words));
  shown.paints(["part"], () => {
    frame.root.dataset.part = now.part;
    for (const [name, panel] of Object.entries(panels)) panel.hidden = name !== now.part;
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
      const next = buttons.find((one) => one !== target);
      if (!buttons.some((one) => one === target)) return false;
      turn();
      next?.focus();
      return true;
    },
  };
}
