// Paints rows of bars, their axis, and all of them as a small picture.
import { arrow, boldPath, crossedLine, fill, painted } from "../paint.js";
import { overview, WAITED } from "./columns.js";

/** @import { Colors, Look as Given, Style } from "../theme.js" */
/** @import { Box, DrawList, Outlined, View } from "./geometry.js" */
/** @import { Rows, Times } from "./rows.js" */

export const AXIS = 22; // pixels above the rows and what is shown once
const DIM = 0.22; // of spans that a search did not find

/** The styles of spans: `of` each kind, `shades` of each kind by chunk, `idle` time, `waiting`, and `gaps` (not drawn
 * spans, dotted).
 * @typedef {{ of: Style[], shades: Style[][], idle: Style, waiting: Style, gaps: Style }} Styles */

/** @typedef {string | CanvasPattern} Fill */
/** @typedef {{ shades: Fill[][], idle: Fill, waiting: Fill, gaps: Fill }} Fills of one canvas */
/** @typedef {{ colors: Colors, styles: Styles, fills: Fills, font: string }} Look */

/** The selection beyond the draw list's outlines: `row` is its row, `axis` the pixels above the rows. `left`: pixels of
 * the rows' names; `idle`: time that is selected.
 * @typedef {{ left: number, axis: number, row: number, message: number, range?: { from: number, to: number } | null,
 *   matches?: Uint8Array | null, idle?: number }} Chosen */

/** The styles of kinds on a page in these colours. Steps and phases only hold others: they are as pale as the page's
 * cells. `shades` are a kind's styles by chunk, where ranks have several.
 * @type {(names: string[], shades: (Style[] | undefined)[], kinds: Given["kinds"], colors: Colors) => Styles} */
export function stylesOf(names, shades, kinds, colors) {
  const held = { pattern: "", ink: colors.ink, edge: colors.faint, line: colors.faint };
  /** @type {Record<string, Style>} */
  const holders = { step: { ...held, color: colors.cell }, phase: { ...held, color: colors.grid } };
  const of = names.map((kind) => holders[kind] ?? kinds[kind] ?? kinds[""]);
  return {
    of, shades: of.map((style, i) => shades[i] ?? [style]),
    idle: kinds.idle, waiting: kinds.wait, gaps: { ...kinds.idle, pattern: "." },
  };
}

/** The fills of styles, for one canvas. @type {(context: CanvasRenderingContext2D, styles: Styles) => Fills} */
export function fillsOf(context, { shades, idle, waiting, gaps }) {
  return {
    shades: shades.map((own) => own.map((style) => fill(context, style))),
    idle: fill(context, idle), waiting: fill(context, waiting), gaps: fill(context, gaps),
  };
}

/** Paints a draw list.
 * @type {(context: CanvasRenderingContext2D, rows: Rows, list: DrawList, view: View, look: Look, chosen: Chosen) =>
 *   void} */
export function paint(context, rows, list, view, look, chosen) {
  const { left, axis: upper } = chosen;
  const top = upper + rows.above;
  const { colors } = look;
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, left + view.width, view.height + top);
  context.font = `11px ${look.font}`;
  context.textBaseline = "middle";
  axis(context, list, view, colors, left, upper, view.height + top);
  names(context, rows, list, view, colors, chosen);
  within(context, left, upper, view.width, rows.above, top, () => heads(context, list, look, chosen));
  within(context, left, top, view.width, view.height, top, () => {
    if (chosen.range) range(context, chosen.range, view, colors);
    bars(context, rows, list, look, chosen);
  });
  const width = left + view.width;
  within(context, 0, top, width, view.height, top, () => groups(context, rows, list, width, look));
}

/** The lines with the names of groups of ranks, over the rows' names and the picture.
 * @type {(context: CanvasRenderingContext2D, rows: Rows, list: DrawList, width: number, look: Look) => void} */
