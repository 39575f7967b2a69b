// Paints the player's pictures, on the page and into a file: `make` is `s` of base.js or `written`.
import {
  cellsOf,
  chipLabel,
  chipsOf,
  circleOf,
  headOf,
  holdWords,
  movesOf,
  pairsOf,
  placesOf,
  stretches,
  stripOf,
} from "./geometry.js";
import { svgFile, written } from "../shared/file.js";

const LINES = {
  "/": "M-2 2 2-2M0 8 8 0M6 10 10 6",
  "\\": "M-2 6 2 10M0 0 8 8M6-2 10 2",
  x: "M0 0 8 8M0 8 8 0",
  ".": "M3 4h2",
};
const WRONG = "#d55e00";

/** How the pictures' parts look in a theme's colours; `scope` goes before each selector. */
export function rules({ ink, paper, faint, grid, cell, name }, scope = "") {
  return Object.entries({
    text: `fill: ${ink}; font-size: 12px; text-anchor: middle; dominant-baseline: central`,
    ".dlv-rankname": "text-anchor: start; font-weight: 600",
    ".dlv-chunkname": "font-weight: 600",
    ".dlv-cellname": `fill: ${faint}; font-size: 10px`,
    ".dlv-value": "font-size: 11px; font-variant-numeric: tabular-nums",
    ".dlv-chiplabel": "font-size: 10px; font-weight: 700",
    ".dlv-ground": `fill: ${cell}; stroke: ${faint}; stroke-width: 0.8`,
    ".dlv-ruler": `fill: none; stroke: ${faint}; stroke-width: 0.5; opacity: 0.6`,
    ".dlv-changed": `fill: #f0e442; fill-opacity: ${name === "dark" ? 0.28 : 0.38}`,
    ".dlv-chip": "stroke-width: 0.8",
    ".dlv-move": `fill: none; stroke: ${ink}; stroke-width: 2.4`,
    ".dlv-received": "stroke-dasharray: 5 3; stroke-width: 2",
    ".dlv-arrow": `stroke: ${ink}; fill: none`,
    ".dlv-reach": "stroke: transparent; stroke-width: 12",
    ".dlv-head": `fill: ${ink}; stroke: none`,
    ".dlv-tag": `fill: ${paper}; stroke: ${faint}; stroke-width: 0.8`,
    ".dlv-arrow text": "stroke: none; font-size: 11px",
    ".dlv-never path:not(.dlv-reach, .dlv-cross)": "stroke-dasharray: 4 3",
    ".dlv-pair": `stroke: ${faint}; stroke-width: 1.2; fill: none`,
    ".dlv-pair .dlv-head": `fill: ${faint}`,
    ".dlv-group": `fill: none; stroke: ${grid}; stroke-linecap: round; stroke-linejoin: round; opacity: 0.7`,
    ".dlv-links": `fill: none; stroke: ${faint}; stroke-width: 1; opacity: 0.55`,
    ".dlv-hub": `fill: ${paper}; stroke: ${faint}; stroke-width: 1.2`,
    ".dlv-rank circle": `fill: ${cell}; stroke: ${ink}; stroke-width: 1.5`,
    ".dlv-rank text": "font-weight: 700",
    ".dlv-share": "fill: #0072b2",
    ".dlv-wrong": `fill: ${WRONG}`,
    ".dlv-start": "text-anchor: start",
    ".dlv-words": `text-anchor: start; fill: ${faint}`,
    ".dlv-title": "text-anchor: start; font-size: 16px; font-weight: 700",
  })
    .map(([part, look]) => `${scope}${part} { ${look} }`)
    .join("\n");
}

