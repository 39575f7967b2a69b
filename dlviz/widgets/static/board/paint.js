// Paints the drawing board as SVG, on the page and as a file: every colour is in the element.
import { s } from "../shared/dom.js";
import { drawList, layoutOf } from "./geometry.js";
import { tile } from "../shared/paint.js";
import { sameAs } from "./state.js";

/** @import { Box, CellBox, GhostBox, IdleBox, Layout, List, MoreBox, PartBox } from "./geometry.js" */
/** @import { BoardState, Place, Style } from "./state.js" */

/** @typedef {Record<string, string>} Colors of the theme, and of the marks on the grid */

/**
 * @typedef {object} Look colours and styles, whatever is drawn
 * @property {Colors} colors
 * @property {Record<string, Style[]>} shades of each kind the style in each chunk
 * @property {Style} idle the style of idle time
 * @property {string} prefix of the names of patterns
 */

/** What is on the grid. `brush`: the action that is about to be placed; `faded`: the action that is being moved.
 * @typedef {{ list: List, layout: Layout, cursor: Box, brush: (Box & { label: string }) | null, chosen: Place |
 *   null, faded: Place | null, advised: Place | null }} Shown */

/** @typedef {{ look: string, parts: Map<string, SVGElement>, layers: SVGElement[] }} Painted */

const NAMES = 52; // pixels of the ranks' names in a file
/** @type {Record<string, string>} */
const IDLE = { waiting: "\\", choice: ".", done: "" }; // the pattern of each cause of idle time

/** @type {WeakMap<SVGElement, Painted>} */
const painted = new WeakMap(); // what each grid shows, by what it was made of

/** Paints the board; unchanged parts stay.
 * @type {(grid: SVGElement, names: SVGElement, look: Look, shown: Shown) => void} */
export function paintBoard(grid, names, look, { list, layout, cursor, brush, chosen, faded, advised }) {
  const { colors, shades } = look;
  const key = JSON.stringify([colors, shades, layout]);
  const last = painted.get(grid);
  const before = last?.look === key ? last.parts : new Map();
  const parts = new Map();
  /** @type {<T extends any[]>(make: (...what: T) => SVGElement, ...what: T) => SVGElement} */
  const reuse = (make, ...what) => {
    const own = JSON.stringify([make.name, what]);
    const part = before.get(own) ?? make(...what);
    parts.set(own, part);
    return part;
  };
  const is = (/** @type {Place | null} */ one, /** @type {Place} */ other) => one != null && sameAs(one)(other);
  const back = () => s("g", {}, patterns(shades, look.idle, look.prefix), ground(list, layout, colors));
  const area = (/** @type {IdleBox} */ one) => idleOf(one, look);
  const ghost = (/** @type {GhostBox} */ one, /** @type {boolean} */ marked) => ghostOf(one, colors, marked);
  const more = (/** @type {MoreBox} */ one) => moreOf(one, colors);
  const cell = (/** @type {CellBox} */ one, /** @type {CellMarks} */ marks) => cellOf(one, look, marks);
  size(grid, layout.width, layout.height);
  if (before.size === 0) {
    size(names, NAMES, layout.height);
    names.replaceChildren(...rankNames(list, colors));
  }
  const layers = last?.layers ?? Array.from({ length: 5 }, () => s("g", {}));
  if (!last) grid.replaceChildren(...layers);
  const { shown, more: hidden } = list.ghosts;
  const nodes = [
    [reuse(back)],
    list.idle.map((one) => reuse(area, one)),
    [...shown.map((one) => reuse(ghost, one, is(advised, one.ghost))), ...hidden.map((one) => reuse(more, one))],
    list.cells.map((one) => reuse(cell, one, { chosen: is(chosen, one.cell), faded: is(faded, one.cell) })),
    [cursorOf(cursor, colors), ...(brush ? [brushOf(brush, colors)] : [])],
  ];
  layers.forEach((layer, i) => fill(layer, nodes[i]));
  painted.set(grid, { look: key, parts, layers });
}

/** The board as a separate SVG.
 * @type {(state: BoardState, colors: Colors, type: { font: string, kinds: Record<string, Style> }) => SVGElement} */
