// The player's panels: ranks on a circle, what each rank holds, the arithmetic, and all as tables.
import { bytes, h, moment, s, seconds, unitOf, write } from "./base.js";
import { cellsOf, chipLabel, chipsOf, circleOf, headOf, layoutOf, messagesIn, movesOf, placesOf, stretches } from "./player_list.js";

const WORDED = 60; // messages put in words per frame
let panels = 0;

/** Patterns of the styles that have one, and the fill of each: its colour or its pattern. */
function fills(styles) {
  const own = `dlv-player-${panels++}`;
  const lines = { "/": "M-2 2 2-2M0 8 8 0M6 10 10 6", "\\": "M-2 6 2 10M0 0 8 8M6-2 10 2", x: "M0 0 8 8M0 8 8 0", ".": "M3 4h2" };
  const patterned = styles.map((style, i) => [style, `${own}-${i}`]).filter(([style]) => style.pattern);
  const defs = s("defs", {}, patterned.map(([style, id]) =>
    s("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 8, height: 8, fill: style.color }),
      s("path", { d: lines[style.pattern] ?? lines.x, stroke: "#5d656e", "stroke-width": 1.2, fill: "none" }))));
  return { defs, of: styles.map((style, i) => (style.pattern ? `url(#${own}-${i})` : style.color)) };
}

function line(points) {
  return `M${points.map((point) => point.map((part) => part.toFixed(1)).join(" ")).join("L")}`;
}

function cross([x, y], size = 5) {
  return `M${x - size} ${y - size}l${2 * size} ${2 * size}M${x - size} ${y + size}l${2 * size} ${-2 * size}`;
}

function afterwards({ frames }, number) {
  const { name, messages } = frames[number];
  return messages.length ? `after ${name}` : number ? "in the end" : "at the start";
}

/** What a cell holds, in words. */
export function cellWords(scene, cell) {
  const chunk = scene.chunks[cell.chunk];
  const name = chunk.low < 0 ? "" : `, ${chunk.name}`;
  const start = `rank ${cell.rank}${name}`;
  if (!cell.runs.length) return `${start}: no contents were watched`;
  const parts = stretches(cell).map((run) => {
    const own = cell.values.filter(({ column }) => column >= run.from && column < run.to).map(({ text }) => text);
    const few = own.slice(0, 8).join(", ") + (own.length > 8 ? ", …" : "");
    return `${scene.holds[run.hold].says}; contents ${few}`;
  });
  return `${start}: ${parts.slice(0, 4).join(" | ")}${parts.length > 4 ? " | …" : ""}`;
}

