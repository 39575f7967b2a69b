// Paints the drawing board's list as SVG, on the page and as a file: every colour is in the element.
import { s } from "../shared/dom.js";
import { drawList, layoutOf } from "./geometry.js";
import { tile } from "../shared/paint.js";

const NAMES = 52; // pixels of the ranks' names in a file
const WRONG = "#D55E00"; // what breaks a rule
const IDLE = { waiting: "\\", choice: ".", done: "" }; // the pattern of each cause of idle time

const painted = new WeakMap(); // of each grid what it shows, by what that was made of

/** Paints the board; what looks as it did stays as it is. `idle` is the style of idle time. */
export function paintBoard({ grid, names, list, layout, colors, shades, idle, prefix, cursor, brush, chosen, faded, advised }) {
  const is = (one, cell) => Boolean(one && one.action === cell.action && one.rank === cell.rank && one.slot === cell.slot);
  const look = JSON.stringify([colors, shades, layout]);
  const last = painted.get(grid);
  const before = last?.look === look ? last.parts : new Map();
  const parts = new Map();
  const keep = (make, ...what) => {
    const key = JSON.stringify([make.name, what]);
    const part = before.get(key) ?? make(...what);
    parts.set(key, part);
    return part;
  };
  const back = () => s("g", {}, patterns(shades, idle, prefix), ground(list, layout, colors));
  const area = (one) => idleOf(one, idle, prefix);
  const ghost = (one, marked) => ghostOf(one, colors, marked);
  const more = ({ x, y, width, height, count }) => text(x + width + 3, y + height - 6, `+${count}`, colors.faint, "start", 10);
  const cell = (one, marks) => cellOf(one, shades, colors, prefix, marks);
  size(grid, layout.width, layout.height);
  if (before.size === 0) {
    size(names, NAMES, layout.height);
    names.replaceChildren(...list.rows.map(({ rank, middle }) => text(NAMES - 6, middle, `rank ${rank}`, colors.ink, "end")));
  }
  const layers = last?.layers ?? Array.from({ length: 5 }, () => s("g", {}));
  if (!last) grid.replaceChildren(...layers);
  const shown = [
    [keep(back)],
    list.idle.map((one) => keep(area, one)),
    [...list.ghosts.shown.map((one) => keep(ghost, one, is(advised, one.ghost))), ...list.ghosts.more.map((one) => keep(more, one))],
    list.cells.map((one) => keep(cell, one, { chosen: is(chosen, one.cell), faded: is(faded, one.cell) })),
    [cursorOf(cursor, colors), ...(brush ? [brushOf(brush, colors)] : [])],
  ];
  layers.forEach((layer, i) => fill(layer, shown[i]));
  painted.set(grid, { look, parts, layers });
}

/** Makes `nodes` the children of a layer, touching those alone that were not. */
function fill(layer, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...layer.childNodes]) if (!wanted.has(child)) child.remove();
  let at = layer.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else layer.insertBefore(node, at);
  }
}

function cursorOf({ x, y, width, height }, colors) {
  return s("rect", { class: "dlv-boardcursor", x: x + 1, y: y - 2, width: width - 2, height: height + 4, fill: "none", stroke: colors.ink, "stroke-width": 2, rx: 3 });
}

function brushOf({ x, y, width, height, label }, colors) {
  return s("g", { class: "dlv-boardbrush" },
    s("rect", { x: x + 1, y: y + 1, width: width - 2, height: height - 2, fill: colors.paper, "fill-opacity": 0.6, stroke: "#0072B2", "stroke-width": 2.4, "stroke-dasharray": "2 2", rx: 3 }),
    text(x + width / 2, y + height / 2, label, colors.ink));
}

/** The board as an SVG of its own. */
export function savedBoard(state, colors, { font, kinds }) {
  const layout = layoutOf({ ...state, columns: Math.max(state.end, 1) }, 0, Infinity);
  layout.width = (layout.columns = Math.max(state.end, 1)) * layout.slot;
  const list = drawList(state, layout, false);
  const svg = s("svg", { xmlns: "http://www.w3.org/2000/svg", style: `font-family: ${font}; font-size: 12px` });
  size(svg, NAMES + layout.width + 8, layout.height);
  svg.append(
    s("title", {}, state.verdict),
    patterns(state.shades, kinds.idle, "dlv"),
    s("rect", { width: "100%", height: "100%", fill: colors.paper }),
    ...list.rows.map(({ rank, middle }) => text(NAMES - 6, middle, `rank ${rank}`, colors.ink, "end")),
    s("g", { transform: `translate(${NAMES} 0)` },
      ground(list, layout, colors),
      list.idle.map((area) => idleOf(area, kinds.idle, "dlv")),
      list.cells.map((cell) => cellOf(cell, state.shades, colors, "dlv", {}))),
  );
  return svg;
}