function groups(context, rows, list, width, { colors, font }) {
  context.font = `600 11px ${font}`;
  context.textAlign = "left";
  context.lineWidth = 4;
  context.strokeStyle = colors.paper;
  context.fillStyle = colors.faint;
  for (const { y, height, group } of list.groups) {
    const label = rows.rankGroups?.[group].label ?? "";
    const middle = y + height / 2 + 0.5;
    context.globalAlpha = 0.5;
    context.fillRect(0, Math.floor(middle), width, 1);
    context.globalAlpha = 1;
    context.strokeText(label, 1, middle);
    context.fillText(label, 1, middle);
  }
}

/** Paints within a box of the canvas; `below`: pixels from the canvas's top to the first row's.
 * @type {(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, below:
 *   number, work: () => void) => void} */
function within(context, left, top, width, height, below, work) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.translate(left, below);
  work();
  context.restore();
}

/** @type {(context: CanvasRenderingContext2D, own: { from: number, to: number }, view: View, colors: Colors) =>
 *   void} */
function range(context, { from, to }, view, colors) {
  const scale = view.width / (view.to - view.from);
  const [a, b] = [from, to].map((time) => (time - view.from) * scale);
  context.globalAlpha = 0.18;
  context.fillStyle = colors.name === "dark" ? colors.bright : colors.accent;
  context.fillRect(a, 0, b - a, view.height);
  context.globalAlpha = 1;
}

/** @type {(context: CanvasRenderingContext2D, rows: Rows, list: DrawList, look: Look, chosen: Chosen) => void} */
function bars(context, rows, list, look, chosen) {
  const { colors, fills } = look;
  context.globalAlpha = chosen.matches ? DIM : 1;
  for (const [boxes, style] of /** @type {[Box[], Fill][]} */ ([[list.idle, fills.idle], [list.gaps, fills.gaps]])) {
    context.fillStyle = style;
    for (const box of boxes) context.fillRect(box.x, box.y, box.width, box.height);
  }
  list.bars.forEach((own, kind) => bar(context, rows, look, own, kind));
  context.globalAlpha = 1;
  list.found.forEach((own, kind) => bar(context, rows, look, own, kind));
  if (list.chosen?.span != null) {
    const { x, y, width, height, span, kind } = list.chosen;
    bar(context, rows, look, [x, y, width, height, span], kind);
  }
  waiting(context, list.waited, fills.waiting, chosen.matches);
  for (const end of list.open) tear(context, end, colors);
  for (const { corners, base } of list.memory) memory(context, corners, base, colors);
  boldPath(context, list.path, colors);
  for (const one of list.arrows) {
    const own = one.message === chosen.message;
    arrow(context, one, colors.ink, colors.paper, own ? 2.6 : 1.2);
  }
  words(context, rows, list, look, chosen);
  outline(context, list.hovered, colors, 1.5);
  outline(context, list.chosen, colors, 3);
  outline(context, list.idle.find(({ place }) => place === chosen.idle), colors, 2);
  for (const one of list.cycle) arrow(context, one, colors.wrong, colors.paper, 2.6);
  for (const one of list.lost) crossedLine(context, one, colors.wrong, colors.paper);
}

/** Bars of one kind; those wide enough that have an end get a thin right edge.
 * @type {(context: CanvasRenderingContext2D, rows: Rows, look: Look, bars: number[], kind: number) => void} */
function bar(context, rows, { fills, styles }, bars, kind) {
  const shades = fills.shades[kind];
  context.fillStyle = shades[0];
  for (let i = 0; i < bars.length; i += 5) {
    if (shades.length > 1) context.fillStyle = shades[rows.chunk[bars[i + 4]]];
    context.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
  }
  context.fillStyle = styles.of[kind].edge;
  for (let i = 0; i < bars.length; i += 5) {
    const edged = bars[i + 2] > 3 && !rows.open.has(bars[i + 4]);
    if (edged) context.fillRect(bars[i] + bars[i + 2] - 0.7, bars[i + 1], 0.7, bars[i + 3]);
  }
}

/** The waiting parts of bars, under the same edge.
 * @type {(context: CanvasRenderingContext2D, parts: number[], style: Fill, matches: Uint8Array | null | undefined)
 *   => void} */
