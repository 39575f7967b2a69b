// What is in view of a timeline as one SVG text: bars as rectangles, text as text, nothing from elsewhere.
import { AXIS } from "./timeline_paint.js";

const TILE = 7; // pixels of a pattern
const LINES = {
  "/": `M0 ${TILE}L${TILE} 0M-1 1L1 -1M${TILE - 1} ${TILE + 1}L${TILE + 1} ${TILE - 1}`,
  "\\": `M0 0L${TILE} ${TILE}M-1 ${TILE - 1}L1 ${TILE + 1}M${TILE - 1} -1L${TILE + 1} 1`,
  "-": `M0 ${TILE / 2}L${TILE} ${TILE / 2}`,
  x: `M0 0L${TILE} ${TILE}M0 ${TILE}L${TILE} 0`,
  "+": `M0 ${TILE / 2}L${TILE} ${TILE / 2}M${TILE / 2} 0L${TILE / 2} ${TILE}`,
  ".": `M${TILE / 2 - 1} ${TILE / 2}L${TILE / 2 + 1} ${TILE / 2}`,
};
const HEADING = 26; // pixels over the picture

function escaped(text) {
  return String(text).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, "�").replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function element(tag, attributes, inner = "") {
  const told = Object.entries(attributes).filter(([, value]) => value != null).map(([name, value]) => ` ${name}="${escaped(value)}"`);
  return `<${tag}${told.join("")}>${inner}</${tag}>`;
}

function rect(x, y, width, height, fill, more = {}) {
  return element("rect", { x: round(x), y: round(y), width: round(width), height: round(height), fill, ...more });
}

function words(x, y, text, fill, more = {}) {
  return element("text", { x: round(x), y: round(y), fill, "font-size": 11, "text-anchor": "middle", "dominant-baseline": "central", ...more }, escaped(text));
}

function round(value) {
  return Math.round(value * 100) / 100;
}

/** The SVG of a draw list, with the title, the axis and the rows' names. */
export function toSvg(scene, list, view, { colors, styles, title }) {
  const top = HEADING + AXIS + scene.above;
  const [width, height] = [view.left + view.width, top + view.height];
  const fills = patterns();
  const inside = (y, tall, name) => `<clipPath id="${name}">${rect(0, y, view.width, tall, "none")}</clipPath>`;
  const drawn = [
    `<g transform="translate(${view.left} ${top})">`,
    `<g clip-path="url(#above)">${list.heads.map((head) => headOf(head, styles, fills)).join("")}</g>`,
    `<g clip-path="url(#rows)">`,
    ...list.idle.map((box) => rect(box.x, box.y, box.width, box.height, fills.of(styles.idle))),
    ...list.gaps.map((box) => rect(box.x, box.y, box.width, box.height, fills.of(styles.gaps))),
    ...barsOf(scene, list.bars, styles, fills),
    ...barsOf(scene, list.found, styles, fills),
    ...list.memory.map(({ corners, base }) => memoryOf(corners, base, colors)),
    ...list.path.map((box) => pathOf(box, colors)),
    ...list.arrows.map((arrow) => arrowOf(arrow, colors.ink, 1.2)),
    ...list.cycle.map((arrow) => arrowOf(arrow, "#d55e00", 2.6)),
    ...list.labels.map(({ text, x, y, size, span }) => words(x, y, text, styles.of[scene.kindOf[span]].ink, { "font-size": size })),
    "</g></g>",
  ].join("");
  const around = [
    words(8, HEADING / 2, title, colors.ink, { "text-anchor": "start", "font-size": 14, "font-weight": 600 }),
    ...list.ticks.map(({ x, label }) => element("path", { d: `M${round(view.left + x)} ${HEADING + AXIS - 4}V${height}`, stroke: colors.grid })
      + words(view.left + x, HEADING + AXIS / 2 - 1, label, colors.faint)),
    ...namesOf(scene, view, top, colors),
  ].join("");
  const defs = `<defs>${inside(-scene.above, scene.above, "above")}${inside(0, view.height, "rows")}${fills.defs()}</defs>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${round(width)}" height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}"`
    + ` font-family="${escaped(scene.look.font)}">${defs}${rect(0, 0, width, height, colors.paper)}${around}${drawn}</svg>`;
}

