// Which rows show, in which order, and which stay in view while the others scroll.
import { turned } from "../shared/arrays.js";
import { h, refill } from "../shared/dom.js";
import { named } from "../shared/gantt/rows.js";
import { button, opens, toggle } from "../shared/stage.js";

/** @import { Timeline } from "./context.js" */

/** A button that opens the list of rows, which is one of the answers.
 * @type {(own: Timeline) => { button: HTMLElement | null }} */
export function arrangement(own) {
  const { shown, scene } = own;
  const { now } = shown;
  if (scene.rows.length < 2) return { button: null };
  const panel = h("div", { class: "dlv-panel dlv-rowlist", role: "region", "aria-label": "rows", hidden: true });
  own.answers.add("rows", panel);
  const open = opens(toggle("rows", "show, hide, pin and move rows", false,
    (on) => shown.show({ rowsOpen: on })), panel);

  /** Moves a row up or down by one. @type {(row: number, by: number) => void} */
  function move(row, by) {
    const order = [...now.rows.order];
    const at = order.indexOf(row);
    [order[at], order[at + by]] = [order[at + by], order[at]];
    own.arrange({ ...now.rows, order });
  }

  /** @type {(name: "hidden" | "pinned", row: number) => void} */
  function turn(name, row) {
    own.arrange({ ...now.rows, [name]: turned(now.rows[name], row) });
  }

  /** The controls of a row; the last shown row cannot be hidden.
   * @type {(row: number, place: number, order: number[]) => HTMLLIElement} */
  function line(row, place, order) {
    const { label } = scene.rows[row];
    /** @type {(name: "hidden" | "pinned", words: string, on: boolean) => HTMLButtonElement} */
    const pressed = (name, words, on) => h("button", {
      type: "button", "aria-pressed": String(on), "aria-label": `${words} ${label}`, onclick: () => turn(name, row),
      disabled: name === "hidden" && on && now.scene.shown.length === 1,
    }, words);
    return h("li", {}, h("span", {}, label),
      pressed("hidden", "show", !now.rows.hidden.has(row)), pressed("pinned", "pin", now.rows.pinned.has(row)),
      Object.assign(button("↑", `move ${label} up`, () => move(row, -1)), { disabled: place === 0 }),
      Object.assign(button("↓", `move ${label} down`, () => move(row, 1)), { disabled: place === order.length - 1 }));
  }

  /** The name of a row's group, where it begins. @type {(row: number, before: number) => HTMLLIElement[]} */
  function over(row, before) {
    const { group = -1 } = scene.rows[row];
    const begins = named(scene.rows, row, before);
    return begins ? [h("li", { class: "dlv-rowgroup" }, scene.rankGroups[group].label)] : [];
  }

  shown.paints(["rowsOpen", "rows"], () => {
    open.setAttribute("aria-pressed", String(now.rowsOpen));
    panel.hidden = !now.rowsOpen;
    if (panel.hidden) return panel.replaceChildren();
    own.answers.first("rows");
    const back = button("as they were", "show all rows in their own order", () =>
      own.arrange({ order: scene.shown, hidden: new Set(), pinned: new Set() }));
    const lines = now.rows.order.flatMap((row, place, order) =>
      [...over(row, order[place - 1] ?? -1), line(row, place, order)]);
    refill(panel, [h("h4", {}, "Rows ", back), h("ul", {}, lines)]);
  });
  return { button: open };
}
