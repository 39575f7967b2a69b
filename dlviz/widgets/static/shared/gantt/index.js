// An interactive picture of rows of bars: hover, click, drag and zoom.
import { clamp } from "../arrays.js";
import { h } from "../dom.js";
import { painted } from "../paint.js";
import { tooltip } from "../tooltip.js";
import { drawList } from "./geometry.js";
import { hit } from "./hit.js";
import { AXIS, fillsOf, paint } from "./paint.js";

/** @import { Colors } from "../theme.js" */
/** @import { Tooltip } from "../tooltip.js" */
/** @import { Viewport } from "../viewport.js" */
/** @import { DrawList, View } from "./geometry.js" */
/** @import { Target } from "./hit.js" */
/** @import { Chosen, Fills, Styles } from "./paint.js" */
/** @import { Rows, Times } from "./rows.js" */

/** What to draw, except its place. `under`: whether another picture above has the axis.
 * @typedef {{ rows: Rows, times: Times, view: Omit<View, "width" | "top" | "height">, look: { colors: Colors,
 *   styles: Styles, font: string }, chosen: Omit<Chosen, "left" | "axis">, under?: boolean }} Picture */

/**
 * @typedef {object} Plan
 * @property {HTMLElement} root which gets the focus
 * @property {Viewport} part in view
 * @property {() => Picture} picture
 * @property {(around: HTMLElement, above: number, wanted: number) => number} [room] pixels that the rows may take, of
 *   those `wanted`; without it, all
 * @property {(target: Target, time: number) => string[]} describe the tooltip of a target
 * @property {(target: Target | null) => void} pointed called when the pointer moves to another target
 * @property {(target: Target | null) => void} clicked
 * @property {(from: number, to: number) => void} [dragged] over an interval of time; without it, dragging pans
 */

/** @typedef {{ whole: number, left: number, width: number, height: number, top: number }} Place pixels */

/**
 * @typedef {object} Gantt
 * @property {HTMLElement} plot
 * @property {HTMLCanvasElement} canvas
 * @property {() => DrawList | null} draw draws it; null while a notebook hides it
 * @property {() => Place | null} place where the rows lie, or lay before a notebook hid it
 * @property {() => DrawList | null} drawn
 * @property {() => void} restyle takes new colours
 * @property {() => void} still hides the tooltip: its target has moved
 * @property {(event: MouseEvent) => number} timeAt the moment under the pointer
 * @property {(top: number, bottom: number) => void} reveal scrolls a row into view
 */

const LEAST = 44; // pixels of the rows' names, at least
const UNDER = 4; // pixels under the last row
const CLICK = 4; // pixels: less movement is a click

/** A picture of rows of bars. @type {(plan: Plan) => Gantt} */
export function gantt(plan) {
  const canvas = h("canvas", { class: "dlv-canvas", role: "img" });
  const tall = h("div", { class: "dlv-tall" }, canvas);
  const scroller = h("div", { class: "dlv-rows", role: "group", "aria-label": "rows" }, tall);
  const plot = h("div", { class: "dlv-plot" }, scroller);
  const tip = tooltip(plot);
  plot.append(tip.element);
  /** @type {Place | null} */
  let place = null;
  /** @type {DrawList | null} */
  let list = null;
  /** @type {Fills | null} */
  let fills = null;
  const widthOf = gutterOf();
  let above = AXIS;

  /** @type {(picture: Picture) => Place | null} */
  function measured({ rows, look, under }) {
    above = (under ? 2 : AXIS) + rows.above;
    const wanted = rows.height + UNDER;
    tall.style.height = `${wanted + above}px`;
    if (!scroller.clientWidth) return place;
    const room = plan.room?.(scroller, above, wanted) ?? wanted;
    scroller.style.maxHeight = `${room + above}px`;
    const left = widthOf(rows, look.font);
    place = {
      whole: scroller.clientWidth, left, width: Math.max(scroller.clientWidth - left, 50),
      height: Math.min(wanted, room), top: scroller.scrollTop,
    };
    return place;
  }

  function draw() {
    const picture = plan.picture();
    const where = measured(picture);
    if (!where) return null;
    const { rows, times, look, chosen } = picture;
    const view = { ...picture.view, ...where };
    const drawn = list = drawList(rows, times, view);
    const { left } = where;
    const on = canvas.getContext("2d");
    painted(canvas, left + view.width, view.height + above, (context) => {
      const own = context === on ? fills ??= fillsOf(context, look.styles) : fillsOf(context, look.styles);
      paint(context, rows, drawn, view, { ...look, fills: own }, { ...chosen, left, axis: above - rows.above });
    });
    return list;
  }

  /** @type {(event: MouseEvent) => [x: number, y: number]} */
  function pointOf(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left - (place?.left ?? 0), event.clientY - box.top - above];
  }

  /** @type {(event: MouseEvent) => number} */
  function timeAt(event) {
    const { from, to } = plan.picture().view;
    return from + (pointOf(event)[0] / (place?.width ?? 1)) * (to - from);
  }

  function targetAt(/** @type {MouseEvent} */ event) {
    const [x, y] = pointOf(event);
    return list && hit(list, x, y);
  }

  scroller.addEventListener("scroll", draw);
  listen(plan, { canvas, plot, tip, timeAt, targetAt, width: () => place?.width ?? 1 });
  return {
    plot, canvas, draw, timeAt,
    drawn: () => list,
    place: () => place,
    restyle: () => void (fills = null),
    still: tip.hide,
    reveal(top, bottom) {
      if (!place) return; // it is not on the page yet
      const seen = scroller.scrollTop;
      if (top < seen || bottom > seen + place.height) scroller.scrollTop = (top + bottom - place.height) / 2;
    },
  };
}

