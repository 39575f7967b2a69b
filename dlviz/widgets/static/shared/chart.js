// Common parts of SVG charts: size, axes, lines, the mark of a measurement, the point under the pointer.
import { s } from "./dom.js";

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Box pixels */
/** @typedef {{ value: number, at: number }} Mark of an axis */

/** Gives a picture a size. @type {(svg: SVGElement, width: number, height: number) => void} */
export function sized(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", String(height));
}

/** Fits a picture into the element around it; returns its width.
 * @type {(svg: SVGElement, width: number, height: number) => number} */
export function fitted(svg, width, height) {
  const own = Math.max(300, width);
  sized(svg, own, height);
  return own;
}

/** The place of an event in the picture's pixels.
 * @type {(svg: SVGSVGElement, event: MouseEvent) => [number, number]} */
export function pointIn(svg, { clientX, clientY }) {
  const box = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / box.width;
  return [(clientX - box.left) * scale, (clientY - box.top) * scale];
}

/** The index of the point nearest to another, within `reach` pixels; -1 if there is none.
 * @type {(points: number[][], to: number[], reach: number) => number} */
export function nearestPoint(points, [px, py], reach) {
  let [best, least] = [-1, reach ** 2];
  points.forEach(([x, y], i) => {
    const away = (x - px) ** 2 + (y - py) ** 2;
    if (away < least) [best, least] = [i, away];
  });
  return best;
}

/** The lines of two axes. @type {(box: Box, across: Mark[], up: Mark[]) => SVGElement} */
export function grid({ left, right, top, bottom }, across, up) {
  return s("g", { class: "dlv-axis" },
    across.map(({ at }) => s("path", { d: `M${at} ${top}V${bottom}` })),
    up.map(({ at }) => s("path", { d: `M${left} ${at}H${right}` })));
}

/** Values below a picture.
 * @type {(box: Pick<Box, "bottom">, marks: Mark[], said?: (value: number) => string, kind?: string) => SVGElement[]} */
export function below({ bottom }, marks, said = String, kind) {
  return marks.map(({ value, at }) => s("text", { x: at, y: bottom + 13, class: kind }, said(value)));
}

/** Values beside a picture.
 * @type {(box: Pick<Box, "left">, marks: Mark[], said?: (value: number) => string) => SVGElement[]} */
export function beside({ left }, marks, said = String) {
  return marks.map(({ value, at }) => s("text", { x: left - 6, y: at, class: "dlv-left" }, said(value)));
}

const HIGH = 12; // pixels of a line of text

/** Places labels within `box` so that none covers another, or one of `taken`: each at the first free one of its
 * `places` (centres, best first). Labels without room are left out.
 * @type {<Words extends { width: number, places: number[][] }>(all: Words[], box: Box, taken?: Box[]) => (Words &
 *   Box & { x: number, y: number })[]} */
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

/** A line through points. @type {(points: number[][]) => string} */
export function lineThrough(points) {
  return `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
}

/** The mark of a measurement. @type {(x: number, y: number, title?: string) => SVGElement} */
export function cross(x, y, title) {
  const d = `M${x - 6} ${y - 6}l12 12m0-12l-12 12`;
  return s("path", { class: "dlv-measured", d }, title ? s("title", {}, title) : null);
}
