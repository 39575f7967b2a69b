// What is in view of a timeline as one SVG text: bars as rectangles, text as text, nothing from elsewhere.
import { svgFile, written } from "../file.js";
import { tile } from "../paint.js";
import { AXIS } from "./paint.js";

/** @import { DrawList, View } from "./geometry.js" */
/** @import { Look } from "./paint.js" */
/** @import { Rows } from "./rows.js" */

const FOREIGN = /[^\t\n\r\x20-\uFFFD]/g; // signs that XML does not have
const HEADING = 26; // pixels over the picture

function rect(x, y, width, height, fill, more = {}) {
  const box = { x: round(x), y: round(y), width: round(width), height: round(height) };
  return written("rect", { ...box, fill, ...more });
}

function words(x, y, text, fill, more = {}) {
  const look = { fill, "font-size": 11, "text-anchor": "middle", "dominant-baseline": "central", ...more };
  return written("text", { x: round(x), y: round(y), ...look }, String(text).replace(FOREIGN, "\uFFFD"));
}

function round(value) {
  return Math.round(value * 100) / 100;
}

/**
 * The SVG of a draw list, with the title, the axis and the rows' names.
 * @param {Rows} rows
 * @param {DrawList} list
 * @param {View} view
 * @param {Pick<Look, "colors" | "styles" | "font"> & { title: string, left: number }} look `left`: pixels of the names
 * @returns {string}
 */
export function toSvg(rows, list, view, { colors, styles, font, title, left }) {
  const top = HEADING + AXIS + rows.above;
  const [width, height] = [round(left + view.width), round(top + view.height)];
  const fills = patterns();
  const drawn = written("g", { transform: `translate(${left} ${top})` }, [
    written("g", { "clip-path": "url(#above)" }, list.heads.map((head) => headOf(head, styles, fills))),
    written("g", { "clip-path": "url(#rows)" }, rowsOf(rows, list, colors, styles, fills)),
  ]);
  const around = [
    words(8, HEADING / 2, title, colors.ink, { "text-anchor": "start", "font-size": 14, "font-weight": 600 }),
    ...list.ticks.map((tick) => tickOf(tick, left, height, colors)),
    ...namesOf(rows, view, left, top, colors),
  ];
  const over = list.groups.map((line) => groupOf(line, rows, top, width, colors));
  const clip = (name, y, tall) => written("clipPath", { id: name }, rect(0, y, view.width, tall, "none"));
  const clips = [clip("above", -rows.above, rows.above), clip("rows", 0, view.height)];
  const defs = written("defs", {}, clips, fills.defs());
  const paper = rect(0, 0, width, height, colors.paper);
  return svgFile(width, height, written("g", { "font-family": font }, defs, paper, around, drawn, over));
}

function rowsOf(rows, list, colors, styles, fills) {
  const box = (style) => ({ x, y, width, height }) => rect(x, y, width, height, fills.of(style));
  return [
    ...list.idle.map(box(styles.idle)),
    ...list.gaps.map(box(styles.gaps)),
    ...barsOf(rows, list.bars, styles, fills),
    ...barsOf(rows, list.found, styles, fills),
    ...boxesOf(list.waited).map(box(styles.waiting)),
    ...list.memory.map(({ corners, base }) => memoryOf(corners, base, colors)),
    ...list.path.map((one) => pathOf(one, colors)),
    ...list.arrows.map((arrow) => arrowOf(arrow, colors.ink, 1.2)),
    ...list.cycle.map((arrow) => arrowOf(arrow, colors.wrong, 2.6)),
    ...list.lost.map(({ x, top, bottom }) => written("path", {
      d: `M${x} ${round(top)}V${round(bottom)}${crossAt(x, (top + bottom) / 2)}`,
      fill: "none", stroke: colors.wrong, "stroke-width": 2.6,
    })),
    ...list.notes.map(({ text, x, y }) => words(x, y, text, colors.faint, { "text-anchor": "start" })),
    ...list.labels.map(({ text, x, y, size, span, waiting }) =>
      words(x, y, text, (waiting ? styles.waiting : styles.of[rows.kindOf[span]]).ink, { "font-size": size })),
  ];
}

function tickOf({ x, label }, left, height, colors) {
  const line = written("path", { d: `M${round(left + x)} ${HEADING + AXIS - 4}V${height}`, stroke: colors.grid });
  return [line, words(left + x, HEADING + AXIS / 2 - 1, label, colors.faint)];
}

