// A front end below its controls as one SVG: charts, rows of bars, sentences and tables, in place.
import { h, s } from "./dom.js";
import { paintingOf } from "./paint.js";
import { vector } from "./vector.js";

/** @import { Painting } from "./paint.js" */

/** @typedef {{ text: string, width: number, height: number }} Saved the text of an SVG file, and its pixels */
/** @typedef {{ x: number, y: number, width: number, height: number }} Place */
/** @typedef {Pick<DOMRect, "left" | "top" | "width" | "height">} Box */
/** @typedef {{ placed: (box: Box) => Place, name: () => string }} On `name` makes an unused name */
/** @typedef {Node | null | Drawn[]} Drawn */

// What the picture leaves out; the room of a band is removed too.
const BANDS = ".dlv-toolbar, .dlv-scrub, .dlv-keys, header > p";
const OUT = `${BANDS}, style, progress, .dlv-tip, .dlv-help, .dlv-spoken, .dlv-probe, .dlv-tabs, .dlv-info,
  .dlv-boardfoot > [role=group]`;
const INHERITED = [ // styles that a chart's element hands to its children
  "fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "paint-order", "text-anchor", "font-size", "font-weight", "visibility",
];
/** @type {Record<string, string>} */
const OWN = { opacity: "1", "dominant-baseline": "auto", "clip-path": "none" }; // other styles, with defaults
const CLEAR = /, 0\)$/; // a colour of no opacity
const PAD = 10; // pixels below the last part

/** The picture of a front end. @type {(root: HTMLElement) => Saved} */
export function pictureOf(root) {
  const whole = root.getBoundingClientRect();
  const bands = [...root.querySelectorAll(BANDS)].map((band) => band.getBoundingClientRect());
  /** @type {(y: number) => number} */
  const up = (y) => y - whole.top - bands.filter(({ bottom }) => bottom <= y + 1)
    .reduce((sum, { height }) => sum + height, 0);
  let [bottom, count] = [0, 0];
  /** @type {On["placed"]} */
  const placed = ({ left, top, width, height }) => {
    bottom = Math.max(bottom, up(top) + height);
    return { x: left - whole.left, y: up(top), width, height };
  };
  const on = { placed, name: () => `c${count++}` };
  const drawn = partsOf(root, on);
  const { backgroundColor, fontFamily } = getComputedStyle(root);
  const [width, height] = [Math.ceil(whole.width), Math.ceil(bottom + PAD)];
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
    s("rect", { width, height, fill: backgroundColor }), s("g", { "font-family": fontFamily }, drawn));
  return { text: new XMLSerializer().serializeToString(svg), width, height };
}

/** An element's box and its contents. @type {(element: Element, on: On) => Drawn} */
function partsOf(element, on) {
  const box = element.getBoundingClientRect();
  if (element.matches(OUT) || !box.width || !box.height) return null;
  const style = getComputedStyle(element);
  if (style.visibility === "hidden") return null;
  if (element instanceof SVGElement) return chart(element, on.placed(box));
  const painting = element.matches("canvas") && paintingOf(element);
  if (painting) return rows(painting, on.placed(box), on.name());
  const inside = element.matches("select") ? wordsIn(element, element.selectedOptions[0]?.text ?? "", on)
    : [...element.childNodes].map((node) => (node instanceof Element ? partsOf(node, on)
      : node instanceof Text ? lines(node, on) : null));
  const parts = [ground(element, style, on), clipped(element, style, inside, on)];
  return style.opacity === "1" ? parts : s("g", { opacity: style.opacity }, parts);
}

/** A copy of a chart that looks the same without CSS. @type {(svg: SVGElement, place: Place) => SVGElement} */
function chart(svg, place) {
  const clone = /** @type {SVGElement} */ (svg.cloneNode(true));
  dress(svg, clone, {});
  for (const [name, value] of Object.entries(place)) clone.setAttribute(name, String(value));
  return clone;
}

/** Copies an element's look into attributes; `around` is its parent's look.
 * @type {(element: Element, copy: Element, around: Record<string, string>) => void} */
function dress(element, copy, around) {
  const style = getComputedStyle(element);
  if (style.display === "none") return copy.remove();
  const look = Object.fromEntries(INHERITED.map((name) => [name, style.getPropertyValue(name)]));
  for (const name of ["class", "style", "role", "tabindex", "aria-label", "aria-hidden"]) copy.removeAttribute(name);
  for (const [name, value] of Object.entries(look)) if (value !== around[name]) copy.setAttribute(name, value);
  for (const [name, usual] of Object.entries(OWN)) {
    const value = style.getPropertyValue(name);
    if (value !== usual) copy.setAttribute(name, value);
  }
  const copies = [...copy.children];
  [...element.children].forEach((child, i) => {
    if (child.matches("style")) copies[i].remove();
    else dress(child, copies[i], look);
  });
}

/** A canvas, painted again as SVG. @type {(painting: Painting, place: Place, name: string) => SVGElement} */
function rows({ width, height, paint }, place, name) {
  const context = vector(`${name}-`);
  paint(context);
  return s("svg", { ...place, viewBox: `0 0 ${width} ${height}` }, context.done());
}

