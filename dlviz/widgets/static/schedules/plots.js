// The sides as rows of bars, one below the other, on one axis.
import { h, write } from "../shared/dom.js";
import { asTyped } from "../shared/explorer.js";
import { gantt } from "../shared/gantt/index.js";
import { stylesOf } from "../shared/gantt/paint.js";
import { drawnOf, KINDS, NAMES } from "./state.js";
import { NOTHING, ranOf } from "./kernel.js";
import { actionLines, holeLines, sideWords } from "./words.js";

/** @import { Target } from "../shared/gantt/hit.js" */
/** @import { Chosen, Explorer } from "./context.js" */
/** @import { Side } from "./state.js" */
/** @import { Gantt } from "../shared/gantt/index.js" */

/** The plots of both sides; `boardShown` says whether the board replaces the first plot.
 * @type {(own: Explorer, boardShown: () => boolean) => HTMLElement[]} */
export function plots(own, boardShown) {
  const sides = [0, 1].map((place) => plotOf(own, place));
  own.pictures = sides.map(({ picture }) => picture);
  const { shown } = own;
  shown.paints(["sides", "data", "from", "to", "chosen", "pointed", "path", "opened", "away", "colors",
    "width"], () => {
    const { now } = shown;
    const { root } = own.frame;
    if (!now.colors || !own.frame.body.clientWidth) return; // a notebook hides it
    /** @type {(side: Side) => boolean} */
    const onBoard = (side) => side?.name === "drawn" && boardShown();
    sides.forEach(({ element, draw }, place) => {
      const side = now.sides[place];
      const instead = onBoard(side) && (now.data.levels || !side.error);
      element.hidden = !side || Boolean(instead) || (boardShown() && now.opened !== "");
      if (!element.hidden) draw(side, place > 0 && !onBoard(now.sides[0]));
    });
    root.dataset.draws = String(Number(root.dataset.draws ?? 0) + 1);
  });
  return sides.map(({ element }) => element);
}

/** A side: its heading, or its error, and its rows.
 * @type {(own: Explorer, place: number) => { picture: Gantt, element: HTMLElement, draw: (side: Side, below:
 *   boolean) => void }} */
function plotOf(own, place) {
  const { shown, part } = own;
  const { now } = shown;
  const heading = h("h4", { class: "dlv-sidename" });
  const trouble = h("p", { class: "dlv-trouble", role: "alert" });
  /** @type {any} */
  let drawn = null;
  let under = false;

  /** The span or hole under the pointer, by the side's own indices.
   * @type {(target: Target | null) => { side: number, span: number, hole: number } | null} */
  const chosenAt = (target) => {
    if (target?.span != null) return { side: place, span: drawn.spans[target.span], hole: -1 };
    return target?.idle != null ? { side: place, span: -1, hole: target.idle } : null;
  };
  /** @type {(target: Target) => string[]} */
  const linesOf = (target) => {
    const { span, hole } = chosenAt(target) ?? NOTHING;
    const side = now.sides[place];
    if (span >= 0) return actionLines(side, span, place === 0 ? ranOf(now) : null);
    return hole >= 0 ? holeLines(side, side.holes[hole]) : [];
  };
  /** @type {(which: Chosen, name: "span" | "hole") => number} */
  const mine = (which, name) => (which.side === place ? which[name] : -1);

  const picture = gantt({
    root: own.frame.root, part, describe: linesOf,
    picture() {
      const span = drawn.place[mine(now.chosen, "span")] ?? -1;
      const hover = drawn.place[mine(now.pointed, "span")] ?? -1;
      const { look } = now.data;
      const colors = /** @type {any} */ (now.colors);
      const shades = KINDS.map((kind) => now.sides[place].shades[kind]);
      return {
        rows: drawn.rows, times: drawn.times, under,
        view: { from: now.from, to: now.to, arrows: false, critical: now.path, span, message: -1, hover },
        look: { colors, font: look.font, styles: stylesOf(Object.values(NAMES), shades, look.kinds, colors) },
        chosen: {
          row: now.sides[place].rank[mine(now.chosen, "span")] ?? -1, message: -1, idle: mine(now.chosen, "hole"),
        },
      };
    },
    pointed(target) {
      const next = { ...NOTHING, ...chosenAt(target) };
      if (next.span !== now.pointed.span || next.side !== now.pointed.side) shown.set({ pointed: next });
    },
    clicked: (target) => own.choosing.select(chosenAt(target) ?? {}),
  });
  shown.paints(["sides", "data", "from", "to"], picture.still);
  shown.paints(["colors", "sides"], picture.restyle);
  return {
    picture, element: h("div", { class: "dlv-side" }, heading, trouble, picture.plot),
    draw(side, below) {
      write(heading, side.error ? side.title : sideWords(side));
      write(trouble, asTyped(side.error ?? "", own.called));
      picture.plot.hidden = Boolean(side.error);
      if (side.error) return;
      drawn = drawnOf(side, now.sides.length, place === 0 ? ranOf(now) : null);
      under = below;
      picture.draw();
      const how = `Arrow keys walk through its ${side.count} actions; the table lists them.`;
      picture.canvas.setAttribute("aria-label", `Timeline. ${sideWords(side)} ${how}`);
    },
  };
}
