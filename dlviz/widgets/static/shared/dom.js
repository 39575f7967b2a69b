// Elements of a page; when and how high they are drawn.

/** @typedef {Node | string | number | null | undefined | Child[]} Child */

/** An element with attributes and children. Other children become text, never markup; an attribute whose name begins
 * with "on" is a listener.
 * @type {<T extends keyof HTMLElementTagNameMap>(tag: T, attributes?: Record<string, any>, ...children: Child[]) =>
 *   HTMLElementTagNameMap[T]} */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element; see `h`.
 * @type {<T extends keyof SVGElementTagNameMap>(tag: T, attributes?: Record<string, any>, ...children: Child[]) =>
 *   SVGElementTagNameMap[T]} */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...nodes(children));
  return element;
}

/** @type {(children: Child[]) => Node[]} */
function nodes(children) {
  return /** @type {Child[]} */ (children.flat(/** @type {1} */ (Infinity))).filter((child) => child != null)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Writes text into an element if it differs. @type {(element: Element, text: string) => void} */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The focused element in the page or shadow root of `element`. @type {(element: Element) => HTMLElement | null} */
export function focusedNear(element) {
  const around = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  return /** @type {HTMLElement | null} */ (around.activeElement ?? null);
}

/** Replaces the children of a panel; the focus goes to the child of the same name, else to `other`.
 * @type {(panel: HTMLElement, children: Child[], other?: HTMLElement) => void} */
export function refill(panel, children, other) {
  const focused = focusedNear(panel);
  const name = focused && panel.contains(focused) ? focused.getAttribute("aria-label") ?? "" : null;
  panel.replaceChildren(...nodes(children));
  if (name == null) return;
  const same = name && panel.querySelector(`[aria-label="${CSS.escape(name)}"]`);
  const next = /** @type {HTMLElement | undefined} */ (same || other);
  next?.focus({ preventScroll: true });
}

const WHOLE = 640; // pixels: the most that a front end takes in a notebook, so that a laptop shows all of it

/** WHOLE, or on a saved page the height of its window: `--dlv-spare` of dlviz.css. @type {(root: Element) => number} */
function wholeOf(root) {
  return root.closest("[data-page]") ? Math.max(WHOLE, innerHeight - 40) : WHOLE;
}

/** How many pixels high a part of `root` may be, so that `root` fits; at least `least`.
 * @type {(root: Element, part: Element, least: number) => number} */
export function roomFor(root, part, least) {
  const [whole, own] = [root, part].map((one) => one.getBoundingClientRect().height);
  return Math.max(least, Math.floor(wholeOf(root) - whole + own));
}

/** Calls `draw` once before the next frame, however often it is called.
 * @type {(draw: () => void) => (() => void) & { cancel: () => void }} */
export function oncePerPicture(draw) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  ask.cancel = () => {
    cancelAnimationFrame(asked);
    asked = 0;
  };
  return ask;
}