/** The ranks on a circle and who sends to whom. */
export function circlePanel(scene) {
  const few = scene.rows.length <= 6;
  const size = few ? 230 : scene.rows.length <= 16 ? 290 : 360;
  const arrows = s("g");
  const { nodes, links, hubs, groups } = placesOf(scene, size);
  const ground = s("g", { "aria-hidden": "true" },
    groups.map((group) => s("path", { class: "dlv-group", "stroke-width": 2 * group[0].radius + 14, d: line(group.map(({ x, y }) => [x, y])) })),
    s("path", { class: "dlv-links", d: links.map((ends) => line(ends.map(({ x, y }) => [x, y]))).join("") }),
    hubs.map(({ x, y }) => s("rect", { class: "dlv-hub", x: x - 5, y: y - 5, width: 10, height: 10, rx: 2 })));
  const picture = s("svg", { class: "dlv-circle", viewBox: `0 0 ${size} ${size}`, role: "img" }, ground, arrows);
  for (const { rank, x, y, radius } of nodes) {
    picture.append(s("g", { class: "dlv-rank", "data-rank": rank },
      s("circle", { cx: x, cy: y, r: radius }),
      radius > 8 && s("text", { x, y, "font-size": Math.min(14, radius * 1.1) }, rank)));
  }
  return {
    root: h("div", { class: few ? "dlv-circles" : "dlv-circles dlv-crowd" }, h("h4", {}, "Who sends to whom"), picture),
    draw(number) {
      const drawn = circleOf(scene, number, size).arrows;
      arrows.replaceChildren(...drawn.map(({ message, never, label, width, path: [start, turn, end], at }) => {
        const curve = `M${start.join(" ")}Q${turn.join(" ")} ${end.join(" ")}`;
        const own = s("g", { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
          s("path", { d: curve, class: "dlv-reach" }),
          s("path", { d: curve, "stroke-width": width.toFixed(1) }),
          never ? s("path", { d: cross(end), "stroke-width": 2.5, class: "dlv-cross" }) : s("path", { d: `${line(headOf(turn, end, 8 + width))}Z`, class: "dlv-head" }));
        if (label && drawn.length <= 24 && scene.chunks.length > 1) {
          const text = few && drawn.length <= 4 && /^\d+$/.test(label) ? `chunk ${label}` : label;
          const wide = text.length * 6.2 + 8;
          own.append(s("rect", { class: "dlv-tag", x: at[0] - wide / 2, y: at[1] - 8, width: wide, height: 16, rx: 4 }), s("text", { x: at[0], y: at[1] }, text));
        }
        return own;
      }));
      picture.setAttribute("aria-label", drawn.length ? `${drawn.length} messages: ${drawn.slice(0, 12).map(({ message }) => scene.messages[message].sentence).join("; ")}` : "no message");
    },
  };
}

/** What each rank holds: a grid of ranks and chunks, in which a message's cells are outlined. */
export function chunksPanel(scene) {
  const { defs, of: filled } = fills([...scene.ranks, scene.undecoded]);
  const styleOf = (source) => (source < 0 ? scene.undecoded : scene.ranks[source]);
  const [head, body, moves] = [s("g", { "aria-hidden": "true" }), s("g"), s("g")];
  const grid = s("svg", { class: "dlv-chunks", role: "grid", "aria-readonly": "true" }, defs, head, body, moves);
  const title = h("h4");
  const box = h("div", { class: "dlv-chunkbox" }, grid);
  const groups = new Map();
  const least = layoutOf(scene, 0).width;
  let layout = null;
  let shown = -1;
  let cut = false; // the picture is wider than its panel

  function lay(width) {
    cut = least > width;
    const wanted = layoutOf(scene, width);
    if (layout && wanted.width === layout.width) return false;
    layout = wanted;
    shown = -1;
    groups.clear();
    grid.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    grid.setAttribute("width", layout.width);
    grid.setAttribute("height", layout.height);
    const columns = layout.columns.map((own, i) => ({ ...own, name: String(scene.columns[i][0]), last: scene.columns[i][1] - scene.columns[i][0] }));
    const numbered = columns.length && columns.every(({ last }) => last === 1) && columns.at(-1).name.length * 6.6 < columns[0].width;
    head.replaceChildren(
      ...scene.chunks.map((chunk, i) => {
        const { x, width: wide } = layout.chunks[i];
        return s("text", { x: x + wide / 2, y: 12, class: "dlv-chunkname" }, chunk.name.length * 7 < wide + 12 ? chunk.name : chunk.label);
      }),
      ...(numbered ? columns.map(({ x, width: wide, name }) => s("text", { x: x + wide / 2, y: 28, class: "dlv-cellname" }, name)) : []),
    );
    body.replaceChildren(...scene.rows.map((rank, row) => {
      const y = layout.rows[row];
      return s("g", { role: "row" },
        s("text", { x: 0, y: y + layout.rowHeight / 2, class: "dlv-rankname", role: "rowheader", "data-rank": rank }, `rank ${rank}`),
        scene.chunks.map((_, chunk) => {
          const group = s("g", { role: "gridcell", "data-cell": `${row}:${chunk}` });
          groups.set(`${row}:${chunk}`, { group, is: "" });
          return group;
        }));
    }));
    return true;
  }

  function fill(group, cell) {
    const { x, y, width, height } = cell;
    const rulers = cell.values.slice(1).map(({ column }) => layout.columns[column].x);
    const ruled = layout.single ? height : layout.valueHeight + 4;
    const parts = [s("rect", { x, y, width, height, class: "dlv-ground" })];
    if (rulers.length && layout.columns[0].width > 5) parts.push(s("path", { d: rulers.map((at) => `M${at} ${y}v${ruled}`).join(""), class: "dlv-ruler" }));
    for (const { column, text, changed } of cell.values) {
      const own = layout.columns[column];
      const words = text.length > layout.lettersShown ? `${text.slice(0, layout.lettersShown - 1)}…` : text;
      const [cx, cy] = [own.x + own.width / 2, y + 4 + layout.valueHeight / 2];
      if (changed) parts.push(s("rect", { x: own.x + 0.5, y: y + 1, width: own.width - 1, height: layout.valueHeight + 2, class: "dlv-changed" }));
      parts.push(s("text", { x: cx, y: cy, class: "dlv-value", transform: layout.upright && `rotate(-90 ${cx} ${cy})` }, words));
    }
    for (const run of cell.runs) {
      for (const chip of chipsOf(scene, layout, cell, run)) {
        const style = styleOf(chip.source);
        parts.push(s("rect", { x: chip.x + 0.5, y: chip.y + 0.5, width: Math.max(1, chip.width - 1), height: Math.max(1, chip.height - 1), fill: filled.at(chip.source), stroke: style.edge, class: "dlv-chip" }));
        const label = chipLabel(chip);
        if (label) parts.push(s("text", { x: chip.x + chip.width / 2, y: chip.y + chip.height / 2 + 0.5, style: `fill: ${style.ink}`, class: "dlv-chiplabel" }, label));
      }
    }
    group.replaceChildren(...parts);
    group.setAttribute("aria-label", cellWords(scene, cell));
  }

  return {
    root: h("div", { class: "dlv-holds", style: `flex-basis: min(100%, ${Math.max(400, least)}px)` }, title, box),
    box,
    grid,
    groups,
    lay,
    layout: () => layout,
    cell: (key) => groups.get(key)?.cell,
    draw(number) {
      const { name, messages } = scene.frames[number];
      const what = scene.columns.length ? `What each rank holds ${afterwards(scene, number)}` : `Who sends and receives${messages.length ? ` in ${name}` : ""}`;
      const whole = `${what}${scene.buffer ? ` in ${scene.buffer}` : ""}`;
      write(title, whole + (cut ? " (scroll sideways for the rest)" : ""));
      grid.setAttribute("aria-label", whole);
      for (const cell of cellsOf(scene, layout, number)) {
        const own = groups.get(`${cell.row}:${cell.chunk}`);
        const is = JSON.stringify([cell.values, cell.runs]);
        own.cell = cell;
        if (own.is === is) continue;
        own.is = is;
        fill(own.group, cell);
      }
      if (shown === number) return;
      shown = number;
      const { boxes, arrows } = movesOf(scene, layout, number);
      moves.replaceChildren(
        ...boxes.map(({ message, what, x, y, width, height }) => {
          const out = what === "sent" ? 2 : 4.5;
          return s("rect", { class: `dlv-move dlv-${what}`, "data-message": message, x: x - out, y: y - out, width: width + 2 * out, height: height + 2 * out, rx: 3 });
        }),
        ...arrows.map(({ message, never, points }) => s("g", { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
          s("path", { d: line(points), class: "dlv-reach" }),
          s("path", { d: line(points), "stroke-width": 1.6 }),
          never ? s("path", { d: cross(points[3], 4), "stroke-width": 2, class: "dlv-cross" }) : s("path", { d: `${line(headOf(points[2], [points[3][0] - 1, points[3][1]], 7))}Z`, class: "dlv-head" }))),
      );
    },
  };
}

/** What the marks of the grid mean. */
export function legend(scene) {
  const { defs, of: filled } = fills([...scene.ranks, scene.undecoded]);
  const styles = [...scene.ranks, scene.undecoded];
  const marks = [];
  const mark = (inside, ...words) => marks.push(h("span", {}, s("svg", { width: 22, height: 16, "aria-hidden": "true" }, inside), words));
  const chip = (i, label) => [
    s("rect", { x: 2.5, y: 1.5, width: 17, height: 13, fill: filled.at(i), stroke: styles.at(i).edge }),
    s("text", { x: 11, y: 8.5, style: `fill: ${styles.at(i).ink}`, class: "dlv-chiplabel" }, label),
  ];
  const held = new Set(scene.holds.flatMap(({ counts }) => (counts ?? []).map(([source]) => source)));
  scene.ranks.forEach((_, rank) => held.has(rank) && mark(chip(rank, rank), `from rank ${rank}`));
  if (scene.ranks.length && scene.holds.some(({ counts }) => !counts)) mark(chip(-1, "?"), "not a sum of contributions");
  mark(s("rect", { class: "dlv-move dlv-sent", x: 2, y: 2, width: 18, height: 12, rx: 3 }), "sent");
  mark(s("rect", { class: "dlv-move dlv-received", x: 2, y: 2, width: 18, height: 12, rx: 3 }), "received");
  if (scene.values.length) mark(s("rect", { class: "dlv-changed", x: 2, y: 2, width: 18, height: 12 }), "changed in this step");
  if (Object.values(scene.messages).some(({ received }) => received == null)) {
    mark(s("g", { class: "dlv-arrow dlv-never" }, s("path", { d: "M2 8H12", "stroke-width": 1.6 }), s("path", { d: cross([15, 8], 4), "stroke-width": 2, class: "dlv-cross" })), "never received");
  }
  marks[0].firstChild.prepend(defs);
  return h("div", { class: "dlv-marks" }, marks);
}

function timesOf({ nbytes, sent, received }) {
  const unit = unitOf(received ?? sent);
  const parts = nbytes >= 0 ? [bytes(nbytes)] : [];
  parts.push(`sent at ${moment(sent, unit)}`);
  if (received != null) parts.push(`received at ${moment(received, unit)}, ${seconds(received - sent)} later`);
  return parts.join(" · ");
}

/** The messages of a frame in words and numbers. */
export function arithmeticPanel(scene, choose) {
  const list = h("ol", { class: "dlv-steps" });
  const title = h("h4");
  return {
    root: h("div", { class: "dlv-arithmetic" }, title, list),
    draw(number) {
      const { messages, notes, name } = scene.frames[number];
      write(title, messages.length ? `The arithmetic of ${name}` : "The arithmetic");
      const items = messages.slice(0, WORDED).map((message) => {
        const own = scene.messages[message];
        return h("li", {}, h("button", { type: "button", "data-message": message, "aria-pressed": "false", onclick: () => choose(message) },
          h("strong", {}, own.sentence),
          own.formula.length ? h("code", {}, own.formula.map((part) => h("span", {}, part, " "))) : null,
          h("small", {}, timesOf(own))));
      });
      if (messages.length > WORDED) items.push(h("li", {}, `and ${messages.length - WORDED} more messages`));
      if (!messages.length) items.push(h("li", {}, number ? "After the last message." : "Before the first message."));
      if (notes.length) items.push(h("li", { class: "dlv-note" }, h("strong", {}, "To note: "), notes.join("; "), "."));
      list.replaceChildren(...items);
    },
  };
}

/** The same as tables, for those who cannot see the pictures. */
export function tablesPanel(scene, layoutNow) {
  const root = h("div", { class: "dlv-tables", hidden: true });
  const cell = (tag, words) => h(tag, tag === "th" ? { scope: "col" } : {}, words);
  return {
    root,
    draw(number) {
      const { name } = scene.frames[number];
      const cells = cellsOf(scene, layoutNow(), number).filter(({ values }) => values.length);
      const rows = cells.flatMap((own) => stretches(own).map((run) => h("tr", {},
        h("th", { scope: "row" }, `rank ${own.rank}`),
        h("td", {}, scene.chunks[own.chunk].name),
        h("td", {}, own.values.filter(({ column }) => column >= run.from && column < run.to).map(({ text }) => text).join(", ")),
        h("td", {}, scene.holds[run.hold].says.replace(/^holds /, "")))));
      const moved = scene.frames[number].messages.slice(0, WORDED).map((message) => {
        const own = scene.messages[message];
        return h("tr", {}, h("th", { scope: "row" }, own.sentence), h("td", {}, own.formula.join(", ")), h("td", {}, timesOf(own)));
      });
      root.replaceChildren(
        h("div", { class: "dlv-scroll" }, h("table", {}, h("caption", {}, `What each rank holds ${afterwards(scene, number)}`),
          h("thead", {}, h("tr", {}, ["rank", "chunk", "contents", "contributions"].map((words) => cell("th", words)))), h("tbody", {}, rows))),
        h("div", { class: "dlv-scroll" }, h("table", {}, h("caption", {}, moved.length ? `Messages of ${name}` : number ? "No more messages" : "No message yet"),
          h("thead", {}, h("tr", {}, ["message", "in numbers", "bytes and times"].map((words) => cell("th", words)))), h("tbody", {}, moved))),
      );
    },
  };
}

/** Rows of the messages that took from, or reached, a rank's chunk (any chunk, if none is given). */
export function messagesAt(scene, number, rank, chunk = null) {
  return messagesIn(scene, number)
    .filter(({ src, dst, chunks }) => (src === rank || dst === rank) && (chunk == null || (chunk >= chunks[0] && chunk < chunks[1])))
    .map(({ message }) => message);
}