/** The fill of each style; `defs` are the patterns that were asked for. */
function patterns() {
  const known = new Map();
  return {
    of({ color, pattern }) {
      if (!pattern) return color;
      const key = `${color}${pattern}`;
      if (!known.has(key)) known.set(key, { name: `p${known.size}`, color, pattern });
      return `url(#${known.get(key).name})`;
    },
    defs: () => [...known.values()].map(({ name, color, pattern }) => element("pattern",
      { id: name, width: TILE, height: TILE, patternUnits: "userSpaceOnUse" },
      rect(0, 0, TILE, TILE, color) + element("path", { d: LINES[pattern], stroke: "#858D96", "stroke-width": pattern === "." ? 2.4 : 1.1 }))).join(""),
  };
}

function barsOf(scene, kinds, styles, fills) {
  return kinds.flatMap((bars, kind) => {
    const found = [];
    for (let i = 0; i < bars.length; i += 5) {
      const [x, y, width, height, span] = bars.slice(i, i + 5);
      const style = styles.shades[kind][scene.span.chunk[span]] ?? styles.of[kind];
      const edged = width > 3 && !scene.open.has(span);
      found.push(rect(x, y, width, height, fills.of(style)));
      if (edged) found.push(rect(x + width - 0.7, y, 0.7, height, styles.of[kind].edge));
    }
    return found;
  });
}

function headOf({ x, y, width, height, kind, label }, styles, fills) {
  const box = rect(x, y, width, height - 1, fills.of(styles.of[kind])) + rect(x + width - 1, y, 1, height - 1, styles.of[kind].edge);
  return label ? box + words(label.x, label.y, label.text, styles.of[kind].ink, { "font-size": label.size }) : box;
}

function memoryOf(corners, base, colors) {
  if (!corners.length) return "";
  const points = [[corners[0][0], base], ...corners, [corners.at(-1)[0], base]];
  return element("path", { d: `M${points.map((point) => point.map(round).join(" ")).join("L")}`, fill: colors.grid, stroke: colors.faint });
}

function pathOf({ x, y, width, height, line }, colors) {
  const look = { fill: "none", stroke: colors.ink, "stroke-width": 2.6 };
  const box = rect(x, y, width, height, "none", look);
  return line ? box + element("path", { d: `M${round(line.x1)} ${round(line.y1)}L${round(line.x2)} ${round(line.y2)}`, ...look }) : box;
}

/** A message as an arrow, or as a line to a cross. */
function arrowOf({ x1, y1, x2, y2, never }, color, width) {
  const line = `M${round(x1)} ${round(y1)}L${round(x2)} ${round(y2)}`;
  if (never) return element("path", { d: `${line}M${round(x2 - 4)} ${round(y2 - 4)}l8 8m0 -8l-8 8`, stroke: color, "stroke-width": width });
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const wing = (turn) => `${round(x2 + 7 * Math.cos(angle + turn))} ${round(y2 + 7 * Math.sin(angle + turn))}`;
  return element("path", { d: line, stroke: color, "stroke-width": width }) + element("path", { d: `M${round(x2)} ${round(y2)}L${wing(2.7)}L${wing(-2.7)}Z`, fill: color });
}

function namesOf(scene, view, top, colors) {
  const left = { "text-anchor": "end" };
  const found = scene.heads.length ? [words(view.left - 8, top - scene.above / 2, "all ranks", colors.faint, left)] : [];
  for (const row of scene.rows) {
    const y = row.middle - view.top;
    if (y >= 0 && y <= view.height) found.push(words(view.left - 8, top + y, row.label, colors.faint, left));
  }
  return found;
}
