// Paints a timeline's draw list, its axis and its minimap.
import { arrow, fill, sized } from "./paint.js";
import { upTo } from "./base.js";

export const AXIS = 22; // pixels above the rows
const FONT = "11px";

/** The fills of all kinds of a scene, for one canvas. */
export function fillsOf(context, scene) {
  const { kinds } = scene.look;
  const styles = scene.span.kinds.of.map((kind) => kinds[kind] ?? kinds[""]);
  const shades = scene.span.kinds.of.map((kind, i) => (scene.shades[kind] ?? [styles[i]]).map((style) => fill(context, style)));
  return { styles, shades, idle: fill(context, kinds.idle) };
}

export function paint(canvas, scene, list, view, look, chosen) {
  const context = sized(canvas, view.left + view.width, view.height + AXIS);
  const { colors, fills } = look;
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, view.left + view.width, view.height + AXIS);
  context.font = `${FONT} ${scene.look.font}`;
  context.textBaseline = "middle";
  axis(context, list, view, colors);
  names(context, scene, view, colors, chosen.row, list.memory.length > 0);
  context.save();
  context.beginPath();
  context.rect(view.left, AXIS, view.width, view.height);
  context.clip();
  context.translate(view.left, AXIS);

  if (chosen.range) {
    const scale = view.width / (view.to - view.from);
    const [a, b] = [chosen.range.from, chosen.range.to].map((time) => (time - view.from) * scale);
    context.fillStyle = colors.name === "dark" ? "rgb(86 180 233 / 22%)" : "rgb(0 114 178 / 14%)";
    context.fillRect(a, 0, b - a, view.height);
  }
  for (const box of list.idle) {
    context.fillStyle = fills.idle;
    context.fillRect(box.x, box.y, box.width, box.height);
  }
  list.bars.forEach((bars, kind) => {
    const shades = fills.shades[kind];
    context.fillStyle = shades[0];
    for (let i = 0; i < bars.length; i += 5) {
      if (shades.length > 1) context.fillStyle = shades[scene.span.chunk[bars[i + 4]]];
      if (chosen.matches) context.globalAlpha = chosen.matches[bars[i + 4]] ? 1 : 0.22;
      context.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
    }
    context.globalAlpha = 1;
    context.fillStyle = fills.styles[kind].edge;
    for (let i = 0; i < bars.length; i += 5) {
      if (bars[i + 2] > 3) context.fillRect(bars[i] + bars[i + 2] - 0.7, bars[i + 1], 0.7, bars[i + 3]);
    }
  });
  context.textAlign = "center";
  for (const label of list.labels) {
    if (chosen.matches && !chosen.matches[label.span]) continue;
    context.fillStyle = fills.styles[scene.kindOf[label.span]].ink;
    context.fillText(label.text, label.x, label.y + 0.5);
  }
  for (const { corners, base, row } of list.memory) memory(context, corners, base, row, colors);
  path(context, list.path, colors);
  outline(context, list, chosen.hover, colors, 1.5);
  outline(context, list, chosen.span, colors, 3);
  for (const one of list.arrows) {
    const own = one.message === chosen.message;
    arrow(context, one, colors.ink, colors.paper, own ? 2.6 : 1.2);
  }
  context.restore();
}

function axis(context, list, view, colors) {
  context.textAlign = "center";
  for (const { x, label } of list.ticks) {
    context.fillStyle = colors.grid;
    context.fillRect(view.left + x, AXIS - 4, 1, view.height + 4);
    context.fillStyle = colors.faint;
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(view.left + x, view.left + view.width - half), AXIS / 2 - 1);
  }
}

function names(context, scene, view, colors, chosenRow, memoryShown) {
  context.textAlign = "right";
  scene.rows.forEach((row, number) => {
    const y = row.middle - view.top + AXIS;
    if (y < AXIS - 4 || y > view.height + AXIS + 4) return;
    context.fillStyle = number === chosenRow ? colors.ink : colors.faint;
    context.fillText(row.label, view.left - 8, y);
    if (row.memory && memoryShown && row.top - view.top > 12) {
      context.fillText("memory", view.left - 8, row.top - 8 - view.top + AXIS);
    }
  });
}

function memory(context, corners, base, row, colors) {
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

/** The critical path, bold, in a halo. */
function path(context, boxes, colors) {
  for (const [color, width] of [[colors.paper, 5], [colors.ink, 2.6]]) {
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

function outline(context, list, span, colors, width) {
  if (span < 0) return;
  for (const bars of list.bars) {
    for (let i = 0; i < bars.length; i += 5) {
      if (bars[i + 4] !== span) continue;
      context.lineWidth = width + 2;
      context.strokeStyle = colors.paper;
      context.strokeRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
      context.lineWidth = width;
      context.strokeStyle = colors.ink;
      context.strokeRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
    }
  }
}

/** The whole run in a small picture, to be kept: a line for each row. */
export function paintWhole(canvas, scene, clock, width, height, look) {
  const context = sized(canvas, width, height);
  context.fillStyle = look.colors.cell;
  context.fillRect(0, 0, width, height);
  const line = height / Math.max(scene.rows.length, 1);
  const scale = width / (clock.high - clock.low);
  const holders = new Set(["step", "phase"]);
  for (const slot of scene.slots) {
    const y = slot.row * line;
    let taken = -1;
    for (let i = slot.first; i < slot.after; ) {
      const x = (clock.start[i] - clock.low) * scale;
      const right = Math.max((clock.end[i] - clock.low) * scale, x + 0.5);
      if (!holders.has(scene.span.kind[i]) && right > taken) {
        context.fillStyle = look.fills.styles[scene.kindOf[i]].color;
        context.fillRect(x, y, right - x, Math.max(line - 1, 0.6));
        taken = Math.ceil(right * 2) / 2;
      }
      // many spans share a pixel: go on at the next one
      i = right - x < 0.5 + 1e-9 ? Math.max(i + 1, upTo(clock.start, clock.low + taken / scale, i, slot.after)) : i + 1;
    }
  }
}
