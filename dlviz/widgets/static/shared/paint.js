// Paints a style: on a canvas, sharp on any screen, as an SVG pattern or as a swatch. Paints arrows.
import { s } from "./dom.js";

/** @import { Colors, Style } from "./theme.js" */

/** Sizes a canvas in CSS pixels; returns its context, with one unit a CSS pixel.
 * @type {(canvas: HTMLCanvasElement, width: number, height: number) => CanvasRenderingContext2D} */
export function sized(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = contextOf(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** @type {(canvas: HTMLCanvasElement) => CanvasRenderingContext2D} */
function contextOf(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This page has no canvas to draw on.");
  return context;
}

/** @typedef {{ width: number, height: number, paint: (context: CanvasRenderingContext2D) => void }} Painting */

/** @type {WeakMap<Element, Painting>} */
const paintings = new WeakMap();

/** Paints a canvas of this size; a file repeats the painting.
 * @type {(canvas: HTMLCanvasElement, width: number, height: number, paint: Painting["paint"]) => void} */
export function painted(canvas, width, height, paint) {
  paintings.set(canvas, { width, height, paint });
  paint(sized(canvas, width, height));
}

/** The last painting of a canvas. @type {(canvas: Element) => Painting | undefined} */
export function paintingOf(canvas) {
  return paintings.get(canvas);
}

const TILE = 7; // pixels between two lines of a pattern
/** @type {Record<string, number[][]>} */
const LINES = {
  "/": [[0, TILE, TILE, 0], [-1, 1, 1, -1], [TILE - 1, TILE + 1, TILE + 1, TILE - 1]],
  "\\": [[0, 0, TILE, TILE], [-1, TILE - 1, 1, TILE + 1], [TILE - 1, -1, TILE + 1, 1]],
  "-": [[0, TILE / 2, TILE, TILE / 2]],
  x: [[0, 0, TILE, TILE], [0, TILE, TILE, 0]],
  "+": [[0, TILE / 2, TILE, TILE / 2], [TILE / 2, 0, TILE / 2, TILE]],
};

/** The fill of a style. @type {(context: CanvasRenderingContext2D, style: Style) => string | CanvasPattern} */
export function fill(context, style) {
  if (!style.pattern) return style.color;
  if ("tile" in context) return /** @type {any} */ (context).tile(style); // of vector.js
  const ratio = globalThis.devicePixelRatio || 1;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(TILE * ratio);
  const own = contextOf(tile);
  own.scale(tile.width / TILE, tile.width / TILE);
  own.fillStyle = style.color;
  own.fillRect(0, 0, TILE, TILE);
  own.strokeStyle = own.fillStyle = style.line;
  own.lineWidth = 1.1;
  if (style.pattern === ".") {
    own.beginPath();
    own.arc(TILE / 2, TILE / 2, 1.2, 0, 7);
    own.fill();
  } else {
    for (const [x1, y1, x2, y2] of LINES[style.pattern] ?? []) {
      own.beginPath();
      own.moveTo(x1, y1);
      own.lineTo(x2, y2);
      own.stroke();
    }
  }
  const pattern = context.createPattern(tile, "repeat");
  pattern?.setTransform?.(new DOMMatrix().scale(1 / ratio));
  return pattern ?? style.color;
}

/** @typedef {(tag: any, attributes: any, ...children: any[]) => any} Make makes an element, or its text */

/** The fill as an SVG pattern with this id: an element, or text for a file.
 * @type {(style: Style, id: string, make?: Make) => any} */
export function tile({ color, pattern, line }, id, make = s) {
  const lines = LINES[pattern] ?? [];
  const ground = !color.startsWith("rgba"); // else only its lines
  return make("pattern", { id, width: TILE, height: TILE, patternUnits: "userSpaceOnUse" },
    ground ? make("rect", { width: TILE, height: TILE, fill: color }) : null,
    pattern === "." ? make("circle", { cx: TILE / 2, cy: TILE / 2, r: 1.2, fill: line }) : null,
    lines.map(([x1, y1, x2, y2]) =>
      make("path", { d: `M${x1} ${y1}L${x2} ${y2}`, stroke: line, "stroke-width": 1.1 })));
}

/** The fills of an SVG by the names of their styles; it has to contain `defs`, the patterns of `names`.
 * @type {(styles: Style[] | Record<string, Style>, names?: string[]) => { defs: SVGElement, of: (name: string |
 *   number) => string }} */
export function fills(styles, names = Object.keys(styles)) {
  const own = /** @type {Record<string, Style>} */ ({ ...styles });
  const id = Math.random().toString(36).slice(2); // patterns need names unique on the page
  const patterned = names.filter((name) => own[name].pattern);
  return {
    defs: s("defs", {}, patterned.map((name) => tile(own[name], `${id}-${name}`))),
    of: (name) => (own[name].pattern ? `url(#${id}-${name})` : own[name].color),
  };
}

/** A small picture of a style, for a legend. @type {(style: Style) => HTMLCanvasElement} */
export function swatch(style) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  painted(canvas, 14, 12, (context) => {
    context.fillStyle = fill(context, style);
    context.fillRect(0, 0, 14, 12);
    context.strokeStyle = style.edge;
    context.strokeRect(0.5, 0.5, 13, 11);
  });
  return canvas;
}

/** The critical path: bold boxes around its spans, joined by lines, with a halo.
 * @type {(context: CanvasRenderingContext2D, boxes: { x: number, y: number, width: number, height: number, line?: {
 *   x1: number, y1: number, x2: number, y2: number } }[], colors: Colors) => void} */
export function boldPath(context, boxes, colors) {
  /** @type {[string, number][]} */
  const strokes = [[colors.paper, 5], [colors.ink, 2.6]];
  for (const [color, width] of strokes) {
    context.beginPath();
    for (const { x, y, width: wide, height, line } of boxes) {
      context.rect(x, y, wide, height);
      if (!line) continue;
      context.moveTo(line.x1, line.y1);
      context.lineTo(line.x2, line.y2);
    }
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke();
  }
}

/** Adds a cross to a path. @type {(context: CanvasRenderingContext2D, x: number, y: number) => void} */
function cross(context, x, y) {
  for (const [dx, dy] of [[4, 4], [4, -4]]) {
    context.moveTo(x - dx, y - dy);
    context.lineTo(x + dx, y + dy);
  }
}

/** An upright line with a cross at its middle.
 * @type {(context: CanvasRenderingContext2D, line: { x: number, top: number, bottom: number }, color: string, halo:
 *   string) => void} */
export function crossedLine(context, { x, top, bottom }, color, halo) {
  /** @type {[string, number][]} */
  const strokes = [[halo, 4.4], [color, 2.6]];
  for (const [style, width] of strokes) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    cross(context, x, (top + bottom) / 2);
    context.stroke();
  }
}

/** An arrow from (x1, y1) to (x2, y2), or a line that ends in a cross.
 * @type {(context: CanvasRenderingContext2D, line: { x1: number, y1: number, x2: number, y2: number, never?: boolean
 *   }, color: string, halo: string, width?: number) => void} */
export function arrow(context, { x1, y1, x2, y2, never }, color, halo, width = 1.2) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const head = 7;
  /** @type {[string, number][]} */
  const strokes = [[halo, width + 1.8], [color, width]];
  for (const [style, line] of strokes) {
    context.strokeStyle = context.fillStyle = style;
    context.lineWidth = line;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    if (never) cross(context, x2, y2);
    context.stroke();
    if (never) continue;
    context.beginPath();
    context.moveTo(x2, y2);
    for (const turn of [2.7, -2.7]) {
      context.lineTo(x2 + head * Math.cos(angle + turn), y2 + head * Math.sin(angle + turn));
    }
    context.closePath();
    if (style === halo) context.stroke();
    else context.fill();
  }
  context.beginPath();
  context.arc(x1, y1, 2.2, 0, 7);
  context.fill();
}
