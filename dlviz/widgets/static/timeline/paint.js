// Paints a timeline's draw list, its axis and its minimap.
import { arrow, boldPath, fill, sized } from "../shared/paint.js";
import { overview } from "./columns.js";

export const AXIS = 22; // pixels above the rows and what is shown once
const WAITS = "#d55e00"; // the arrows of ranks that wait for ever
const DIM = 0.22; // of what a search did not find

/**
 * How the kinds of a scene look on a page in these colours: `of` each kind, `shades` of each kind by
 * chunk, `idle`, and `gaps`, which are not drawn: dotted. Steps and phases only hold others: they are
 * as pale as the page's cells.
 */
export function stylesOf(scene, colors) {
  const { kinds } = scene.look;
  const held = { pattern: "", ink: colors.ink, edge: colors.faint };
  const holders = { step: { ...held, color: colors.cell }, phase: { ...held, color: colors.grid } };
  const of = scene.span.kinds.of.map((kind) => holders[kind] ?? kinds[kind] ?? kinds[""]);
  const shades = scene.span.kinds.of.map((kind, i) => scene.shades[kind] ?? [of[i]]);
  return { of, shades, idle: kinds.idle, gaps: { ...kinds.idle, pattern: "." } };
}

/** The fills of these styles, for one canvas. */
export function fillsOf(context, { shades, idle, gaps }) {
  return {
    shades: shades.map((own) => own.map((style) => fill(context, style))),
    idle: fill(context, idle), gaps: fill(context, gaps),
  };
}

export function paint(canvas, scene, list, view, look, chosen) {
  const top = AXIS + scene.above;
  const context = sized(canvas, view.left + view.width, view.height + top);
  const { colors } = look;
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, view.left + view.width, view.height + top);
  context.font = `11px ${scene.look.font}`;
  context.textBaseline = "middle";
  axis(context, list, view, colors, top);
  names(context, scene, view, colors, chosen.row, top, list.memory.length > 0);
  const [left, width] = [view.left, view.width];
  within(context, left, AXIS, width, scene.above, top, () => heads(context, scene, list, look, chosen));
  within(context, left, top, width, view.height, top, () => {
    if (chosen.range) {
      const scale = view.width / (view.to - view.from);
      const [a, b] = [chosen.range.from, chosen.range.to].map((time) => (time - view.from) * scale);
      context.fillStyle = colors.name === "dark" ? "rgb(86 180 233 / 22%)" : "rgb(0 114 178 / 14%)";
      context.fillRect(a, 0, b - a, view.height);
    }
    rows(context, scene, list, look, chosen);
  });
}

/** Paints within a box of the canvas; `below` are pixels from the canvas's top to the first row's. */
function within(context, left, top, width, height, below, work) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.translate(left, below);
  work();
  context.restore();
}

function rows(context, scene, list, look, chosen) {
  const { colors, fills } = look;
  context.globalAlpha = chosen.matches ? DIM : 1;
  for (const [boxes, style] of [[list.idle, fills.idle], [list.gaps, fills.gaps]]) {
    context.fillStyle = style;
    for (const box of boxes) context.fillRect(box.x, box.y, box.width, box.height);
  }
  list.bars.forEach((bars, kind) => bar(context, scene, look, bars, kind));
  context.globalAlpha = 1;
  list.found.forEach((bars, kind) => bar(context, scene, look, bars, kind));
  if (list.chosen?.span >= 0) {
    const { x, y, width, height, span, kind } = list.chosen;
    bar(context, scene, look, [x, y, width, height, span], kind);
  }
  for (const end of list.open) tear(context, end, colors);
  for (const { corners, base } of list.memory) memory(context, corners, base, colors);
  boldPath(context, list.path, colors);
  for (const one of list.arrows) {
    const own = one.message === chosen.message;
    arrow(context, one, colors.ink, colors.paper, own ? 2.6 : 1.2);
  }
  words(context, scene, list, look, chosen);
  outline(context, list.hovered, colors, 1.5);
  outline(context, list.chosen, colors, 3);
  for (const one of list.cycle) arrow(context, one, WAITS, colors.paper, 2.6);
}