function waiting(context, parts, style, matches) {
  context.fillStyle = style;
  for (let i = 0; i < parts.length; i += 5) {
    context.globalAlpha = !matches || matches[parts[i + 4]] ? 1 : DIM;
    context.fillRect(parts[i], parts[i + 1], parts[i + 2], parts[i + 3]);
  }
  context.globalAlpha = 1;
}

/** The torn end of a span that never ended.
 * @type {(context: CanvasRenderingContext2D, own: { x: number, y: number, height: number, span: number }, colors:
 *   Colors) => void} */
function tear(context, { x, y, height }, colors) {
  const teeth = Math.max(Math.round(height / 7), 2);
  context.fillStyle = colors.paper;
  context.beginPath();
  context.moveTo(x + 1, y);
  for (let i = 0; i < teeth; i++) {
    context.lineTo(x - 5, y + ((i + 0.5) * height) / teeth);
    context.lineTo(x + 1, y + ((i + 1) * height) / teeth);
  }
  context.fill();
}

/** Labels on top; with a halo of their bar's colour where arrows may lie below.
 * @type {(context: CanvasRenderingContext2D, rows: Rows, list: DrawList, look: Look, chosen: Chosen) => void} */
function words(context, rows, list, { colors, styles, font }, chosen) {
  context.textAlign = "left";
  context.fillStyle = colors.faint;
  for (const { text, x, y } of list.remarks) context.fillText(text, x, y + 0.5);
  context.textAlign = "center";
  context.lineWidth = 3;
  for (const { text, span, x, y, size, waiting } of list.labels) {
    if (chosen.matches && !chosen.matches[span]) continue;
    const kind = rows.kindOf[span];
    const { color, ink } = waiting ? styles.waiting : styles.shades[kind][rows.chunk[span]] ?? styles.of[kind];
    context.font = `${size}px ${font}`;
    if (list.arrows.length) {
      context.strokeStyle = color;
      context.strokeText(text, x, y + 0.5);
    }
    context.fillStyle = ink;
    context.fillText(text, x, y + 0.5);
  }
}

/** @type {(context: CanvasRenderingContext2D, list: DrawList, look: Look, chosen: Chosen) => void} */
function heads(context, list, { colors, fills, styles, font }, chosen) {
  context.textAlign = "center";
  for (const { x, y, width, height, kind, spans, label } of list.heads) {
    context.globalAlpha = chosen.matches && !spans.some((i) => chosen.matches?.[i]) ? DIM : 1;
    context.fillStyle = fills.shades[kind][0];
    context.fillRect(x, y, width, height - 1);
    context.fillStyle = styles.of[kind].edge;
    context.fillRect(x + width - 1, y, 1, height - 1);
    if (!label) continue;
    context.font = `${label.size}px ${font}`;
    context.fillStyle = styles.of[kind].ink;
    context.fillText(label.text, label.x, label.y);
  }
  context.globalAlpha = 1;
  for (const [box, line] of /** @type {[Outlined | null, number][]} */ ([[list.hovered, 1.5], [list.chosen, 2]])) {
    if (box && box.y < 0) outline(context, box, colors, line);
  }
}

/** @type {(context: CanvasRenderingContext2D, list: DrawList, view: View, colors: Colors, left: number, upper:
 *   number, height: number) => void} */
function axis(context, list, view, colors, left, upper, height) {
  context.textAlign = "center";
  for (const { x, label } of list.ticks) {
    if (x < -1 || x > view.width + 1) continue;
    const top = Math.max(upper - 4, 0);
    context.fillStyle = colors.grid;
    context.fillRect(Math.round(left + x), top, 1, height - top);
    if (upper < AXIS) continue; // only the marks, under another picture's axis
    context.fillStyle = colors.faint;
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(left + x, left + view.width - half), upper / 2 - 1);
  }
}

/** @type {(context: CanvasRenderingContext2D, rows: Rows, list: DrawList, view: View, colors: Colors, chosen:
 *   Chosen) => void} */