/** The width of the rows' names, measured once; whole pixels, so that bars are sharp.
 * @type {() => (rows: Pick<Rows, "rows">, font: string) => number} */
function gutterOf() {
  let known = { labels: "", width: 0 };
  return ({ rows }, font) => {
    const named = rows.slice(0, 400).flatMap(({ label, also = [] }) => [label, ...also.map((one) => one.label)]);
    const labels = named.join("\n");
    if (labels === known.labels) return known.width;
    const measure = document.createElement("canvas").getContext("2d");
    if (measure) measure.font = `11px ${font}`;
    const widths = labels.split("\n").map((label) => measure?.measureText(label).width ?? 0);
    known = { labels, width: Math.ceil(clamp(Math.max(LEAST, ...widths) + 14, 0, 180)) };
    return known.width;
  };
}

/** Handles the pointer and the wheel over the picture, as the plan says.
 * @type {(plan: Plan, picture: Pick<Gantt, "canvas" | "plot" | "timeAt"> & { tip: Tooltip, width: () => number,
 *   targetAt: (event: MouseEvent) => Target | null }) => void} */
function listen(plan, { canvas, plot, tip, timeAt, targetAt, width }) {
  const { root, part, describe, pointed, clicked, dragged } = plan;
  /** @type {{ x: number, time: number, from: number, to: number, moved: boolean, pan: boolean } | null} */
  let press = null;

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    root.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const { from, to } = plan.picture().view;
    const pan = event.shiftKey || !dragged;
    press = { x: event.clientX, time: timeAt(event), from, to, moved: false, pan };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!press) {
      const target = targetAt(event);
      pointed(target);
      return target ? tip.show(event, describe(target, timeAt(event))) : tip.hide();
    }
    press.moved ||= Math.abs(event.clientX - press.x) > CLICK;
    if (!press.moved) return;
    tip.hide();
    const by = ((press.x - event.clientX) / width()) * (press.to - press.from);
    if (press.pan) part.show(press.from + by, press.to + by);
    else dragged?.(press.time, timeAt(event));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (press && !press.moved) clicked(targetAt(event));
    press = null;
  });
  canvas.addEventListener("pointercancel", () => void (press = null));
  canvas.addEventListener("pointerleave", () => {
    tip.hide();
    pointed(null);
  });
  canvas.addEventListener("dblclick", part.fitAll);
  plot.addEventListener("wheel", (event) => {
    const { deltaX, deltaY } = event;
    if (event.ctrlKey) part.zoom(Math.exp(clamp(deltaY, -100, 100) * 0.004), timeAt(event));
    else if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) part.pan((deltaX || deltaY) / 800);
    else return;
    event.preventDefault();
  }, { passive: false });
}
