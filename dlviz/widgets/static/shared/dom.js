// Elements of a page, and when and how high they are drawn.

/** @typedef {Node | string | number | null | undefined | Child[]} Child */

/**
 * An element with attributes and children. A child that is no element is text, never markup.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes] a listener where the name begins with "on"
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
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

/**
 * The same in SVG.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child != null)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Writes text into an element, but only where it is another one.
 * @param {Element} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * The element that has the focus in the page or the shadow that `element` is in.
 * @param {Element} element
 * @returns {HTMLElement | null}
 */
export function focusedNear(element) {
  const around = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  return /** @type {HTMLElement | null} */ (around.activeElement ?? null);
}

/**
 * Puts something else into a panel; the focus goes to what has the same name there, else to `other`.
 * @param {HTMLElement} panel
 * @param {Child[]} children
 * @param {HTMLElement} [other]
 */
export function refill(panel, children, other) {
  const focused = focusedNear(panel);
  const name = focused && panel.contains(focused) ? focused.getAttribute("aria-label") ?? "" : null;
  panel.replaceChildren(...nodes(children));
  if (name == null) return;
  const same = name && panel.querySelector(`[aria-label="${CSS.escape(name)}"]`);
  const next = /** @type {HTMLElement | undefined} */ (same || other);
  next?.focus({ preventScroll: true });
}

const WHOLE = 640; // pixels: as high as a front end is at most in a notebook, so that a laptop shows all of it

/** The same of a saved page, which fills its window: `--dlv-spare` of dlviz.css. */
function wholeOf(root) {
  return root.closest("[data-page]") ? Math.max(WHOLE, innerHeight - 40) : WHOLE;
}

/**
 * How high a part of `root` may be, so that all of it is no higher than that; `least` anyhow.
 * @param {Element} root
 * @param {Element} part
 * @param {number} least pixels
 * @returns {number} pixels
 */
export function roomFor(root, part, least) {
  const [whole, own] = [root, part].map((one) => one.getBoundingClientRect().height);
  return Math.max(least, Math.floor(wholeOf(root) - whole + own));
}

/**
 * Calls `draw` once before the next picture, however often it is asked to.
 * @param {() => void} draw
 * @returns {(() => void) & { cancel: () => void }}
 */
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