/** Bars of one kind, and a thin edge at the right of those that are wide enough and have an end. */
function bar(context, scene, { fills, styles }, bars, kind) {
  const shades = fills.shades[kind];
  context.fillStyle = shades[0];
  for (let i = 0; i < bars.length; i += 5) {
    if (shades.length > 1) context.fillStyle = shades[scene.span.chunk[bars[i + 4]]];
    context.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
  }
  context.fillStyle = styles.of[kind].edge;
  for (let i = 0; i < bars.length; i += 5) {
    const edged = bars[i + 2] > 3 && !scene.open.has(bars[i + 4]);
    if (edged) context.fillRect(bars[i] + bars[i + 2] - 0.7, bars[i + 1], 0.7, bars[i + 3]);
  }
}

/** The end of a bar that never ended: torn. */
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

/** Labels over everything else; a halo of their bar's colour where arrows may lie below. */
function words(context, scene, list, { styles, font }, chosen) {
  context.textAlign = "center";
  context.lineWidth = 3;
  for (const { text, span, x, y, size } of list.labels) {
    if (chosen.matches && !chosen.matches[span]) continue;
    const kind = scene.kindOf[span];
    context.font = `${size}px ${font}`;
    if (list.arrows.length) {
      context.strokeStyle = (styles.shades[kind][scene.span.chunk[span]] ?? styles.of[kind]).color;
      context.strokeText(text, x, y + 0.5);
    }
    context.fillStyle = styles.of[kind].ink;
    context.fillText(text, x, y + 0.5);
  }
}

function heads(context, scene, list, { colors, fills, styles, font }, chosen) {
  context.textAlign = "center";
  for (const { x, y, width, height, kind, spans, label } of list.heads) {
    context.globalAlpha = chosen.matches && !spans.some((i) => chosen.matches[i]) ? DIM : 1;
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
  for (const [box, line] of [[list.hovered, 1.5], [list.chosen, 2]]) {
    if (box?.y < 0) outline(context, box, colors, line);
  }
}

function axis(context, list, view, colors, top) {
  context.textAlign = "center";
  for (const { x, label } of list.ticks) {
    context.fillStyle = colors.grid;
    context.fillRect(Math.round(view.left + x), AXIS - 4, 1, view.height + top - AXIS + 4);
    context.fillStyle = colors.faint;
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(view.left + x, view.left + view.width - half), AXIS / 2 - 1);
  }
}

function names(context, scene, view, colors, chosenRow, top, memoryShown) {
  context.textAlign = "right";
  context.fillStyle = colors.faint;
  if (scene.heads.length) context.fillText("all ranks", view.left - 8, AXIS + scene.above / 2 - 1);
  scene.rows.forEach((row, number) => {
    const y = row.middle - view.top;
    if (y < -4 || y > view.height + 4) return;
    context.fillStyle = number === chosenRow ? colors.ink : colors.faint;
    context.fillText(row.label, view.left - 8, y + top);
    if (row.memory && memoryShown && scene.strip > 11 && row.top - view.top > 12) {
      context.fillText("memory", view.left - 8, row.top - scene.strip / 2 - view.top + top);
    }
  });
}

function memory(context, corners, base, colors) {
  if (!corners.length) return;
  context.beginPath();
  context.moveTo(corners[0][0], base);
  for (const [x, y] of corners) context.lineTo(x, y);
  context.lineTo(corners.at(-1)[0], base);
  context.fillStyle = colors.grid;
  context.fill();
  context.strokeStyle = colors.faint;
  context.lineWidth = 1;
  context.stroke();
}

function outline(context, box, colors, width) {
  if (!box) return;
  for (const [line, style] of [[width + 2, colors.paper], [width, colors.ink]]) {
    context.lineWidth = line;
    context.strokeStyle = style;
    context.strokeRect(box.x, box.y, box.width, box.height);
  }
}

/** The whole run in a small picture, to be kept: a line for each row. */
export function paintWhole(canvas, scene, clock, width, height, { colors, styles }) {
  const context = sized(canvas, width, height);
  context.fillStyle = colors.cell;
  context.fillRect(0, 0, width, height);
  const line = height / Math.max(scene.rows.length, 1);
  overview(scene, clock, width).forEach((found, row) => {
    const y = Math.round(row * line);
    const tall = Math.max(Math.round((row + 1) * line) - y - (line > 3 ? 1 : 0), 1);
    for (let i = 0; i < found.length; i += 3) {
      context.fillStyle = styles.of[found[i + 2]].color;
      context.fillRect(found[i], y, found[i + 1] - found[i], tall);
    }
  });
}
