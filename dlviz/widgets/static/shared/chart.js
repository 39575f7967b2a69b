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

const HIGH = 12; // pixels of a line of words

/**
 * Gives words places where none covers another: of each the first of its places that is free. What has
 * no room is left out.
 * @template {{ width: number, places: number[][] }} Words
 * @param {Words[]} all of each its width, and the middles of where it may be, the best first
 * @param {Box} box that they stay in
 * @param {Box[]} [taken] what else they do not cover
 * @returns {(Words & Box & { x: number, y: number })[]}
 */
export function apart(all, box, taken = []) {
  const boxes = [...taken];
  /** @type {(own: Box) => boolean} */
  const free = (own) => own.left >= box.left && own.right <= box.right && own.top >= box.top
    && own.bottom <= box.bottom && boxes.every((one) =>
      own.right <= one.left || own.left >= one.right || own.bottom <= one.top || own.top >= one.bottom);
  return all.flatMap((words) => {
    const half = words.width / 2;
    const places = words.places.map(([x, y]) =>
      ({ x, y, left: x - half, right: x + half, top: y - HIGH / 2, bottom: y + HIGH / 2 }));
    const place = places.find(free);
    if (!place) return [];
    boxes.push(place);
    return [{ ...words, ...place }];
  });
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