export function savedBoard(state, colors, { font, kinds }) {
  const columns = Math.max(state.end, 1);
  const layout = layoutOf({ ...state, columns }, 0, Infinity);
  Object.assign(layout, { columns, width: columns * layout.slot });
  const look = { colors, shades: state.shades, idle: kinds.idle, prefix: "dlv" };
  const list = drawList(state, layout, false);
  const style = `font-family: ${font}; font-size: 12px`;
  const svg = s("svg", { xmlns: "http://www.w3.org/2000/svg", style },
    s("title", {}, state.verdict),
    patterns(state.shades, kinds.idle, "dlv"),
    s("rect", { width: "100%", height: "100%", fill: colors.paper }),
    rankNames(list, colors),
    s("g", { transform: `translate(${NAMES} 0)` },
      ground(list, layout, colors),
      list.idle.map((area) => idleOf(area, look)),
      list.cells.map((cell) => cellOf(cell, look, { chosen: false, faded: false }))));
  size(svg, NAMES + layout.width + 8, layout.height);
  return svg;
}

/** A small picture of a kind or of a cause of idle time, for a legend or a button.
 * @type {(what: { kind?: string, chunk?: number, cause?: string }, look: Omit<Look, "colors">) => SVGElement} */
export function sampleOf({ kind = "", chunk = 0, cause }, { shades, idle, prefix }) {
  const own = `${prefix}${cause ?? kind}${chunk}`;
  const style = cause ? { ...idle, pattern: IDLE[cause] } : shades[kind][chunk];
  return s("svg", { width: 16, height: 12, "aria-hidden": "true" },
    s("defs", {}, tile(style, own)),
    s("rect", { x: 0.5, y: 0.5, width: 15, height: 11, fill: `url(#${own})`, stroke: style.edge, "stroke-width": 1 }));
}

/** @typedef {{ chosen: boolean, faded: boolean }} CellMarks */

/** Makes `nodes` the children of a layer; touches only those that change.
 * @type {(layer: SVGElement, nodes: SVGElement[]) => void} */
function fill(layer, nodes) {
  /** @type {Set<ChildNode>} */
  const wanted = new Set(nodes);
  for (const child of [...layer.childNodes]) if (!wanted.has(child)) child.remove();
  let at = layer.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else layer.insertBefore(node, at);
  }
}

/** A rectangle inside a box, `aside` pixels from its left and right edges and `above` from the upper and lower ones.
 * @type {(box: Box, aside: number, above: number, attributes: Record<string, any>) => SVGRectElement} */
function inside({ x, y, width, height }, aside, above, attributes) {
  const box = { x: x + aside, y: y + above, width: Math.max(1, width - 2 * aside), height: height - 2 * above };
  return s("rect", { ...box, ...attributes });
}

/** @type {(box: Box, colors: Colors) => SVGRectElement} */
function cursorOf(box, colors) {
  const line = { fill: "none", stroke: colors.ink, "stroke-width": 2, rx: 3 };
  return inside(box, 1, -2, { class: "dlv-boardcursor", ...line });
}

/** @type {(box: Box & { label: string }, colors: Colors) => SVGGElement} */
function brushOf(box, colors) {
  const ground = { fill: colors.paper, "fill-opacity": 0.6 };
  const line = { stroke: colors.hint, "stroke-width": 2.4, "stroke-dasharray": "2 2", rx: 3 };
  return s("g", { class: "dlv-boardbrush" },
    inside(box, 1, 1, { ...ground, ...line }),
    text(box.x + box.width / 2, box.y + box.height / 2, box.label, colors.ink));
}

/** @type {(svg: SVGElement, width: number, height: number) => void} */
function size(svg, width, height) {
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
}

/** @type {(shades: Record<string, Style[]>, idle: Style, prefix: string) => SVGDefsElement} */
function patterns(shades, idle, prefix) {
  return s("defs", {},
    Object.entries(shades).map(([kind, styles]) =>
      styles.map((style, chunk) => tile(style, `${prefix}-${kind}${chunk}`))),
    Object.entries(IDLE).map(([cause, pattern]) => tile({ ...idle, pattern }, `${prefix}-${cause}`)));
}

/** @type {(list: List, colors: Colors) => SVGTextElement[]} */
function rankNames(list, colors) {
  return list.rows.map(({ rank, middle }) => text(NAMES - 6, middle, `rank ${rank}`, colors.ink, "end"));
}

