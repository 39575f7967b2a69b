// The tooltip beside the pointer, within the picture.
import { clamp } from "./arrays.js";
import { h } from "./dom.js";

const [ASIDE, UNDER, OVER] = [14, 18, 10]; // pixels from the pointer

/** @typedef {{ element: HTMLElement, show: (event: PointerEvent, lines: string[]) => void, hide: () => void }}
 * Tooltip */

/** A tooltip for `plot`, a positioned element; the caller appends `element` to it.
 * @type {(plot: HTMLElement) => Tooltip} */
export function tooltip(plot) {
  const element = h("div", { class: "dlv-tip", hidden: true, "aria-hidden": "true" });
  return {
    element,
    show(event, lines) {
      element.hidden = false;
      element.replaceChildren(...lines.map((line, i) => h(i ? "div" : "strong", {}, line)));
      const box = plot.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const { offsetWidth: width, offsetHeight: height } = element;
      element.style.left = `${clamp(x + ASIDE, 0, Math.max(box.width - width - 4, 0))}px`;
      const over = y - height - OVER;
      element.style.top = `${y + UNDER + height > box.height && over > 0 ? over : y + UNDER}px`;
    },
    hide() {
      element.hidden = true;
    },
  };
}
