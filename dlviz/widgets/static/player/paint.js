// Paints the player's pictures on the page or into a file: `make` is `s` of dom.js or `written` of file.js.
import { lineThrough } from "../shared/chart.js";
import { circleOf, headOf, pairsOf, placesOf } from "./circle.js";
import { cellsOf, chipLabel, chipsOf, movesOf, stripOf } from "./geometry.js";
import { broughtPicture, tileName, tilePicture } from "./tiles.js";

/** @import { Node, Place, Point } from "./circle.js" */
/** @import { Box, Cell, Chip, Layout } from "./geometry.js" */
/** @import { Scene } from "./state.js" */
/** @import { Style } from "../shared/theme.js" */

/**
 * Makes one part of a picture.
 * @template Part
 * @typedef {(tag: keyof SVGElementTagNameMap, attributes?: Record<string, any>, ...children: any[]) => Part} Make
 */

const CHARACTER = 5.6; // pixels of a character of a host's name on the circle

/** @type {Record<string, string>} */
const LINES = {
  "/": "M-2 2 2-2M0 8 8 0M6 10 10 6",
  "\\": "M-2 6 2 10M0 0 8 8M6-2 10 2",
  x: "M0 0 8 8M0 8 8 0",
  ".": "M3 4h2",
};

/** The CSS of the pictures' parts in a theme's colours; `scope` goes before each selector.
 * @type {(colors: Record<string, string>, scope?: string) => string} */
export function rules({ ink, paper, faint, grid, cell, marked, accent, wrong, name }, scope = "") {
  return Object.entries({
    text: `fill: ${ink}; font-size: 12px; text-anchor: middle; dominant-baseline: central`,
    ".dlv-rankname": "text-anchor: start; font-weight: 600",
    ".dlv-groupname path": `stroke: ${grid}; stroke-width: 1.5`,
    ".dlv-groupname text": `text-anchor: start; font-weight: 600; font-size: 11px; fill: ${faint};
      stroke: ${paper}; stroke-width: 4; paint-order: stroke; pointer-events: auto`,
    ".dlv-groupname .dlv-hostname": "text-anchor: middle; font-size: 9px",
    ".dlv-chunkname": "font-weight: 600",
    ".dlv-cellname": `fill: ${faint}; font-size: 10px`,
    ".dlv-note": `text-anchor: start; font-size: 10px; fill: ${faint}; font-variant-numeric: tabular-nums`,
    ".dlv-note.dlv-marked": `font-weight: 700; fill: ${ink}`,
    ".dlv-ground.dlv-full": `fill: ${grid}; stroke: ${ink}; stroke-width: 1.5`,
    ".dlv-value": "font-size: 11px; font-variant-numeric: tabular-nums",
    ".dlv-chiplabel": "font-size: 10px; font-weight: 700",
    ".dlv-ground": `fill: ${cell}; stroke: ${faint}; stroke-width: 0.8`,
    ".dlv-ruler": `fill: none; stroke: ${faint}; stroke-width: 0.5; opacity: 0.6`,
    ".dlv-changed": `fill: ${marked}; fill-opacity: ${name === "dark" ? 0.28 : 0.38}`,
    ".dlv-chip": "stroke-width: 0.8",
    ".dlv-padding": `fill: ${grid}; fill-opacity: 0.5`,
    ".dlv-came": "fill-opacity: 0.75",
    ".dlv-lit": `fill: none; stroke: ${marked}; stroke-width: 2`,
    ".dlv-nopixel": `fill: none; stroke: ${wrong}; stroke-width: 2`,
    ".dlv-owned": `fill: none; stroke: ${ink}; stroke-width: 2`,
    ".dlv-pixel": "font-size: 9px; font-variant-numeric: tabular-nums",
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
    ".dlv-share": `fill: ${accent}`,
    ".dlv-wrong": `fill: ${wrong}`,
    ".dlv-start": "text-anchor: start",
    ".dlv-words": `text-anchor: start; fill: ${faint}`,
    ".dlv-title": "text-anchor: start; font-size: 16px; font-weight: 700",
  })
    .map(([part, look]) => `${scope}${part} { ${look} }`)
    .join("\n");
}

/** The fills of the ranks' contributions, and last of undecoded ones: a colour, or a pattern of `defs`, whose id
 * begins with `own`. @type {<Part>(make: Make<Part>, scene: Scene, own: string) => { defs: Part, of: string[] }} */
