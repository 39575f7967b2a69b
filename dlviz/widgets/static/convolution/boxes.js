// x, w and y as boxes of blocks in the colours of their ranks: images side by side, channels one behind the other.
import { fitted } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { fills } from "../shared/paint.js";
import { tooltip } from "../shared/tooltip.js";

/** @import { Explorer } from "../shared/explorer.js" */
/** @import { Data, Tensor } from "./index.js" */

/** A rank's block, in pixels. @typedef {{ rank: number, x: number, y: number, width: number, height: number }} Sheet */
/** A tensor's blocks, those at the back first, and the middle of its column.
 * @typedef {{ tensor: Tensor, sheets: Sheet[], middle: number }} Placed */

const HEIGHT = 190; // pixels of the picture
const [NAME, MOVES, EDGE, GAP] = [33, 18, 10, 8]; // pixels above, below and beside a tensor, between two images
const [STACK, STEP] = [22, 6]; // pixels of all sheets behind the first, of one at most
const CHARACTER = 6; // pixels of a character, on average

/** @type {(own: Explorer<Data>) => HTMLElement} */
export function boxes({ shown }) {
  const { now } = shown;
  const svg = s("svg", { class: "dlv-matrices", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  const element = h("div", { class: "dlv-owners" }, h("h4", {}, "Which rank has which block"), plot);
  plot.append(tip.element);
  const looks = fills(now.data.ranks);
  let hot = -1;

  /** @type {(rank: number) => void} */
  function point(rank) {
    if (rank === hot) return;
    hot = rank;
    for (const one of svg.querySelectorAll("[data-block]")) {
      one.classList.toggle("dlv-dim", hot >= 0 && one.getAttribute("data-block") !== String(hot));
    }
  }
  svg.addEventListener("pointermove", (event) => {
    const part = /** @type {Element} */ (event.target).closest("[data-block]");
    const rank = Number(part?.getAttribute("data-block") ?? -1);
    point(rank);
    const words = (/** @type {Tensor} */ tensor) => `${tensor.name}: ${blockWords(tensor, rank)}`;
    if (rank >= 0) tip.show(event, [`rank ${rank}`, ...now.data.tensors.map(words)]);
    else tip.hide();
  });
  svg.addEventListener("pointerleave", () => {
    point(-1);
    tip.hide();
  });
  shown.paints(["data", "width"], () => {
    if (!plot.clientWidth) return;
    const width = fitted(svg, plot.clientWidth, HEIGHT);
    const placed = placedIn(now.data.tensors, width, HEIGHT);
    svg.replaceChildren(looks.defs, ...placed.flatMap((one) => drawn(one, looks.of, width / placed.length)));
    svg.setAttribute("aria-label", now.data.tensors.map(({ name, shape, moves }) =>
      `${name}, ${shape.join(" × ")}: ${moves}`).join(". "));
  });
  return element;
}

/** @type {(placed: Placed, fillOf: (rank: number) => string, room: number) => SVGElement[]} */
function drawn({ tensor: { name, shape, moves }, sheets, middle }, fillOf, room) {
  const most = Math.floor(room / CHARACTER);
  return [
    s("text", { x: middle, y: 11, class: "dlv-named" }, name),
    s("text", { x: middle, y: 24 }, shape.join(" × ")),
    ...sheets.map(({ rank, x, y, width, height }) => s("path", {
      class: "dlv-block", "data-block": rank, d: `M${x} ${y}h${width}v${height}h${-width}z`, fill: fillOf(rank),
    })),
    s("text", { x: middle, y: HEIGHT - 6 }, moves.length > most ? `${moves.slice(0, most - 1)}…` : moves,
      s("title", {}, moves)),
  ];
}

/** The tensors in columns. @type {(tensors: Tensor[], width: number, height: number) => Placed[]} */
export function placedIn(tensors, width, height) {
  const room = width / tensors.length;
  const tall = height - NAME - MOVES;
  return tensors.map((tensor, i) => {
    const ranks = tensor.blocks.flatMap((block, rank) => (isEmpty(block) ? [] : [rank]));
    const sheets = tensor.name === "w" ? stacked(tensor, ranks, room - 2 * EDGE, tall)
      : images(tensor, ranks, room - 2 * EDGE, tall);
    const right = Math.max(...sheets.map((one) => one.x + one.width));
    const left = i * room + (room - right) / 2;
    const there = sheets.map((one) => ({ ...one, x: one.x + left, y: one.y + NAME }));
    return { tensor, middle: (i + 0.5) * room, sheets: there };
  });
}

/** @type {(block: number[]) => boolean} */
function isEmpty(block) {
  return block.some((low, i) => i % 2 === 0 && low === block[i + 1]);
}

/** The places of values among all of them, and how many there are. @type {(all: number[]) => [(value: number) =>
 *   number, number]} */
function among(all) {
  const every = [...new Set(all)].sort((a, b) => a - b);
  return [(value) => every.indexOf(value), every.length];
}

/** The images of each part of the samples side by side, each a stack of parts of the channels.
 * @type {(tensor: Tensor, ranks: number[], wide: number, tall: number) => Sheet[]} */
function images({ shape: [, , rows, columns], blocks }, ranks, wide, tall) {
  const [place, many] = among(ranks.map((rank) => blocks[rank][0]));
  const [depth, deep] = among(ranks.map((rank) => blocks[rank][2]));
  const across = many > 3 ? Math.ceil(many / 2) : many;
  const down = Math.ceil(many / across);
  const step = deep > 1 ? Math.min(STEP, STACK / (deep - 1)) : 0;
  const behind = step * (deep - 1);
  const side = Math.min((wide - GAP * (across - 1)) / across, (tall - GAP * (down - 1)) / down) - behind;
  return ranks.map((rank) => {
    const [n, , c, , top, bottom, left, right] = blocks[rank];
    const [at, back] = [place(n), depth(c)];
    const x = (at % across) * (side + behind + GAP) + back * step;
    const y = Math.floor(at / across) * (side + behind + GAP) + behind - back * step;
    return {
      rank, back, x: x + (side * left) / columns, y: y + (side * top) / rows,
      width: (side * (right - left)) / columns, height: (side * (bottom - top)) / rows,
    };
  }).sort((one, other) => other.back - one.back);
}

/** The filters down, their channels across; ranks with the same block behind each other.
 * @type {(tensor: Tensor, ranks: number[], wide: number, tall: number) => Sheet[]} */
function stacked({ shape: [filters, channels], blocks }, ranks, wide, tall) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  const backs = ranks.map((rank) => {
    const key = blocks[rank].join();
    seen.set(key, (seen.get(key) ?? -1) + 1);
    return seen.get(key) ?? 0;
  });
  const deep = Math.max(...backs);
  const step = deep ? Math.min(STEP, STACK / deep) : 0;
  const side = Math.min(wide, tall) - step * deep;
  return ranks.map((rank, i) => {
    const [top, bottom, left, right] = blocks[rank];
    return {
      rank, back: backs[i], x: (side * left) / channels + backs[i] * step,
      y: (side * top) / filters + (deep - backs[i]) * step,
      width: (side * (right - left)) / channels, height: (side * (bottom - top)) / filters,
    };
  }).sort((one, other) => other.back - one.back);
}

/** A rank's block in words. @type {(tensor: Tensor, rank: number) => string} */
function blockWords({ name, blocks }, rank) {
  const names = name === "w" ? ["filters", "channels"]
    : ["samples", name === "x" ? "channels" : "filters", "rows", "columns"];
  const block = blocks[rank];
  if (isEmpty(block)) return "nothing";
  return names.map((dim, i) => `${dim} ${block[2 * i]}–${block[2 * i + 1] - 1}`).join(", ");
}
