// The three axes in the order of the placement: click to choose one, drag it or use keys to move it.
import { h } from "../shared/dom.js";
import { movedTo } from "./state.js";
import { placeWords } from "./words.js";

/** @import { Axis, Mesh } from "./state.js" */

const FAR = 5; // pixels until a click is a drag

/** Moves an axis to another place, if there is one. @type {(own: Mesh, axis: Axis, place: number) => void} */
export function move({ shown, choose, frame }, axis, place) {
  if (place < 0 || place > 2) return;
  choose({ order: movedTo(shown.now.controls.order, axis, place) });
  frame.say(`${axis}: ${placeWords(shown.now.controls, axis)}.`);
}

/** Chooses the next axis; if an axis has the focus, it moves along. @type {(own: Mesh) => void} */
export function next({ shown, frame }) {
  const names = shown.now.data.axes.map(([axis]) => axis);
  const axis = names[(names.indexOf(shown.now.axis) + 1) % names.length];
  shown.show({ axis });
  /** @type {(rest: string) => HTMLElement | null} */
  const chip = (rest) => /** @type {HTMLElement | null} */ (frame.body.querySelector(`.dlv-meshchip${rest}`));
  if (chip(":focus")) chip(`[data-axis="${axis}"]`)?.focus();
}

/** @type {(own: Mesh) => HTMLElement} */
export function axesBar(own) {
  const { shown } = own;
  const { now } = shown;
  const chips = now.data.axes.map(([axis, title]) => chip(own, axis, title));
  shown.paints(["controls", "axis", "live"], () => {
    const order = now.controls.order.split(",");
    for (const one of chips) {
      const axis = /** @type {Axis} */ (one.dataset.axis);
      const place = order.indexOf(axis);
      one.dataset.place = String(place);
      one.style.order = String(place);
      one.setAttribute("aria-pressed", String(axis === now.axis));
      one.setAttribute("aria-label", `${axis} × ${now.controls[axis]}: ${placeWords(now.controls, axis)}`);
    }
  });
  return h("div", { class: "dlv-meshaxes", role: "group", "aria-label": "the placement: drag an axis, or ← →" },
    h("span", {}, "ranks lie furthest apart"), h("span", { class: "dlv-meshchips" }, chips),
    h("span", {}, "ranks are neighbours"),
    h("span", { class: "dlv-elements" }, "Drag an axis: here, into a node, or between the nodes."));
}

/** @type {(own: Mesh, axis: Axis, title: string) => HTMLElement} */
function chip(own, axis, title) {
  const { shown } = own;
  /** @type {[number, number] | null} */
  let from = null;
  /** @type {Element | null} */
  let onto = null; // the drop target
  const show = () => shown.show({ axis });
  const element = h("button", {
    type: "button", "data-axis": axis, class: "dlv-meshchip", title: `${title} parallel; ← → move it`,
    style: `border-bottom-color: ${shown.now.data.hues[axis]}`,
    onclick: show, onfocus: show, // keys move the focused one
    onpointerdown(/** @type {PointerEvent} */ event) {
      from = [event.clientX, event.clientY];
      element.setPointerCapture(event.pointerId);
    },
    onpointermove(/** @type {PointerEvent} */ event) {
      if (!from) return;
      const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
      if (!element.dataset.dragged && Math.hypot(x, y) < FAR) return;
      element.dataset.dragged = "true";
      element.style.transform = `translate(${x}px, ${y}px)`;
      over(placeUnder(element, event));
    },
    onpointerup() {
      const place = onto?.getAttribute("data-place");
      stop();
      if (place) move(own, axis, Number(place));
    },
    onpointercancel: stop,
  }, `${axis} `, h("span", { class: "dlv-meshlength" }));

  /** @type {(place: Element | null) => void} */
  function over(place) {
    onto?.removeAttribute("data-onto");
    onto = place;
    onto?.setAttribute("data-onto", "");
  }

  function stop() {
    over(null);
    from = null;
    delete element.dataset.dragged;
    element.style.transform = "";
  }

  const length = element.querySelector("span");
  shown.paints(["controls"], () => void (length && (length.textContent = `× ${shown.now.controls[axis]}`)));
  return element;
}

/** The drop target under a dragged element. @type {(element: Element, event: PointerEvent) => Element | null} */
function placeUnder(element, { clientX, clientY }) {
  const around = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  const under = around.elementsFromPoint(clientX, clientY).find((one) => !element.contains(one));
  return under?.closest("[data-place]") ?? null;
}