/** A small picture of a kind or of a cause of idle time, for a legend or a button. */
export function sampleOf({ kind, chunk = 0, cause }, shades, idle, prefix) {
  const own = `${prefix}${kind ?? cause}${chunk}`;
  const style = cause ? { ...idle, pattern: IDLE[cause] } : shades[kind][chunk];
  return s("svg", { width: 16, height: 12, "aria-hidden": "true" },
    s("defs", {}, tile(style, own)),
    s("rect", { x: 0.5, y: 0.5, width: 15, height: 11, fill: `url(#${own})`, stroke: style.edge, "stroke-width": 1 }));
}

function size(svg, width, height) {
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
}

function patterns(shades, idle, prefix) {
  return s("defs", {},
    Object.entries(shades).map(([kind, styles]) => styles.map((style, chunk) => tile(style, `${prefix}-${kind}${chunk}`))),
    Object.entries(IDLE).map(([cause, pattern]) => tile({ ...idle, pattern }, `${prefix}-${cause}`)));
}

function ground(list, layout, colors) {
  return [
    ...list.rows.map(({ y, height }) => s("rect", { x: 0, y, width: layout.width, height, fill: "none", stroke: colors.grid, "stroke-width": 1 })),
    ...list.marks.map(({ x, slot }) => s("g", {},
      s("path", { d: `M${x + 0.5} 16V${layout.height}`, stroke: colors.grid, "stroke-width": 1 }),
      text(x + 3, 9, String(slot), colors.faint, "start", 11))),
  ];
}

function idleOf({ x, y, width, height, area }, idle, prefix) {
  return s("rect", { class: "dlv-boardidle", "data-cause": area.cause, x: x + 1, y: y + 3, width: Math.max(1, width - 2), height: height - 6, fill: `url(#${prefix}-${area.cause})`, stroke: idle.edge, "stroke-width": 0.6 });
}

function ghostOf({ x, y, width, height, label, ghost }, colors, advised) {
  return s("g", { class: "dlv-boardghost dlv-boardpiece", "data-action": ghost.action },
    s("rect", { x: x + 1.5, y: y + 1, width: width - 3, height: height - 2, rx: 3, fill: colors.paper, "fill-opacity": 0.8, stroke: advised ? "#0072B2" : colors.faint, "stroke-width": advised ? 3 : 1.4, "stroke-dasharray": "4 3" }),
    text(x + width / 2, y + height / 2, label, colors.ink, "middle", height < 16 ? 10 : 11));
}

function cellOf({ x, y, width, height, parts, cell, faulty, pending }, shades, colors, prefix, { chosen, faded }) {
  const group = s("g", { class: "dlv-boardcell dlv-boardpiece", "data-action": cell.action, "data-rank": cell.rank, "data-slot": cell.slot, opacity: faded ? 0.35 : pending ? 0.8 : null },
    parts.map((part) => {
      const style = shades[part.kind][part.chunk];
      const [x, y, half] = [part.x + part.width / 2, part.y + part.height / 2, 4 * part.label.length + 1];
      return [
        s("rect", { x: part.x + 0.5, y: part.y + 0.5, width: part.width - 1, height: part.height - 1, rx: 3, fill: `url(#${prefix}-${part.kind}${part.chunk})`, stroke: style.edge, "stroke-width": 1 }),
        style.pattern ? s("rect", { x: x - half, y: y - 7.5, width: 2 * half, height: 15, rx: 3, fill: style.color }) : null,
        text(x, y, part.label, style.ink, "middle", 11.5),
      ];
    }));
  if (faulty) {
    const outline = { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 3, fill: "none" };
    group.append(
      s("rect", { ...outline, stroke: "#FFFFFF", "stroke-width": 4 }),
      s("rect", { class: "dlv-boardfault", ...outline, stroke: WRONG, "stroke-width": 3, "stroke-dasharray": "5 2" }),
      s("circle", { cx: x + width - 7, cy: y + 1, r: 7, fill: WRONG, stroke: "#FFFFFF", "stroke-width": 1.5 }),
      text(x + width - 7, y + 1.5, "!", "#000000", "middle", 11));
  }
  if (chosen) group.append(s("rect", { class: "dlv-boardchosen", x: x - 0.5, y: y - 0.5, width: width + 1, height: height + 1, rx: 4, fill: "none", stroke: colors.ink, "stroke-width": 3 }));
  return group;
}

function text(x, y, words, color, anchor = "middle", points = 12) {
  return s("text", { x, y, style: `fill: ${color}; font-size: ${points}px; text-anchor: ${anchor}; dominant-baseline: central` }, words);
}
