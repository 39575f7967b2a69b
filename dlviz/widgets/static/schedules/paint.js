// Paints the timeline of a schedule: bars, gaps, what was measured, the critical path.
import { boldPath, fill, sized } from "../shared/paint.js";

export const AXIS = 20; // pixels above the rows
export const GUTTER = 58; // pixels left of them
export const KINDS = { F: "forward", B: "backward", I: "backward_input", W: "backward_weight" };

/** The fills that a canvas has made so far, by style. */
export function fillsOf(context, look) {
  const known = new Map();
  const of = (style) => {
    const key = `${style.color}${style.pattern}`;
    if (!known.has(key)) known.set(key, fill(context, style));
    return known.get(key);
  };
  return { of, idle: fill(context, look.kinds.idle) };
}

/**
 * Paints a side; `view.axis` pixels above its rows belong to the axis. `chosen` has the spans and the
 * hole that are selected and pointed at, -1 for none.
 */
export function paintSide(canvas, side, list, view, { colors, fills, font }, chosen) {
  const height = list.rows.height;
  const top = view.axis;
  const context = sized(canvas, GUTTER + view.width, height + top);
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, GUTTER + view.width, height + top);
  context.font = `11px ${font}`;
  context.textBaseline = "middle";
  axis(context, view, colors, height);
  context.textAlign = "right";
  context.fillStyle = colors.faint;
  for (let rank = 0; rank < side.ranks; rank++) {
    context.fillStyle = side.rank[chosen.span] === rank ? colors.ink : colors.faint;
    context.fillText(`rank ${rank}`, GUTTER - 8, top + rank * list.rows.row + list.rows.bar / 2);
  }
  if (list.rows.below > 9) {
    context.font = `10px ${font}`;
    context.fillStyle = colors.faint;
    for (let rank = 0; rank < side.ranks; rank++) {
      context.fillText("measured", GUTTER - 8, top + rank * list.rows.row + list.rows.bar + list.rows.below / 2 + 1);
    }
    context.font = `11px ${font}`;
  }
  context.save();
  context.beginPath();
  context.rect(GUTTER - 2, top - 2, view.width + 4, height + 2);
  context.clip();
  context.translate(GUTTER, top);
  context.fillStyle = fills.idle;
  for (const box of list.holes) context.fillRect(box.x, box.y, box.width, box.height);
  const styleOf = (span) => side.shades[side.kind[span]][side.chunk[side.stage[span]]];
  for (const bars of [list.bars, list.measured]) {
    for (let i = 0; i < bars.length; i += 5) {
      const style = styleOf(bars[i + 4]);
      context.fillStyle = fills.of(style);
      context.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
      if (bars[i + 2] > 3) {
        context.fillStyle = style.edge;
        context.fillRect(bars[i] + bars[i + 2] - 0.7, bars[i + 1], 0.7, bars[i + 3]);
      }
    }
  }
  boldPath(context, list.path, colors);
  context.textAlign = "center";
  for (const label of list.labels) {
    context.fillStyle = styleOf(label.span).ink;
    context.fillText(label.text, label.x, label.y + 0.5);
  }
  outline(context, [list.bars, list.measured], chosen.hover, colors, 1.5);
  outline(context, [list.bars, list.measured], chosen.span, colors, 3);
  const hole = list.holes.find((box) => box.hole === chosen.hole);
  if (hole) {
    context.lineWidth = 2;
    context.strokeStyle = colors.ink;
    context.strokeRect(hole.x, hole.y, hole.width, hole.height);
  }
  context.restore();
}

function axis(context, view, colors, height) {
  const top = view.axis;
  context.textAlign = "center";
  for (const { x, label } of view.ticks) {
    if (x < -1 || x > view.width + 1) continue;
    context.fillStyle = colors.grid;
    context.fillRect(GUTTER + x, Math.max(0, top - 4), 1, height + 4);
    if (top < AXIS) continue; // the marks alone
    context.fillStyle = colors.faint;
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(GUTTER + x, GUTTER + view.width - half), top / 2 - 1);
  }
}

function outline(context, lists, span, colors, width) {
  if (span < 0) return;
  for (const bars of lists) {
    for (let i = 0; i < bars.length; i += 5) {
      if (bars[i + 4] !== span) continue;
      for (const [line, style] of [[width + 2, colors.paper], [width, colors.ink]]) {
        context.lineWidth = line;
        context.strokeStyle = style;
        context.strokeRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
      }
    }
  }
}
