// A canvas context that draws SVG, so that the same code paints on screen and into a file.
import { s } from "./dom.js";
import { tile } from "./paint.js";

/** @import { Make } from "./paint.js" */
/** @import { Style } from "./theme.js" */

/** @typedef {Record<string, any>} Attributes */
/** @typedef {[tag: string, attributes: Attributes, text?: string]} Leaf */
/** @typedef {{ attributes: Attributes, children: (Group | Leaf)[] }} Group */

/** The supported part of a context, the `tile` of a style, and what was drawn.
 * @typedef {Pick<CanvasRenderingContext2D, "fillStyle" | "strokeStyle" | "lineWidth" | "globalAlpha" | "font" |
 *   "textAlign" | "textBaseline" | "beginPath" | "moveTo" | "lineTo" | "closePath" | "rect" | "arc" | "fill" |
 *   "stroke" | "fillRect" | "strokeRect" | "fillText" | "strokeText" | "save" | "restore" | "clip" | "translate"> &
 *   { measureText: (words: string) => { width: number }, tile: (style: Style) => string, done: () => any }} Vector */

/** @type {Record<string, string>} */
const ANCHORS = { left: "start", center: "middle", right: "end" };
const FOREIGN = /[^\t\n\r\x20-\uFFFD]/g; // characters that XML forbids
const CHARACTER = 0.55; // of a font's size: the width of a character where nothing can measure it

/** The context; `done()` returns what was drawn. It supports only what is drawn with. The ids of its patterns and
 * clips begin with `prefix`, unique in a file.
 * @type {(prefix: string, make?: Make) => CanvasRenderingContext2D & Vector} */
export function vector(prefix, make = s) {
  const root = /** @type {Group} */ ({ attributes: {}, children: [] });
  /** @type {Map<string, { id: string, element: any }>} */
  const defs = new Map();
  const used = new Set();
  /** @type {{ group: Group, look: object }[]} */
  const saved = [];
  let [group, path] = [root, ""];

  /** @type {(tag: string, attributes: Attributes, text?: string) => void} */
  const add = (tag, attributes, text) => {
    used.add(attributes.fill);
    group.children.push([tag, { ...attributes, opacity: alpha(context.globalAlpha) }, text]);
  };
  /** @type {(attributes: Attributes) => void} */
  const inside = (attributes) => {
    used.add(attributes["clip-path"]);
    /** @type {Group} */
    const inner = { attributes, children: [] };
    group.children.push(inner);
    group = inner;
  };
  /** @type {(key: string, define: (id: string) => any) => string} */
  const defined = (key, define) => {
    const id = defs.get(key)?.id ?? `${prefix}${defs.size}`;
    if (!defs.has(key)) defs.set(key, { id, element: define(id) });
    return `url(#${id})`;
  };
  const stroked = () => ({ fill: "none", stroke: context.strokeStyle, "stroke-width": context.lineWidth });
  /** @type {(x: number, y: number, width: number, height: number) => Attributes} */
  const boxed = (x, y, width, height) => ({ x: round(x), y: round(y), width: round(width), height: round(height) });
  /** @type {(words: string, x: number, y: number, look: Attributes) => void} */
  const text = (words, x, y, look) => add("text", {
    x: round(x), y: round(y), "text-anchor": ANCHORS[context.textAlign], "dominant-baseline": "central",
    ...fontOf(context.font), ...look,
  }, String(words).replace(FOREIGN, "\uFFFD"));

  /** @type {Vector} */
  const context = {
    fillStyle: "", strokeStyle: "", lineWidth: 1, globalAlpha: 1, font: "", textAlign: "left", textBaseline: "middle",
    beginPath: () => void (path = ""),
    moveTo: (x, y) => void (path += `M${round(x)} ${round(y)}`),
    lineTo: (x, y) => void (path += `L${round(x)} ${round(y)}`),
    closePath: () => void (path += "Z"),
    rect(x, y, width, height) {
      path += `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}Z`;
    },
    arc(x, y, r) { // a whole circle
      path += `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
    },
    fill: () => add("path", { d: path, fill: context.fillStyle }),
    stroke: () => add("path", { d: path, ...stroked() }),
    fillRect: (...box) => add("rect", { ...boxed(...box), fill: context.fillStyle }),
    strokeRect: (...box) => add("rect", { ...boxed(...box), ...stroked() }),
    fillText: (words, x, y) => text(words, x, y, { fill: context.fillStyle }),
    strokeText: (words, x, y) => text(words, x, y, stroked()),
    measureText: (words) => ({ width: measured(words, context.font) }),
    save: () => void saved.push({ group, look: { ...context } }),
    restore() {
      const before = saved.pop();
      if (!before) return;
      group = before.group;
      Object.assign(context, before.look);
    },
    clip() {
      const d = path;
      inside({ "clip-path": defined(`clip ${d}`, (id) => make("clipPath", { id }, make("path", { d }))) });
    },
    translate: (x, y) => inside({ transform: `translate(${round(x)} ${round(y)})` }),
    tile: (style) => defined(JSON.stringify(style), (id) => tile(style, id, make)),
    done() {
      const needed = [...defs.values()].filter(({ id }) => used.has(`url(#${id})`));
      return made(make, root, needed.map(({ element }) => element));
    },
  };
  return /** @type {any} */ (context);
}

/** @type {(make: Make, group: Group, defs: any[]) => any} */
function made(make, { attributes, children }, defs) {
  const drawn = children.map((child) => (Array.isArray(child) ? make(...child) : made(make, child, [])));
  return make("g", attributes, defs.length ? make("defs", {}, defs) : null, drawn);
}

/** @type {(value: number) => number | null} */
function alpha(value) {
  return value === 1 ? null : value;
}

/** @type {(value: number) => number} */
function round(value) {
  return Math.round(value * 100) / 100;
}

/** @type {(font: string) => { "font-size": string, "font-weight": string }} */
function fontOf(font) {
  const [, weight, size] = font.match(/^(?:(\d+) )?([\d.]+)px/) ?? [];
  return { "font-size": size, "font-weight": weight };
}

/** @type {(words: string, font: string) => number} */
function measured(words, font) {
  const ruler = globalThis.document?.createElement("canvas").getContext("2d");
  if (!ruler) return String(words).length * CHARACTER * Number(fontOf(font)["font-size"]);
  ruler.font = font;
  return ruler.measureText(words).width;
}