function names(context, rows, list, view, colors, { left, axis: upper, row: chosenRow }) {
  const top = upper + rows.above;
  const from = left - 8;
  context.textAlign = "right";
  context.fillStyle = colors.faint;
  if (rows.heads.length) context.fillText("all ranks", from, upper + rows.above / 2 - 1);
  for (const number of rows.shown) {
    const row = rows.rows[number];
    const up = row.pinned ? 0 : view.top;
    const y = row.middle - up;
    if (y < (row.pinned ? 0 : rows.pinned) - 4 || y > view.height + 4) continue;
    context.fillStyle = number === chosenRow ? colors.ink : colors.faint;
    context.fillText(row.label, from, y + top);
    context.fillStyle = colors.faint;
    const strip = row.memory && list.memory.length && rows.strip > 11 && row.top - up > 12;
    if (strip) context.fillText("memory", from, row.top - rows.strip / 2 - up + top);
    for (const { label, middle } of row.also ?? []) context.fillText(label, from, middle - up + top);
    if (row.pinned) context.fillRect(1, row.top - up + top, 2, row.bottom - row.top);
  }
}

/** @type {(context: CanvasRenderingContext2D, corners: [number, number][], base: number, colors: Colors) => void} */
function memory(context, corners, base, colors) {
  if (!corners.length) return;
  context.beginPath();
  context.moveTo(corners[0][0], base);
  for (const [x, y] of corners) context.lineTo(x, y);
  context.lineTo(corners[corners.length - 1][0], base);
  context.fillStyle = colors.grid;
  context.fill();
  context.strokeStyle = colors.faint;
  context.lineWidth = 1;
  context.stroke();
}

/** @type {(context: CanvasRenderingContext2D, box: Box | null | undefined, colors: Colors, width: number) => void} */
function outline(context, box, colors, width) {
  if (!box) return;
  for (const [line, style] of /** @type {[number, string][]} */ ([[width + 2, colors.paper], [width, colors.ink]])) {
    context.lineWidth = line;
    context.strokeStyle = style;
    context.strokeRect(box.x, box.y, box.width, box.height);
  }
}

/** The whole run in a small picture of this size, a line for each row.
 * @type {(canvas: HTMLCanvasElement, rows: Rows, times: Times, width: number, height: number, look: Pick<Look,
 *   "colors" | "styles">) => void} */
export function paintWhole(canvas, rows, times, width, height, look) {
  painted(canvas, width, height, (context) => whole(context, rows, times, width, height, look));
}

/** @type {(context: CanvasRenderingContext2D, rows: Rows, times: Times, width: number, height: number, own:
 *   Pick<Look, "colors" | "styles">) => void} */
function whole(context, rows, times, width, height, { colors, styles }) {
  context.fillStyle = colors.cell;
  context.fillRect(0, 0, width, height);
  const line = height / Math.max(rows.shown.length, 1);
  /** @type {(row: number) => number[]} */
  const edges = (row) => {
    const y = Math.round(row * line);
    return [y, Math.max(Math.round((row + 1) * line) - y - (line > 3 ? 1 : 0), 1)];
  };
  overview(rows, times, width).forEach((found, row) => {
    const [y, tall] = edges(row);
    for (let i = 0; i < found.length; i += 3) {
      context.fillStyle = (found[i + 2] === WAITED ? styles.waiting : styles.of[found[i + 2]]).color;
      context.fillRect(found[i], y, found[i + 1] - found[i], tall);
    }
  });
  for (const { rank, at } of times.lost) {
    const x = Math.min(((at - times.low) / (times.high - times.low)) * width, width - 2);
    rows.shown.forEach((number, row) => {
      if (rows.rows[number].rank !== rank) return;
      const [y, tall] = edges(row);
      context.fillStyle = colors.paper;
      context.fillRect(x - 2, y, 5, tall);
      context.fillStyle = colors.wrong;
      context.fillRect(x - 1, y, 3, tall);
    });
  }
}
