// What charts in SVG have in common: their room, axes, lines, the mark of what was measured, a point under the pointer.
import { s } from "./dom.js";

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Box pixels */
/** @typedef {{ value: number, at: number }} Mark of an axis */

/**
 * Gives a picture a size.
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 */
export function sized(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", String(height));
}

/**
 * Gives a picture the size of the room around it.
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 * @returns {number} its width
 */
export function fitted(svg, width, height) {
  const own = Math.max(300, width);
  sized(svg, own, height);
  return own;
}

/**
 * Where an event is, in the picture's own pixels.
 * @param {SVGSVGElement} svg
 * @param {MouseEvent} event
 * @returns {[number, number]}
 */
export function pointIn(svg, { clientX, clientY }) {
  const box = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / box.width;
  return [(clientX - box.left) * scale, (clientY - box.top) * scale];
}

/**
 * The lines of two axes.
 * @param {Box} box
 * @param {Mark[]} across
 * @param {Mark[]} up
 * @returns {SVGElement}
 */
export function grid({ left, right, top, bottom }, across, up) {
  return s("g", { class: "dlv-axis" },
    across.map(({ at }) => s("path", { d: `M${at} ${top}V${bottom}` })),
    up.map(({ at }) => s("path", { d: `M${left} ${at}H${right}` })));
}

/**
 * Values below a picture.
 * @param {Pick<Box, "bottom">} box
 * @param {Mark[]} marks
 * @param {(value: number) => string} [said]
 * @param {string} [kind]
 * @returns {SVGElement[]}
 */
export function below({ bottom }, marks, said = String, kind) {
  return marks.map(({ value, at }) => s("text", { x: at, y: bottom + 13, class: kind }, said(value)));
}

/**
 * Values beside a picture.
 * @param {Pick<Box, "left">} box
 * @param {Mark[]} marks
 * @param {(value: number) => string} [said]
 * @returns {SVGElement[]}
 */
export function beside({ left }, marks, said = String) {
  return marks.map(({ value, at }) => s("text", { x: left - 6, y: at, class: "dlv-left" }, said(value)));
}

/**
 * A line through points.
 * @param {number[][]} points
 * @returns {string}
 */
export function lineThrough(points) {
  return `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
}

/**
 * The mark of what was measured.
 * @param {number} x
 * @param {number} y
 * @param {string} [title]
 * @returns {SVGElement}
 */
export function cross(x, y, title) {
  const d = `M${x - 6} ${y - 6}l12 12m0-12l-12 12`;
  return s("path", { class: "dlv-measured", d }, title ? s("title", {}, title) : null);
}
