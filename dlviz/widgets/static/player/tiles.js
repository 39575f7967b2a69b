// An image cut between ranks: each rank's tile at its place, every cell in the colour of the rank whose pixel it holds.
import { lineThrough } from "../shared/chart.js";
import { headOf } from "./circle.js";
import { messagesIn } from "./state.js";

/** @import { Point } from "./circle.js" */
/** @import { Box, Cell, Layout } from "./geometry.js" */
/** @import { Make } from "./paint.js" */
/** @import { Scene } from "./state.js" */

/** A cell of a tile: `pixel` that it holds (-1: none), the rank that owns it (-1: none does), its `text`, whether it
 * has `changed`, is rank's `own`, `outside` of the image, or `wrong`: holds another pixel than belongs there.
 * @typedef {Box & { pixel: number, owner: number, text: string, changed: boolean, own: boolean, outside: boolean,
 *   wrong: boolean }} Pixel */

const [NAME, PAD] = [15, 4]; // pixels above the first tile, and around all
const [LEAST, MOST, READABLE] = [8, 34, 14]; // of a cell; one in which its number can be read
const CHARACTER = 5.4; // of a digit

/** The tiles in a picture `width` pixels wide and, if possible, `tall` pixels high: as in the image, apart.
 * @type {(scene: Scene, width: number, tall?: number) => Layout} */
export function tilesLayout({ image, columns, chunks }, width, tall = Infinity) {
  const boxes = image?.tiles.map((tile) => tile && {
    y: tile.held[0] + tile.moved[0], x: tile.held[2] + tile.moved[1],
    height: tile.held[1] - tile.held[0], width: tile.held[3] - tile.held[2],
  }) ?? [];
  const whole = around(boxes.flatMap((box) => box ?? []));
  const room = Math.min((width - 2 * PAD) / whole.width, (tall - 2 * PAD - NAME) / whole.height);
  const side = Math.max(LEAST, Math.min(MOST, Math.floor(room)));
  const tiles = boxes.map((box) => box && {
    x: PAD + side * (box.x - whole.x), y: PAD + NAME + side * (box.y - whole.y),
    width: side * box.width, height: side * box.height,
  });
  return {
    tiles, side, single: true, lines: 1, gap: NAME, valueHeight: 0, stripHeight: 0, rowHeight: side, names: [],
    columns: columns.map(() => ({ x: PAD, width: side })),
    chunks: chunks.map(() => ({ x: PAD, width: side * whole.width, gutter: 0, step: 0 })),
    rows: tiles.map((tile) => tile?.y ?? 0),
    width: side * whole.width + 2 * PAD, height: side * whole.height + 2 * PAD + NAME,
  };
}

/** The cells of a rank's tile. @type {(scene: Scene, layout: Layout, cell: Cell) => Pixel[]} */
export function pixelsOf({ image, holds }, { tiles, side = 0 }, { row, runs, values }) {
  const [box, tile] = [tiles?.[row], image?.tiles[row]];
  if (!image || !box || !tile) return [];
  const { shape: [high, wide] } = image;
  const { own, held } = tile;
  const across = held[3] - held[2];
  return runs.map(({ from, hold }, i) => {
    const [down, along] = [Math.floor(from / across), from % across];
    const [y, x] = [held[0] + down, held[2] + along];
    const outside = y < 0 || y >= high || x < 0 || x >= wide;
    const { counts, from: pixel = -1 } = holds[hold];
    return {
      x: box.x + along * side, y: box.y + down * side, width: side, height: side,
      pixel, owner: counts?.[0]?.[0] ?? -1, text: pixel < 0 ? "" : values[i].text, changed: values[i].changed,
      own: y >= own[0] && y < own[1] && x >= own[2] && x < own[3], outside,
      wrong: counts == null || (pixel >= 0 && (outside || pixel !== y * wide + x)),
    };
  });
}

/** A rank's name over its tile. @type {<Part>(make: Make<Part>, layout: Layout, rank: number, row: number) => Part} */
export function tileName(make, { tiles }, rank, row) {
  const { x = 0, y = 0 } = tiles?.[row] ?? {};
  const look = { x, y: y - 7, class: "dlv-rankname", role: "rowheader", "data-rank": rank };
  return make("text", look, tiles?.[row] ? `rank ${rank}` : "");
}