/** @type {(list: List, layout: Layout, colors: Colors) => SVGGElement[]} */
function ground(list, layout, colors) {
  const line = { stroke: colors.grid, "stroke-width": 1 };
  return [
    ...list.rows.map(({ y, height }) => s("rect", { x: 0, y, width: layout.width, height, fill: "none", ...line })),
    ...list.marks.map(({ x, slot }) => s("g", {},
      s("path", { d: `M${x + 0.5} 16V${layout.height}`, ...line }),
      text(x + 3, 9, String(slot), colors.faint, "start", 11))),
  ];
}

/** @type {(box: IdleBox, look: Omit<Look, "colors">) => SVGRectElement} */
function idleOf(box, { idle, prefix }) {
  const { cause } = box.area;
  const style = { fill: `url(#${prefix}-${cause})`, stroke: idle.edge, "stroke-width": 0.6 };
  return inside(box, 1, 3, { class: "dlv-boardidle", "data-cause": cause, ...style });
}

/** @type {(box: GhostBox, colors: Colors, advised: boolean) => SVGGElement} */
function ghostOf(box, colors, advised) {
  const line = { stroke: advised ? colors.hint : colors.faint, "stroke-width": advised ? 3 : 1.4 };
  const points = box.height < 16 ? 10 : 11;
  return s("g", { class: "dlv-boardghost dlv-boardpiece", "data-action": box.ghost.action },
    inside(box, 1.5, 1, { rx: 3, fill: colors.paper, "fill-opacity": 0.8, ...line, "stroke-dasharray": "4 3" }),
    text(box.x + box.width / 2, box.y + box.height / 2, box.label, colors.ink, "middle", points));
}

/** @type {(box: MoreBox, colors: Colors) => SVGTextElement} */
function moreOf({ x, y, width, height, count }, colors) {
  return text(x + width + 3, y + height - 6, `+${count}`, colors.faint, "start", 10);
}

/** @type {(box: CellBox, look: Look, marks: CellMarks) => SVGGElement} */
function cellOf(box, look, { chosen, faded }) {
  const { cell, faulty } = box;
  const data = { "data-action": cell.action, "data-rank": cell.rank, "data-slot": cell.slot };
  const group = s("g", { class: "dlv-boardcell dlv-boardpiece", ...data, opacity: faded ? 0.35 : null },
    box.parts.map((part) => partOf(part, look)), faulty ? faultOf(box, look.colors) : null);
  if (chosen) {
    const line = { fill: "none", stroke: look.colors.ink, "stroke-width": 3 };
    group.append(inside(box, -0.5, -0.5, { class: "dlv-boardchosen", rx: 4, ...line }));
  }
  return group;
}

/** @type {(part: PartBox, look: Look) => (SVGRectElement | SVGTextElement | null)[]} */
function partOf(part, { shades, prefix }) {
  const style = shades[part.kind][part.chunk];
  const [x, y, half] = [part.x + part.width / 2, part.y + part.height / 2, 4 * part.label.length + 1];
  const filled = { fill: `url(#${prefix}-${part.kind}${part.chunk})`, stroke: style.edge, "stroke-width": 1 };
  return [
    inside(part, 0.5, 0.5, { rx: 3, ...filled }),
    style.pattern
      ? s("rect", { x: x - half, y: y - 7.5, width: 2 * half, height: 15, rx: 3, fill: style.color }) : null,
    text(x, y, part.label, style.ink, "middle", 11.5),
  ];
}

/** @type {(box: CellBox, colors: Colors) => (SVGCircleElement | SVGRectElement | SVGTextElement)[]} */
function faultOf(box, colors) {
  const [x, y] = [box.x + box.width - 7, box.y + 1];
  const outline = { rx: 3, fill: "none" };
  const dashed = { stroke: colors.wrong, "stroke-width": 3, "stroke-dasharray": "5 2" };
  return [
    inside(box, 1, 1, { ...outline, stroke: colors.halo, "stroke-width": 4 }),
    inside(box, 1, 1, { class: "dlv-boardfault", ...outline, ...dashed }),
    s("circle", { cx: x, cy: y, r: 7, fill: colors.wrong, stroke: colors.halo, "stroke-width": 1.5 }),
    text(x, y + 0.5, "!", colors.label, "middle", 11),
  ];
}

/** @type {(x: number, y: number, words: string, color: string, anchor?: string, points?: number) => SVGTextElement} */
function text(x, y, words, color, anchor = "middle", points = 12) {
  const type = `font-size: ${points}px; text-anchor: ${anchor}; dominant-baseline: central`;
  return s("text", { x, y, style: `fill: ${color}; ${type}` }, words);
}
