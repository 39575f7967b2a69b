// The whole run in a small picture, with a window around the part in view.
import { clamp } from "../shared/arrays.js";
import { h } from "../shared/dom.js";
import { paintWhole } from "../shared/gantt/paint.js";

/** @import { Timeline } from "./context.js" */

const [ROW, LEAST, MOST] = [4, 18, 34]; // pixels: of a row; of all rows

/** @type {(own: Timeline) => HTMLElement} */
export function minimap({ shown, clock, part }) {
  const { now } = shown;
  const canvas = h("canvas", { role: "img", "aria-label": "the whole run" });
  const inView = h("div", { class: "dlv-window" });
  const element = h("div", { class: "dlv-minimap" }, canvas, inView);

  /** @type {(event: PointerEvent) => void} */
  const move = (event) => {
    const box = element.getBoundingClientRect();
    const time = clock().low + ((event.clientX - box.left) / box.width) * (clock().high - clock().low);
    part.centre(time, time);
  };
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    move(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (element.hasPointerCapture(event.pointerId)) move(event);
  });

  let width = 0; // while a notebook hides the picture, its last width
  shown.paints(["clock", "scene", "look"], () => {
    const height = clamp(ROW * now.scene.shown.length, LEAST, MOST);
    element.style.height = `${height}px`;
    width = element.clientWidth || width;
    if (width && now.look) paintWhole(canvas, now.scene, clock(), width, height, now.look);
  });
  shown.paints(["clock", "from", "to"], () => {
    const { low, high } = clock();
    /** @type {(time: number) => number} */
    const share = (time) => clamp((time - low) / (high - low), 0, 1) * 100;
    inView.style.left = `${share(now.from)}%`;
    inView.style.width = `${Math.max(share(now.to) - share(now.from), 0.3)}%`;
  });
  return element;
}
