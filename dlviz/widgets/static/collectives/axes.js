// What the pictures of the explorer of collectives have in common: styles, axes, and a point under the pointer.
import { s } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";

/** @import { Prices } from "./state.js" */
/** @import { Box, Mark } from "./geometry.js" */

const DASHES = {
  solid: null, dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3",
};

/**
 * How the line of an algorithm is drawn.
 * @param {Prices} data
 * @param {string} name
 * @returns {{ stroke: string, "stroke-dasharray": string | null }}
 */
export function styleOf({ styles, algorithms }, name) {
  const [color, dash] = styles[algorithms.indexOf(name)];
  return { stroke: color, "stroke-dasharray": DASHES[dash] };
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
 * Sizes below a picture.
 * @param {Box} box
 * @param {Mark[]} marks
 * @returns {SVGElement[]}
 */
export function below({ bottom }, marks) {
  return marks.map(({ value, at }) => s("text", { x: at, y: bottom + 13 }, bytes(value)));
}

/**
 * Numbers beside a picture.
 * @param {Box} box
 * @param {Mark[]} marks
 * @param {(value: number) => string} said
 * @returns {SVGElement[]}
 */
export function beside({ left }, marks, said) {
  return marks.map(({ value, at }) => s("text", { x: left - 6, y: at, class: "dlv-left" }, said(value)));
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
  svg.setAttribute("viewBox", `0 0 ${own} ${height}`);
  svg.setAttribute("height", String(height));
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
