// A range of time, set by dragging, a step or the selection; pointer and keys move its edges.
import { clamp } from "../shared/arrays.js";
import { h } from "../shared/dom.js";
import { momentOf } from "./words.js";

/** @import { Ranges, Timeline } from "./context.js" */

/** @type {Record<string, number>} */
const MOVES = { // how far keys move an edge of the range, in views
  ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1, Home: -Infinity, End: Infinity,
};

/** @type {(own: Timeline) => Ranges} */
export function ranges(own) {
  const { shown, part, picture, clock, scene } = own;
  const { now } = shown;
  /** @type {("from" | "to")[]} */
  const sides = ["from", "to"];
  const edges = sides.map((side) => edge(own, side, (from, to) => set(from, to)));
  picture.plot.append(...edges);

  /** @type {Ranges["set"]} */
  function set(from, to, step = null) {
    const { low, high } = clock();
    const [first, last] = [Math.min(from, to), Math.max(from, to)];
    shown.set({ range: { from: clamp(first, low, high), to: clamp(last, low, high), step } });
    own.answers.first("statistics");
  }

  /** @type {(step: number) => { from: number, to: number }} */
  function windowOf(step) {
    let [from, to] = [Infinity, -Infinity];
    for (let i = 0; i < scene.count; i++) {
      if (scene.span.step[i] !== step) continue;
      from = Math.min(from, clock().start[i]);
      to = Math.max(to, clock().end[i]);
    }
    return { from, to };
  }

  return {
    set, windowOf,
    ofSelection() {
      if (now.span >= 0) set(clock().start[now.span], clock().end[now.span]);
      else set(now.from, now.to);
    },
    chooseStep(step) {
      if (step == null) {
        shown.set({ range: null });
        return part.fitAll();
      }
      const { from, to } = windowOf(step);
      set(from, to, step);
      part.fit(from, to);
    },
    place() {
      const where = picture.place();
      if (!where) return;
      const { low, high } = clock();
      for (const one of edges) {
        const time = now.range?.[/** @type {"from" | "to"} */ (one.dataset.side)];
        const x = ((time ?? 0) - now.from) * (where.width / (now.to - now.from));
        one.hidden = time == null || x < -1 || x > where.width + 1;
        if (one.hidden || time == null) continue;
        one.style.left = `${where.left + x}px`;
        one.setAttribute("aria-valuenow", String(time));
        one.setAttribute("aria-valuemin", String(low));
        one.setAttribute("aria-valuemax", String(high));
        one.setAttribute("aria-valuetext", momentOf(clock())(time));
      }
    },
  };
}

/** An edge of the range; it moves between an end of the run and the other edge.
 * @type {(timeline: Timeline, side: "from" | "to", set: (from: number, to: number) => void) => HTMLElement} */
function edge({ shown: { now }, picture }, side, set) {
  const own = h("div", {
    class: "dlv-edge", role: "slider", tabindex: "0", hidden: true, "data-side": side,
    "aria-label": `${side === "from" ? "start" : "end"} of the range`,
  });
  /** @type {(time: number) => void} */
  const move = (time) => {
    if (!now.range) return;
    const { from, to } = now.range;
    if (side === "from") set(Math.min(time, to), to);
    else set(from, Math.max(time, from));
  };
  own.addEventListener("keydown", (event) => {
    const by = MOVES[event.key];
    if (!by || !now.range) return;
    event.preventDefault();
    move(now.range[side] + by * (now.to - now.from));
  });
  own.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    own.focus();
    own.setPointerCapture(event.pointerId);
  });
  own.addEventListener("pointermove", (event) => {
    if (own.hasPointerCapture(event.pointerId)) move(picture.timeAt(event));
  });
  return own;
}