export function fills(make, scene, own) {
  const styles = stylesOf(scene);
  const patterns = styles.map((style, i) => style.pattern && make("pattern",
    { id: `${own}-${i}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    make("rect", { width: 8, height: 8, fill: style.color }),
    make("path", { d: LINES[style.pattern] ?? LINES.x, stroke: style.line, "stroke-width": 1.2, fill: "none" })));
  return {
    defs: make("defs", {}, patterns.filter(Boolean)),
    of: styles.map((style, i) => (style.pattern ? `url(#${own}-${i})` : style.color)),
  };
}

/** @type {(scene: Scene) => Style[]} */
function stylesOf({ ranks, undecoded }) {
  return [...ranks, undecoded];
}

/** @type {<Part>(make: Make<Part>, never: boolean, end: Point, from: Point, size: number) => Part} */
function tip(make, never, end, from, size) {
  if (!never) return make("path", { d: `${lineThrough(headOf(from, end, size))}Z`, class: "dlv-head" });
  const half = size / 2;
  const cross = `M${end[0] - half} ${end[1] - half}l${size} ${size}M${end[0] - half} ${end[1] + half}l${size} ${-size}`;
  return make("path", { d: cross, "stroke-width": 2.5, class: "dlv-cross" });
}

/** The ranks on a circle, and their links.
 * @type {<Part>(make: Make<Part>, scene: Scene, size: number) => { ground: Part, ranks: Part[] }} */
export function ranksPicture(make, scene, size) {
  const { nodes, links, hubs, groups } = placesOf(scene, size);
  /** @type {(places: Node[] | [Place, Place]) => string} */
  const through = (places) => lineThrough(places.map(({ x, y }) => [x, y]));
  const ground = make("g", { "aria-hidden": "true" },
    groups.map((group) =>
      make("path", { class: "dlv-group", "stroke-width": 2 * group[0].radius + 14, d: through(group) })),
    make("path", { class: "dlv-links", d: links.map(through).join("") }),
    hubs.map(({ x, y }) => make("rect", { class: "dlv-hub", x: x - 5, y: y - 5, width: 10, height: 10, rx: 2 })),
    scene.topology.kind === "hosts" && !scene.values.length // else the grid has the names
      ? groups.map((_, i) => hostName(make, scene.rankGroups[i], hubs[i], hubs[(i + 1) % groups.length])) : null);
  const ranks = nodes.map(({ rank, x, y, radius }) =>
    make("g", { class: "dlv-rank", "data-rank": rank },
      make("circle", { cx: x, cy: y, r: radius }),
      radius > 8 ? make("text", { x, y, "font-size": Math.min(14, radius * 1.1) }, rank) : null));
  return { ground, ranks };
}

/** A host's name at its hub; a long one is shortened in the middle to fit beside the next hub's.
 * @type {<Part>(make: Make<Part>, host: Scene["rankGroups"][number], place: Place, next: Place) => Part} */
function hostName(make, { label, summary }, { x, y }, next) {
  const room = Math.max(Math.floor(Math.hypot(next.x - x, next.y - y) / CHARACTER), 5);
  const half = Math.floor((room - 1) / 2);
  const short = label.length > room ? `${label.slice(0, half)}…${label.slice(-half)}` : label;
  return make("g", { class: "dlv-groupname" },
    make("title", {}, summary.join(": ")), make("text", { x, y: y + 12, class: "dlv-hostname" }, short));
}

/** Who sends to whom in a round or, with `all` and no message in the round, in any round.
 * @type {<Part>(make: Make<Part>, scene: Scene, number: number, size: number, all: boolean) => Part[]} */
export function sendsPicture(make, scene, number, size, all) {
  if (!scene.frames[number].messages.length) {
    return (all ? pairsOf(scene, size) : []).map(([start, end]) => make("g", { class: "dlv-pair" },
      make("path", { d: lineThrough([start, end]) }), tip(make, false, end, start, 9)));
  }
  const drawn = circleOf(scene, number, size).arrows;
  const labelled = drawn.length <= 24 && scene.chunks.length > 1;
  const worded = scene.rows.length <= 6 && drawn.length <= 4;
  return drawn.map(({ message, never, label, width, path: [start, turn, end], at: [x, y] }) => {
    const curve = `M${start.join(" ")}Q${turn.join(" ")} ${end.join(" ")}`;
    const text = worded && /^\d+$/.test(label) ? `chunk ${label}` : label;
    const wide = text.length * 6.2 + 8;
    return make("g", { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
      make("path", { d: curve, class: "dlv-reach" }),
      make("path", { d: curve, "stroke-width": width.toFixed(1) }),
      tip(make, never, end, turn, 8 + width),
      label && labelled ? [
        make("rect", { class: "dlv-tag", x: x - wide / 2, y: y - 8, width: wide, height: 16, rx: 4 }),
        make("text", { x, y }, text),
      ] : null);
  });
}

/** The names of chunks and cells over the grid.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout) => Part[]} */
export function headPicture(make, scene, { columns, chunks }) {
  if (scene.image) return [];
  const names = scene.columns.map(([low]) => String(low));
  const numbered =
    scene.columns.length &&
    scene.columns.every(([low, high]) => high - low === 1) &&
    names[names.length - 1].length * 6.6 < columns[0].width;
  const chunkNames = scene.chunks.map(({ name, label }, i) => {
    const { x, width } = chunks[i];
    const text = name.length * 7 < width + 12 ? name : label;
    return make("text", { x: x + width / 2, y: 9, class: "dlv-chunkname" }, text);
  });
  const cellNames = columns.map(({ x, width }, i) =>
    make("text", { x: x + width / 2, y: 24, class: "dlv-cellname" }, names[i]));
  return numbered ? [...chunkNames, ...cellNames] : chunkNames;
}

/** A rank's name beside its row of the grid.
 * @type {<Part>(make: Make<Part>, layout: Layout, rank: number, row: number) => Part} */
export function rankName(make, layout, rank, row) {
  if (layout.tiles) return tileName(make, layout, rank, row);
  const y = layout.rows[row] + layout.rowHeight / 2 - (layout.noted ? 6 : 0);
  return make("text", { x: 0, y, class: "dlv-rankname", role: "rowheader", "data-rank": rank }, `rank ${rank}`);
}

/** The names of groups of ranks, each on a line over its rows.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout) => Part[]} */
export function groupNames(make, scene, { names, width }) {
  return names.map(({ y, group }) => {
    const { label, summary } = scene.rankGroups[group];
    return make("g", { class: "dlv-groupname" },
      make("title", {}, summary.join(": ")),
      make("path", { d: `M0 ${y}H${width}` }),
      make("text", { x: 0, y }, label));
  });
}

/** What a rank holds of a chunk: its numbers, and a box for each contribution, `filled` by rank.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout, cell: Cell, filled: string[]) => Part[]} */
export function cellPicture(make, scene, layout, cell, filled) {
  if (scene.image) return tilePicture(make, scene, layout, cell, filled);
  const { x, y, width, height } = cell;
  const rulers = cell.values.slice(1).map(({ column }) => layout.columns[column].x);
  const ruled = layout.single ? height : layout.valueHeight + 4;
  const [note, marked] = cell.note ?? ["", false];
  const parts = [make("rect", { x, y, width, height, class: marked ? "dlv-ground dlv-full" : "dlv-ground" })];
  if (note) {
    const noted = { x: 0, y: y + height / 2 + 7, class: marked ? "dlv-note dlv-marked" : "dlv-note" };
    parts.push(make("text", noted, note));
  }
  if (rulers.length && layout.columns[0].width > 5) {
    parts.push(make("path", { d: rulers.map((at) => `M${at} ${y}v${ruled}`).join(""), class: "dlv-ruler" }));
  }
  for (const { column, text, changed } of cell.values) {
    const { x: left, width: wide } = layout.columns[column];
    const high = (layout.valueHeight || height) - 1;
    if (changed) {
      parts.push(make("rect", { x: left + 0.5, y: y + 1, width: wide - 1, height: high, class: "dlv-changed" }));
    }
    if (!layout.valueHeight) continue;
    parts.push(make("text", { x: left + wide / 2, y: y + 2 + layout.valueHeight / 2, class: "dlv-value" }, text));
  }
  const styles = stylesOf(scene);
  for (const chip of cell.runs.flatMap((run) => chipsOf(scene, layout, cell, run))) {
    const own = chip.source < 0 ? styles.length - 1 : chip.source; // not decoded
    parts.push(...chipPicture(make, chip, styles[own], filled[own], chipLabel(chip)));
  }
  return parts;
}

/** @type {<Part>(make: Make<Part>, chip: Chip, style: Style, fill: string, label: string) => Part[]} */
function chipPicture(make, { x, y, width, height }, style, fill, label) {
  const box = { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1), height: Math.max(1, height - 1) };
  const ground = make("rect", { ...box, fill, stroke: style.edge, class: "dlv-chip" });
  if (!label) return [ground];
  const at = { x: x + width / 2, y: y + height / 2 + 0.5 };
  return [ground, make("text", { ...at, style: `fill: ${style.ink}`, class: "dlv-chiplabel" }, label)];
}

/** The outlines of the cells that a round's messages left and reached, and their arrows.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout, number: number) => Part[]} */
export function movesPicture(make, scene, layout, number) {
  if (scene.image) return broughtPicture(make, scene, layout, number, cellsOf(scene, layout, number));
  const { boxes, arrows } = movesOf(scene, layout, number);
  const outlines = boxes.map(({ message, what, out, x, y, width, height }) => make("rect", {
    class: `dlv-move dlv-${what}`, "data-message": message,
    x: x - out, y: y - out, width: width + 2 * out, height: height + 2 * out, rx: 3,
  }));
  const lines = arrows.map(({ message, never, points }) => {
    const [, , turn, end] = points;
    return make("g", { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
      make("path", { d: lineThrough(points), class: "dlv-reach" }),
      make("path", { d: lineThrough(points), "stroke-width": 1.6 }),
      never ? tip(make, true, end, turn, 8) : tip(make, false, [end[0] - 1, end[1]], turn, 7));
  });
  return [...outlines, ...lines];
}

/** The small pictures of all rounds: the stronger a cell's colour, the more ranks' numbers are in it.
 * @type {<Part>(make: Make<Part>, scene: Scene, width: number, height: number) => Part[]} */
export function stripPicture(make, scene, width, height) {
  return stripOf(scene, width, height).map(({ x, width: wide, shares }, number) =>
    make("g", { "data-frame": number },
      make("rect", { x, y: 0, width: wide, height, fill: "transparent" }),
      [...shares].map(([share, boxes]) => make("path", {
        class: share < 0 ? "dlv-wrong" : "dlv-share",
        "fill-opacity": share < 0 ? 1 : (0.12 + 0.88 * share ** 1.5).toFixed(3),
        d: boxes.map(boxPath).join(""),
      }))));
}

/** @type {(box: Box) => string} */
function boxPath({ x, y, width, height }) {
  const [left, top, across, down] = [x, y, width, height].map((part) => part.toFixed(1));
  return `M${left} ${top}h${across}v${down}h-${across}z`;
}

/**
 * The marks of the pictures, their widths and meanings.
 * @template Part
 * @param {Make<Part>} make
 * @param {Scene} scene
 * @param {string[]} filled how contributions are filled
 * @returns {[parts: Part[], width: number, words: string][]}
 */
export function marks(make, scene, filled) {
  if (!scene.values.length) return [];
  const styles = stylesOf(scene);
  /** @type {(i: number, label: number | string, x?: number) => Part[]} */
  const chip = (i, label, x = 0) => {
    const { edge, ink } = styles[i];
    return [
      make("rect", { x: x + 1.5, y: 1.5, width: 15, height: 13, fill: filled[i], stroke: edge }),
      make("text", { x: x + 9, y: 8.5, style: `fill: ${ink}`, class: "dlv-chiplabel" }, label),
    ];
  };
  const held = new Set(scene.holds.flatMap(({ counts }) => (counts ?? []).map(([source]) => source)));
  const ranks = scene.ranks.flatMap((_, rank) => (held.has(rank) ? rank : []));
  /** @type {ReturnType<typeof marks<Part>>} */
  const found = [];
  if (ranks.length) {
    found.push([ranks.flatMap((rank, i) => chip(rank, rank, i * 16)), ranks.length * 16 + 3, "from this rank"]);
  }
  if (scene.ranks.length && scene.holds.some(({ counts }) => !counts)) {
    found.push([chip(scene.ranks.length, "?"), 19, "no sum"]);
  }
  const box = { x: 2, y: 2, width: 18, height: 12 };
  if (scene.image) {
    const [own, outside] = ["dlv-owned", "dlv-padding"].map((kind) => [make("rect", { class: kind, ...box })]);
    found.push([own, 22, "a rank's block"], [outside, 22, "padding"]);
  }
  if (scene.frames.some(({ notes }) => notes.some(([, marked]) => marked))) {
    found.push([[make("rect", { class: "dlv-ground dlv-full", ...box })], 22, "dense"]);
  }
  found.push([[make("rect", { class: "dlv-move dlv-sent", ...box, rx: 3 })], 22, "sent"]);
  found.push([[make("rect", { class: "dlv-move dlv-received", ...box, rx: 3 })], 22, "received"]);
  found.push([[make("rect", { class: scene.image ? "dlv-lit" : "dlv-changed", ...box })], 22, "changed"]);
  if (Object.values(scene.messages).some(({ received }) => received == null)) {
    const never = [make("path", { d: "M2 8H12", "stroke-width": 1.6 }), tip(make, true, [15, 8], [2, 8], 8)];
    found.push([[make("g", { class: "dlv-arrow dlv-never" }, never)], 22, "never received"]);
  }
  return found;
}
