// Moments that the reader marks with a note, stored by a saved page; and when the run lost ranks.
import { h, refill } from "../shared/dom.js";
import { button, opens, toggle } from "../shared/stage.js";
import { momentOf } from "./words.js";

/** @import { Timeline } from "./context.js" */

/** @typedef {{ clock: string, time: number, note: string }} Mark */

/** @type {(own: Timeline) => Timeline["marks"]} */
export function marks(own) {
  const { shown, model, picture, clock, part } = own;
  const { now } = shown;
  const panel = h("div", { class: "dlv-panel dlv-marklist", role: "region", "aria-label": "marks", hidden: true });
  const flags = h("div", { class: "dlv-flags" });
  own.answers.add("marks", panel);
  picture.plot.append(flags);
  const open = opens(toggle("marks", "list the marks; N marks a moment", false,
    (on) => shown.show({ marksOpen: on })), panel);

  /** @type {() => Mark[]} */
  const all = () => model.get("marks") ?? [];

  /** Marks the start of the selected span, else of the range, else the middle of what is in view. */
  function add() {
    const time = now.span >= 0 ? clock().start[now.span] : now.range?.from ?? (now.from + now.to) / 2;
    put([...all(), { clock: clock().name, time, note: "" }]);
    shown.show({ marksOpen: true });
    /** @type {HTMLElement | null} */ (panel.querySelector("li:last-of-type input"))?.focus();
  }

  /** @type {(list: Mark[]) => void} */
  function put(list) {
    model.set("marks", list);
    model.save_changes();
  }

  /** @type {(mark: Mark, number: number) => HTMLLIElement} */
  function line(mark, number) {
    const moment = momentOf(clock())(mark.time);
    const note = h("input", {
      type: "text", value: mark.note, placeholder: "note", "aria-label": `note of mark ${number + 1}`,
      onchange: () => put(all().map((one, i) => (i === number ? { ...one, note: note.value } : one))),
    });
    const go = h("button", { type: "button", class: "dlv-link", onclick: () => part.centre(mark.time, mark.time) },
      `${number + 1}: ${moment}${mark.clock === clock().name ? "" : ` by the ${mark.clock} clock`}`);
    return h("li", {}, go, note, button("×", `remove mark ${number + 1}`, () => put(all().toSpliced(number, 1))));
  }

  function list() {
    open.setAttribute("aria-pressed", String(now.marksOpen));
    panel.hidden = !now.marksOpen;
    if (panel.hidden) return panel.replaceChildren();
    own.answers.first("marks");
    refill(panel, [h("h4", {}, "Marks"),
      all().length ? h("ol", {}, all().map(line)) : h("p", {}, "Press N to mark a moment with a note."),
      lossList(own)]);
  }

  function show() {
    shown.set({ marksOpen: true });
    own.answers.first("marks");
  }

  /** Puts a flag over each marked moment that is in view. */
  function place() {
    const where = picture.place();
    if (!where) return;
    const scale = where.width / (now.to - now.from);
    const shownNow = all().map((mark, number) => ({ mark, number, x: (mark.time - now.from) * scale }))
      .filter(({ mark, x }) => mark.clock === clock().name && x >= 0 && x <= where.width);
    flags.replaceChildren(...shownNow.map(({ mark, number, x }) => flagOf(mark, number, where.left + x, show)));
  }

  const changed = () => {
    list();
    place();
  };
  shown.paints(["marksOpen", "clock"], list);
  return {
    element: panel, button: open, add, show, place,
    start: () => model.on("change:marks", changed),
    stop: () => model.off("change:marks", changed),
  };
}

/** A flag `x` pixels from the left.
 * @type {(mark: Mark, number: number, x: number, show: () => void) => HTMLButtonElement} */
function flagOf({ note }, number, x, show) {
  return h("button", {
    type: "button", class: "dlv-flag", title: note || `mark ${number + 1}`, style: `left: ${x}px`,
    "aria-label": `mark ${number + 1}: ${note || "no note"}`, onclick: show,
  }, String(number + 1));
}

/** Links to the moments when ranks were lost; null if none was.
 * @type {(timeline: Timeline) => (HTMLHeadingElement | HTMLUListElement)[] | null} */
function lossList({ clock, part }) {
  const lost = clock().lost.map(({ at, summary }) => h("li", {},
    h("button", { type: "button", class: "dlv-link", onclick: () => part.centre(at, at) }, summary)));
  return lost.length ? [h("h4", {}, "Lost ranks"), h("ul", {}, lost)] : null;
}