/** The fill of each style; `defs` are the patterns that were asked for. */
function patterns() {
  const known = new Map();
  return {
    of(style) {
      if (!style.pattern) return style.color;
      const key = `${style.color}${style.pattern}${style.line}`;
      if (!known.has(key)) known.set(key, { style, name: `p${known.size}` });
      return `url(#${known.get(key).name})`;
    },
    defs: () => [...known.values()].map(({ style, name }) => tile(style, name, written)),
  };
}

/** Bars that lie one after the other in a list, as boxes. */
function boxesOf(bars) {
  return Array.from({ length: bars.length / 5 }, (_, i) => {
    const [x, y, width, height, span] = bars.slice(5 * i, 5 * i + 5);
    return { x, y, width, height, span };
  });
}

function barsOf(rows, kinds, styles, fills) {
  return kinds.flatMap((bars, kind) => boxesOf(bars).flatMap(({ x, y, width, height, span }) => {
    const style = styles.shades[kind][rows.chunk[span]] ?? styles.of[kind];
    const bar = rect(x, y, width, height, fills.of(style));
    const edged = width > 3 && !rows.open.has(span);
    return edged ? [bar, rect(x + width - 0.7, y, 0.7, height, styles.of[kind].edge)] : [bar];
  }));
}

function headOf({ x, y, width, height, kind, label }, styles, fills) {
  const { edge, ink } = styles.of[kind];
  const box = rect(x, y, width, height - 1, fills.of(styles.of[kind]));
  const side = rect(x + width - 1, y, 1, height - 1, edge);
  return [box, side, label && words(label.x, label.y, label.text, ink, { "font-size": label.size })];
}

/** The name of a group of ranks, on a line over its rows. */
function groupOf({ y, height, group }, rows, top, width, colors) {
  const middle = top + y + height / 2;
  const look = { "text-anchor": "start", "font-weight": 600, stroke: colors.paper, "stroke-width": 4 };
  return [
    written("path", { d: `M0 ${round(middle)}H${width}`, stroke: colors.faint, opacity: 0.5 }),
    words(1, middle, rows.rankGroups[group].label, colors.faint, { ...look, "paint-order": "stroke" }),
  ];
}

function memoryOf(corners, base, colors) {
  if (!corners.length) return null;
  const points = [[corners[0][0], base], ...corners, [corners.at(-1)[0], base]];
  const line = points.map((point) => point.map(round).join(" ")).join("L");
  return written("path", { d: `M${line}`, fill: colors.grid, stroke: colors.faint });
}

function pathOf({ x, y, width, height, line }, colors) {
  return [[colors.paper, 5], [colors.ink, 2.6]].map(([stroke, wide]) => {
    const look = { fill: "none", stroke, "stroke-width": wide };
    const box = rect(x, y, width, height, "none", look);
    return [box, line && written("path", { d: lineOf(line), ...look })];
  });
}

function lineOf({ x1, y1, x2, y2 }) {
  return `M${round(x1)} ${round(y1)}L${round(x2)} ${round(y2)}`;
}

function crossAt(x, y) {
  return `M${round(x - 4)} ${round(y - 4)}l8 8m0 -8l-8 8`;
}

/** A message as an arrow, or as a line to a cross. */
function arrowOf(arrow, color, width) {
  const { x1, y1, x2, y2, never } = arrow;
  const stroke = { stroke: color, "stroke-width": width };
  if (never) return written("path", { d: lineOf(arrow) + crossAt(x2, y2), ...stroke });
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const wing = (turn) => `L${round(x2 + 7 * Math.cos(angle + turn))} ${round(y2 + 7 * Math.sin(angle + turn))}`;
  const head = written("path", { d: `M${round(x2)} ${round(y2)}${wing(2.7)}${wing(-2.7)}Z`, fill: color });
  return [written("path", { d: lineOf(arrow), ...stroke }), head];
}

function namesOf(rows, view, left, top, colors) {
  const place = { "text-anchor": "end" };
  const found = [];
  if (rows.heads.length) found.push(words(left - 8, top - rows.above / 2, "all ranks", colors.faint, place));
  for (const { label, middle, pinned } of rows.shown.map((row) => rows.rows[row])) {
    const y = middle - (pinned ? 0 : view.top);
    if (y >= 0 && y <= view.height) found.push(words(left - 8, top + y, label, colors.faint, place));
  }
  return found;
}