/** A rank's tile: its pixels in the colours of their owners, and a frame around its own block.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout, cell: Cell, filled: string[]) => Part[]} */
export function tilePicture(make, scene, layout, cell, filled) {
  const pixels = pixelsOf(scene, layout, cell);
  const numbered = (layout.side ?? 0) >= READABLE;
  const parts = pixels.flatMap((one) => {
    const { x, y, width, height, owner, text, changed, outside, wrong } = one;
    const style = scene.ranks[owner];
    const box = { x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1 };
    const found = [make("rect", style ? { ...box, fill: filled[owner], class: one.own ? null : "dlv-came" }
      : { ...box, class: outside ? "dlv-padding" : "dlv-ground" })];
    if (changed) {
      found.push(make("rect", { class: "dlv-lit", x: x + 1.5, y: y + 1.5, width: width - 3, height: height - 3 }));
    }
    if (wrong) {
      const cross = `M${x} ${y}l${width} ${height}m0 ${-height}l${-width} ${height}`;
      found.push(make("path", { class: "dlv-nopixel", d: cross }));
    }
    if (numbered && style && text.length * CHARACTER < width) {
      const at = { x: x + width / 2, y: y + height / 2 + 0.5 };
      found.push(make("text", { ...at, style: `fill: ${style.ink}`, class: "dlv-pixel" }, text));
    }
    return found;
  });
  const own = pixels.filter((one) => one.own);
  return own.length ? [...parts, make("rect", { ...around(own), class: "dlv-owned" })] : parts;
}

/** @type {(boxes: Box[]) => Box} */
function around(boxes) {
  const [x, y] = [Math.min(...boxes.map((one) => one.x)), Math.min(...boxes.map((one) => one.y))];
  const right = Math.max(...boxes.map((one) => one.x + one.width));
  return { x, y, width: right - x, height: Math.max(...boxes.map((one) => one.y + one.height)) - y };
}

/** The pixels that a frame's messages brought, where they left and where they came, and an arrow for each.
 * @type {(scene: Scene, cells: Cell[], layout: Layout, number: number) => { message: number, never: boolean, from:
 *   Box[], to: Box[] }[]} */
export function broughtBy(scene, cells, layout, number) {
  return messagesIn(scene, number).filter(({ src, dst }) => src !== dst).map(({ message, src, dst, received }) => {
    const [source, target] = [src, dst].map((rank) => {
      const cell = cells.find((one) => one.rank === rank);
      return cell ? pixelsOf(scene, layout, cell) : [];
    });
    const to = target.filter((one) => one.changed && one.pixel >= 0);
    const came = new Set(to.map(({ pixel }) => pixel));
    return { message, never: received == null, from: source.filter(({ pixel }) => came.has(pixel)), to };
  });
}

/** The outlines of the pixels that a frame's messages brought, and their arrows.
 * @type {<Part>(make: Make<Part>, scene: Scene, layout: Layout, number: number, cells: Cell[]) => Part[]} */
export function broughtPicture(make, scene, layout, number, cells) {
  return broughtBy(scene, cells, layout, number).flatMap(({ message, never, from, to }) => {
    if (!from.length || !to.length) return [];
    const [left, came] = [around(from), around(to)];
    const [start, end] = [left, came].map(({ x, y, width, height }) =>
      /** @type {Point} */ ([x + width / 2, y + height / 2]));
    const outline = (/** @type {Box} */ box, /** @type {string} */ what) => make("rect", {
      ...box, class: `dlv-move dlv-${what}`, "data-message": message, rx: 2,
    });
    return [outline(left, "sent"), outline(came, "received"), make("g",
      { class: never ? "dlv-arrow dlv-never" : "dlv-arrow", "data-message": message },
      make("path", { d: lineThrough([start, end]), class: "dlv-reach" }),
      make("path", { d: lineThrough([start, end]), "stroke-width": 2 }),
      make("path", { d: `${lineThrough(headOf(start, end, 9))}Z`, class: "dlv-head" }))];
  });
}

/** What a rank's tile holds, in words. @type {(scene: Scene, cell: Cell) => string} */
export function tileWords(scene, cell) {
  const pixels = pixelsOf(scene, tilesLayout(scene, 0), cell);
  const own = scene.image?.tiles[cell.row]?.own;
  if (!pixels.length || !own) return `rank ${cell.rank}: no contents were watched`;
  const others = scene.rows.filter((rank) => rank !== cell.rank)
    .map((rank) => [rank, pixels.filter(({ owner }) => owner === rank).length]).filter(([, many]) => many);
  const empty = pixels.filter((one) => !one.outside && one.pixel < 0).length;
  const wrong = pixels.filter((one) => one.wrong).length;
  return [
    `rank ${cell.rank} owns rows ${rangeOf(own[0], own[1])} and columns ${rangeOf(own[2], own[3])}`,
    `holds ${others.map(([rank, many]) => `${many} of rank ${rank}`).join(", ") || "its own alone"}`,
    empty ? `${empty} empty` : "", wrong ? `${wrong} wrong` : "",
  ].filter(Boolean).join("; ");
}

/** @type {(from: number, to: number) => string} */
function rangeOf(from, to) {
  return to <= from ? "none" : to - from === 1 ? `${from}` : `${from}–${to - 1}`;
}