/** The background and the borders of an element.
 * @type {(element: Element, style: CSSStyleDeclaration, on: On) => Drawn} */
function ground(element, style, { placed }) {
  const sides = ["top", "right", "bottom", "left"]
    .map((side) => Number.parseFloat(style.getPropertyValue(`border-${side}-width`)));
  const fill = CLEAR.test(style.backgroundColor) ? "none" : style.backgroundColor;
  if (element.matches(".dlv") || (fill === "none" && sides.every((wide) => !wide))) return null;
  const { x, y, width, height } = placed(element.getBoundingClientRect());
  const [top, right, bottom, left] = sides;
  if (top && sides.every((wide) => wide === top)) {
    const inner = { x: x + top / 2, y: y + top / 2, width: width - top, height: height - top };
    const rx = Math.min(Number.parseFloat(style.borderRadius), width / 2) || null;
    return s("rect", { ...inner, rx, fill, stroke: style.borderTopColor, "stroke-width": top });
  }
  /** @type {(side: string, wide: number, from: number[], along: string) => Drawn} */
  const edge = (side, wide, from, along) => (wide ? s("path", {
    d: `M${from.join(" ")}${along}`, stroke: style.getPropertyValue(`border-${side}-color`), "stroke-width": wide,
    "stroke-dasharray": style.getPropertyValue(`border-${side}-style`) === "dashed" ? `${2 * wide} ${wide}` : null,
  }) : null);
  return [
    fill === "none" ? null : s("rect", { x, y, width, height, fill }),
    edge("top", top, [x, y + top / 2], `h${width}`), edge("left", left, [x + left / 2, y], `v${height}`),
    edge("bottom", bottom, [x, y + height - bottom / 2], `h${width}`),
    edge("right", right, [x + width - right / 2, y], `v${height}`),
  ];
}

/** The visible contents of an element.
 * @type {(element: Element, style: CSSStyleDeclaration, inside: Drawn, on: On) => Drawn} */
function clipped(element, { overflowY, overflowX }, inside, { placed, name }) {
  if (overflowX === "visible" && overflowY === "visible") return inside;
  const id = name();
  return s("g", { "clip-path": `url(#${id})` },
    s("clipPath", { id }, s("rect", placed(element.getBoundingClientRect()))), inside);
}

/** The lines of a text. @type {(text: Text, on: On) => SVGElement[]} */
function lines(text, on) {
  const range = document.createRange();
  /** @type {(Box & { words: string[] })[]} */
  const found = [];
  for (const { index, 0: word } of text.data.matchAll(/\S+/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    const { left, top, width, height } = range.getBoundingClientRect();
    const last = found.at(-1);
    if (last && Math.abs(last.top - top) < 2) last.words.push(word);
    else if (width) found.push({ left, top, width, height, words: [word] });
  }
  const element = /** @type {Element} */ (text.parentElement);
  return found.map(({ words, ...box }) => line(element, words.join(" "), on.placed(box)));
}

/** The text of a control. @type {(control: Element, words: string, on: On) => SVGElement} */
function wordsIn(control, words, { placed }) {
  const { x, ...box } = placed(control.getBoundingClientRect());
  return line(control, words, { x: x + Number.parseFloat(getComputedStyle(control).paddingLeft), ...box });
}

/** @type {(element: Element, words: string, place: Omit<Place, "width">) => SVGElement} */
function line(element, words, { x, y, height }) {
  const { color, fontSize, fontWeight, fontStyle, fontFamily } = getComputedStyle(element);
  const look = {
    fill: color, "font-size": fontSize, "font-weight": fontWeight === "400" ? null : fontWeight,
    "font-style": fontStyle === "normal" ? null : fontStyle,
    "font-family": fontFamily.includes("monospace") ? fontFamily : null,
  };
  return s("text", { x, y: y + height / 2, "dominant-baseline": "central", ...look }, words);
}

/** Prints a picture on a page of its size; the browser's dialog can save it as PDF. `refused` is called if this page
 * may not print. @type {(saved: Saved, title: string, refused: () => void) => void} */
export function print({ text, width, height }, title, refused) {
  const page = `@page { size: ${width}px ${height}px; margin: 0 } body { margin: 0 } svg { display: block }`;
  const frame = h("iframe", {
    class: "dlv-printed", "aria-hidden": "true", tabindex: "-1",
    srcdoc: `<!doctype html><meta charset="utf-8"><title>${title}</title><style>${page}</style>${text}`,
    style: "position: fixed; width: 0; height: 0; border: 0",
  });
  frame.addEventListener("load", () => {
    let began = false;
    frame.contentWindow?.addEventListener("beforeprint", () => (began = true));
    frame.contentWindow?.print();
    if (!began) refused();
  });
  document.querySelector("iframe.dlv-printed")?.remove(); // the previous one: a browser may print after print() returns
  document.body.append(frame);
}