/** Patterns of the styles that have one, and the fill of each: its colour or its pattern. */
export function fills(make, styles, own) {
  const patterned = styles.map((style, i) => [style, `${own}-${i}`]).filter(([style]) => style.pattern);
  const defs = make(
    "defs",
    {},
    patterned.map(([style, id]) =>
      make(
        "pattern",
        { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
        make("rect", { width: 8, height: 8, fill: style.color }),
        make("path", { d: LINES[style.pattern] ?? LINES.x, stroke: "#5d656e", "stroke-width": 1.2, fill: "none" }),
      ),
    ),
  );
  return { defs, of: styles.map((style, i) => (style.pattern ? `url(#${own}-${i})` : style.color)) };
}

function line(points) {
  return `M${points.map((point) => point.map((part) => part.toFixed(1)).join(" ")).join("L")}`;
}

function cross([x, y], size = 5) {
  return `M${x - size} ${y - size}l${2 * size} ${2 * size}M${x - size} ${y + size}l${2 * size} ${-2 * size}`;
}

function tip(make, never, end, from, size) {
  return never
    ? make("path", { d: cross(end, size / 2), "stroke-width": 2.5, class: "dlv-cross" })
    : make("path", { d: `${line(headOf(from, end, size))}Z`, class: "dlv-head" });
}

/** The ranks on a circle with what joins them. */
export function ranksPicture(make, scene, size) {
  const { nodes, links, hubs, groups } = placesOf(scene, size);
  const ground = make(
    "g",
    { "aria-hidden": "true" },
    groups.map((group) =>
      make("path", {
        class: "dlv-group",
        "stroke-width": 2 * group[0].radius + 14,
        d: line(group.map(({ x, y }) => [x, y])),
      }),
    ),
    make("path", { class: "dlv-links", d: links.map((ends) => line(ends.map(({ x, y }) => [x, y]))).join("") }),
    hubs.map(({ x, y }) => make("rect", { class: "dlv-hub", x: x - 5, y: y - 5, width: 10, height: 10, rx: 2 })),
  );
  const ranks = nodes.map(({ rank, x, y, radius }) =>
    make(
      "g",
      { class: "dlv-rank", "data-rank": rank },
      make("circle", { cx: x, cy: y, r: radius }),
      radius > 8 ? make("text", { x, y, "font-size": Math.min(14, radius * 1.1) }, rank) : null,
    ),
  );
  return { ground, ranks };
}

/** Who sends to whom in a round or, where `all` is asked for and no message is sent, in any round. */
export function sendsPicture(make, scene, number, size, all) {
  if (!scene.frames[number].messages.length) {
    const pairs = all ? pairsOf(scene, size) : [];
    return pairs.map(([start, end]) =>
      make("g", { class: "dlv-pair" }, make("path", { d: line([start, end]) }), tip(make, false, end, start, 9)),
    );
  }
  const few = scene.rows.length <= 6;
  const drawn = circleOf(scene, number, size).arrows;
  return drawn.map(({ message, never, label, width, path: [start, turn, end], at }) => {
    const curve = `M${start.join(" ")}Q${turn.join(" ")} ${end.join(" ")}`;
    const parts = [
      make("path", { d: curve, class: "dlv-reach" }),
      make("path", { d: curve, "stroke-width": width.toFixed(1) }),
      tip(make, never, end, turn, 8 + width),
    ];
    if (label && drawn.length <= 24 && scene.chunks.length > 1) {
      const text = few && drawn.length <= 4 && /^\d+$/.test(label) ? `chunk ${label}` : label;
      const wide = text.length * 6.2 + 8;
      parts.push(
        make("rect", { class: "dlv-tag", x: at[0] - wide / 2, y: at[1] - 8, width: wide, height: 16, rx: 4 }),
        make("text", { x: at[0], y: at[1] }, text),
      );
    }
    return make("g", { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message }, parts);
  });
}

/** The names of chunks and cells over the grid. */
export function headPicture(make, scene, layout) {
  const columns = layout.columns.map((own, i) => ({
    ...own,
    name: String(scene.columns[i][0]),
    cells: scene.columns[i][1] - scene.columns[i][0],
  }));
  const numbered =
    columns.length && columns.every(({ cells }) => cells === 1) && columns.at(-1).name.length * 6.6 < columns[0].width;
  return [
    scene.chunks.map((chunk, i) => {
      const { x, width } = layout.chunks[i];
      return make(
        "text",
        { x: x + width / 2, y: 9, class: "dlv-chunkname" },
        chunk.name.length * 7 < width + 12 ? chunk.name : chunk.label,
      );
    }),
    numbered
      ? columns.map(({ x, width, name }) => make("text", { x: x + width / 2, y: 24, class: "dlv-cellname" }, name))
      : null,
  ];
}

/** A rank's name beside its row of the grid. */
export function rankName(make, layout, rank, row) {
  return make(
    "text",
    { x: 0, y: layout.rows[row] + layout.rowHeight / 2, class: "dlv-rankname", role: "rowheader", "data-rank": rank },
    `rank ${rank}`,
  );
}

/** What a rank holds of a chunk: its numbers, and a box for each contribution in it. */
export function cellPicture(make, scene, layout, cell, filled) {
  const { x, y, width, height } = cell;
  const styleOf = (source) => (source < 0 ? scene.undecoded : scene.ranks[source]);
  const rulers = cell.values.slice(1).map(({ column }) => layout.columns[column].x);
  const ruled = layout.single ? height : layout.valueHeight + 4;
  const parts = [make("rect", { x, y, width, height, class: "dlv-ground" })];
  if (rulers.length && layout.columns[0].width > 5)
    parts.push(make("path", { d: rulers.map((at) => `M${at} ${y}v${ruled}`).join(""), class: "dlv-ruler" }));
  for (const { column, text, changed } of cell.values) {
    const own = layout.columns[column];
    const high = (layout.valueHeight || height) - 1;
    if (changed)
      parts.push(make("rect", { x: own.x + 0.5, y: y + 1, width: own.width - 1, height: high, class: "dlv-changed" }));
    if (layout.valueHeight)
      parts.push(
        make("text", { x: own.x + own.width / 2, y: y + 2 + layout.valueHeight / 2, class: "dlv-value" }, text),
      );
  }
  for (const run of cell.runs) {
    for (const chip of chipsOf(scene, layout, cell, run)) {
      const box = {
        x: chip.x + 0.5,
        y: chip.y + 0.5,
        width: Math.max(1, chip.width - 1),
        height: Math.max(1, chip.height - 1),
      };
      parts.push(
        make("rect", { ...box, fill: filled.at(chip.source), stroke: styleOf(chip.source).edge, class: "dlv-chip" }),
      );
      const label = chipLabel(chip);
      if (label)
        parts.push(
          make(
            "text",
            {
              x: chip.x + chip.width / 2,
              y: chip.y + chip.height / 2 + 0.5,
              style: `fill: ${styleOf(chip.source).ink}`,
              class: "dlv-chiplabel",
            },
            label,
          ),
        );
    }
  }
  return parts;
}

/** The outlines of the cells that a round's messages took and reached, and their arrows. */
export function movesPicture(make, scene, layout, number) {
  const { boxes, arrows } = movesOf(scene, layout, number);
  return [
    ...boxes.map(({ message, what, out, x, y, width, height }) =>
      make("rect", {
        class: `dlv-move dlv-${what}`,
        "data-message": message,
        x: x - out,
        y: y - out,
        width: width + 2 * out,
        height: height + 2 * out,
        rx: 3,
      }),
    ),
    ...arrows.map(({ message, never, points }) =>
      make(
        "g",
        { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
        make("path", { d: line(points), class: "dlv-reach" }),
        make("path", { d: line(points), "stroke-width": 1.6 }),
        tip(make, never, never ? points[3] : [points[3][0] - 1, points[3][1]], points[2], never ? 8 : 7),
      ),
    ),
  ];
}

function boxPath({ x, y, width, height }) {
  const [left, top, across, down] = [x, y, width, height].map((part) => part.toFixed(1));
  return `M${left} ${top}h${across}v${down}h-${across}z`;
}

/** The small pictures of all rounds: the darker a cell, the more ranks' numbers are in it. */
export function stripPicture(make, scene, width, height) {
  return stripOf(scene, width, height).map(({ x, width: wide, shares }, number) =>
    make(
      "g",
      { "data-frame": number },
      make("rect", { x, y: 0, width: wide, height, fill: "transparent" }),
      [...shares].map(([share, boxes]) =>
        make("path", {
          class: share < 0 ? "dlv-wrong" : "dlv-share",
          "fill-opacity": share < 0 ? 1 : (0.12 + 0.88 * share ** 1.5).toFixed(3),
          d: boxes.map(boxPath).join(""),
        }),
      ),
    ),
  );
}

/** The marks of the pictures and what each means: [parts, width, words]. */
export function marks(make, scene, filled) {
  const styles = [...scene.ranks, scene.undecoded];
  const chip = (i, label, x = 0) => [
    make("rect", { x: x + 1.5, y: 1.5, width: 15, height: 13, fill: filled.at(i), stroke: styles.at(i).edge }),
    make("text", { x: x + 9, y: 8.5, style: `fill: ${styles.at(i).ink}`, class: "dlv-chiplabel" }, label),
  ];
  const held = new Set(scene.holds.flatMap(({ counts }) => (counts ?? []).map(([source]) => source)));
  const ranks = scene.ranks.map((_, rank) => rank).filter((rank) => held.has(rank));
  const found = [];
  if (!scene.values.length) return found;
  if (ranks.length)
    found.push([ranks.map((rank, i) => chip(rank, rank, i * 16)), ranks.length * 16 + 3, "from this rank"]);
  if (scene.ranks.length && scene.holds.some(({ counts }) => !counts)) found.push([chip(-1, "?"), 19, "no sum"]);
  const box = { x: 2, y: 2, width: 18, height: 12 };
  found.push([make("rect", { class: "dlv-move dlv-sent", ...box, rx: 3 }), 22, "sent"]);
  found.push([make("rect", { class: "dlv-move dlv-received", ...box, rx: 3 }), 22, "received"]);
  found.push([make("rect", { class: "dlv-changed", ...box }), 22, "changed"]);
  if (Object.values(scene.messages).some(({ received }) => received == null)) {
    const never = [make("path", { d: "M2 8H12", "stroke-width": 1.6 }), tip(make, true, [15, 8], [2, 8], 8)];
    found.push([make("g", { class: "dlv-arrow dlv-never" }, never), 22, "never received"]);
  }
  return found;
}

/** What a round does, in words. */
export function roundWords({ frames }, number) {
  const { name, phase, summary } = frames[number];
  return number
    ? [name, phase, summary].filter(Boolean).join(" · ")
    : "start: what each rank holds before the first message";
}

/** What a stretch of a cell holds, in words, with its numbers. */
export function cellWords(scene, cell) {
  const chunk = scene.chunks[cell.chunk];
  const start = `rank ${cell.rank}${chunk.low < 0 ? "" : `, ${chunk.name}`}`;
  if (!cell.runs.length) return `${start}: no contents were watched`;
  const parts = stretches(scene, cell).map((run) => {
    const own = cell.values.filter(({ column }) => column >= run.from && column < run.to).map(({ text }) => text);
    return `${holdWords(scene, run)}; contents ${own.slice(0, 8).join(", ")}${own.length > 8 ? ", …" : ""}`;
  });
  return `${start}: ${parts.slice(0, 4).join(" | ")}${parts.length > 4 ? " | …" : ""}`;
}

/** The pictures of a round with their words as the text of an SVG file. */
export function savedRound(scene, layout, number, colors, font) {
  const size = 230;
  const { defs, of: filled } = fills(written, [...scene.ranks, scene.undecoded], "dlv");
  const { ground, ranks } = ranksPicture(written, scene, size);
  const head = [scene.title, ...scene.lines, roundWords(scene, number)];
  const { losses, notes } = scene.frames[number];
  const top = 26 + 18 * (head.length - 1) + 10;
  const low = top + Math.max(size, layout.height) + 10;
  let x = 12;
  const meanings = marks(written, scene, filled).map(([parts, wide, words]) => {
    const at = x;
    x += wide + 18 + words.length * 6.4;
    return written(
      "g",
      { transform: `translate(${at} ${low})` },
      parts,
      written("text", { x: wide + 4, y: 8, class: "dlv-words" }, words),
    );
  });
  const told = [...losses, ...notes].map((text, i) =>
    written("text", { x: 12, y: low + 34 + 18 * i, class: "dlv-start" }, text),
  );
  const width = Math.max(size + 24 + layout.width + 12, x, 12 + 6.4 * Math.max(...head.map((text) => text.length)));
  return svgFile(
    Math.ceil(width),
    low + 34 + 18 * told.length,
    written("title", {}, `${scene.title}: ${roundWords(scene, number)}`),
    written("style", {}, `svg { font-family: ${font} }\n${rules(colors)}`),
    defs,
    written("rect", { width: "100%", height: "100%", fill: colors.paper }),
    head.map((text, i) =>
      written(
        "text",
        { x: 12, y: 18 + 18 * i, class: i ? (i < head.length - 1 ? "dlv-words" : "dlv-start") : "dlv-title" },
        text,
      ),
    ),
    written("g", { transform: `translate(6 ${top})` }, ground, sendsPicture(written, scene, number, size, true), ranks),
    scene.values.length
      ? written(
          "g",
          { transform: `translate(${size + 24} ${top})` },
          headPicture(written, scene, layout),
          scene.rows.map((rank, row) => rankName(written, layout, rank, row)),
          cellsOf(scene, layout, number).map((cell) => cellPicture(written, scene, layout, cell, filled)),
          movesPicture(written, scene, layout, number),
        )
      : null,
    meanings,
    told,
  );
}
