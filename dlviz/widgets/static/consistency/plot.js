// The timeline of server and workers: the prediction and below it the run, and the shown moment.
import { h } from "../shared/dom.js";
import { gantt } from "../shared/gantt/index.js";
import { AXIS, stylesOf } from "../shared/gantt/paint.js";
import { swatch } from "../shared/paint.js";
import { drawnOf } from "./state.js";
import { answerWords, barLines } from "./words.js";

/** @import { Consistency } from "./state.js" */
/** @import { Travel } from "./playing.js" */

/** @type {(own: Consistency, travel: Travel) => HTMLElement[]} */
export function plot(own, travel) {
  const { shown, part, frame } = own;
  const { now } = shown;
  const spot = h("div", { class: "dlv-playhead", "aria-hidden": "true" });
  let drawn = drawnOf(now.predicted, now.measured, now.data.shown.length);
  const picture = gantt({
    root: frame.root, part,
    picture() {
      const colors = /** @type {any} */ (now.colors), { shown: kinds, look } = now.data;
      return {
        rows: drawn.rows, times: drawn.times,
        view: { from: now.from, to: now.to, arrows: false, critical: false, span: -1, message: -1 },
        look: { colors, font: look.font, styles: stylesOf(kinds, [], look.kinds, colors) },
        chosen: { row: -1, message: -1 },
      };
    },
    describe({ span }) {
      if (span == null) return [];
      const [side, i] = drawn.sideOf(span);
      return barLines(side, i, now.data.shown, side === now.measured ? "run" : "predicted");
    },
    pointed() {},
    clicked(target) {
      if (target?.span == null) return;
      const [side, i] = drawn.sideOf(target.span);
      if (now.measured) shown.set({ which: side === now.measured ? "measured" : "predicted" });
      travel.go(side.start[i]);
    },
  });
  picture.plot.append(spot);
  shown.paints(["colors"], picture.restyle);
  shown.paints(["predicted", "measured"], () => {
    drawn = drawnOf(now.predicted, now.measured, now.data.shown.length);
    picture.still();
  });
  shown.paints(["predicted", "measured", "from", "to", "colors", "width"], () => {
    if (!now.colors || !frame.body.clientWidth) return; // a notebook hides it
    picture.draw();
    picture.canvas.setAttribute("aria-label", `Timeline of server and workers. ${answerWords(now.data)}`);
    frame.root.dataset.draws = String(Number(frame.root.dataset.draws ?? 0) + 1);
  });
  shown.paints(["at", "from", "to", "width", "predicted", "measured"], () => {
    const place = picture.place();
    if (!place) return;
    const share = (now.at - now.from) / (now.to - now.from);
    spot.hidden = share < 0 || share > 1;
    spot.style.left = `${place.left + share * place.width}px`;
    spot.style.top = `${AXIS - 4}px`;
  });
  return [legendOf(own), picture.plot];
}

/** The legend of kinds. @type {(own: Consistency) => HTMLElement} */
function legendOf({ shown }) {
  const { now } = shown;
  const legend = h("div", { class: "dlv-marks dlv-key" });
  shown.paints(["data", "predicted", "measured"], () => {
    const { shown: kinds, look } = now.data;
    const there = new Set(now.predicted.kind);
    /** @type {(kind: string, says: string) => HTMLElement} */
    const mark = (kind, says) => h("span", {}, swatch(look.kinds[kind]), says);
    legend.replaceChildren(
      ...kinds.filter((kind, i) => there.has(i) && kind !== "wait").map((kind) => mark(kind, kind)),
      mark("wait", "waiting"), ...(now.measured ? [h("span", {}, "lower bar: the run")] : []));
  });
  return legend;
}
