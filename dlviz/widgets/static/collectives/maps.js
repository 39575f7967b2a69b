// The cheapest algorithm by ranks and size: a small map for each network.
import { below, beside, fitted, grid, pointIn } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";
import { boxesOf, mapOf } from "./geometry.js";
import { isOf, styleOf } from "./state.js";

/** @import { Collectives, Controls, Data } from "./state.js" */
/** @import { Box, Mark } from "../shared/chart.js" */
/** @import { WinnerMap } from "./geometry.js" */

/** `cell` marks the chosen ranks and size. @typedef {{ topology: string, name: string, box: Box, map: WinnerMap |
 * null, title: SVGElement, edge: SVGElement, cell: SVGElement }} Network */

const COUNTING = "is being calculated …";
const UNKNOWN = "needs a kernel";
const EDGE = 28; // pixels: half of the longest size

/** The maps, `height` pixels high. @type {(own: Collectives, height: number) => HTMLElement} */
export function winnerMaps({ shown, choose }, height) {
  const { now } = shown;
  const title = h("h4", { title: "Click to choose a network, ranks and a size." }, "Cheapest by ranks ↑ and size →");
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const element = h("div", { class: "dlv-chart dlv-map" }, title, svg);
  /** @type {Network[]} */
  let networks = [];
  let drawn = ""; // the width and data of the last drawing

  svg.addEventListener("click", (event) => {
    const [x, y] = pointIn(svg, event);
    const at = networks.find(({ box }) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom);
    if (!at?.map) return;
    const { ranks, place } = at.map.found(x, y);
    choose({ topology: at.topology, ranks, nbytes: now.data.sizes[place] });
  });
  shown.paints(["controls", "maps", "live", "width", "part"], () => {
    const { data, controls, maps } = now;
    if (!element.clientWidth) return;
    const known = (isOf(maps, controls) && maps.of) || {};
    const missing = now.live ? COUNTING : UNKNOWN;
    const width = fitted(svg, element.clientWidth, height);
    const wanted = JSON.stringify([width, missing, known]);
    if (wanted !== drawn) {
      const all = Object.entries(data.topologies);
      const boxes = boxesOf(all.length, width, height);
      networks = all.map(([topology, words], i) => networkOf(data, topology, words, boxes[i], known[topology]));
      svg.replaceChildren(...networks.flatMap((one, i) => picture(data, one, i, missing)));
      const words = networks.map((one) => said(data, one, missing));
      svg.setAttribute("aria-label", `Cheapest by ranks and size. ${words.join(" ")}`);
      drawn = wanted;
    }
    for (const one of networks) mark(one, controls);
  });
  return element;
}

/** @type {(data: Data, topology: string, words: string, box: Box, rows: number[][] | undefined) => Network} */
function networkOf(data, topology, words, box, rows) {
  const [name] = words.split(",");
  const [width, height] = [box.right - box.left, box.bottom - box.top];
  return {
    topology, name, box, map: rows ? mapOf(data, rows, box) : null,
    title: s("text", { x: box.left, y: box.top - 8, class: "dlv-start" }, name),
    edge: s("rect", { class: "dlv-mapedge", x: box.left, y: box.top, width, height }),
    cell: s("rect", { class: "dlv-chosencell", width: 10, rx: 2 }),
  };
}

/** The side on which the label of a size at a map's edge stays within the map: another map is beside it.
 * @type {(box: Box, mark: Mark) => string | undefined} */
function within({ left, right }, { at }) {
  return at - left < EDGE ? "dlv-atstart" : right - at < EDGE ? "dlv-atend" : undefined;
}

/** Marks what is chosen. @type {(network: Network, controls: Controls) => void} */
function mark({ topology, map, title, edge, cell }, controls) {
  for (const one of [title, edge]) one.classList.toggle("dlv-chosenmap", topology === controls.topology);
  if (!map) return;
  const { x, y, height } = map.cell(controls.ranks, controls.nbytes);
  cell.setAttribute("x", String(x - 5));
  cell.setAttribute("y", String(y - 1.5));
  cell.setAttribute("height", String(height + 3));
}

/** @type {(data: Data, network: Network, missing: string) => string} */
function said({ names, algorithms }, { name, map }, missing) {
  return map ? `On ${name}: ${map.names.map(({ winner }) => names[algorithms[winner]]).join(", ")}.`
    : `The map of ${name} ${missing}.`;
}

/** @type {(data: Data, network: Network, place: number, missing: string) => SVGElement[]} */
function picture(data, { box, map, title, edge, cell }, place, missing) {
  const middle = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
  if (!map) return [title, s("text", middle, missing), edge];
  /** @type {(winner: number) => string} */
  const words = (winner) => data.names[data.algorithms[winner]];
  return [
    title,
    ...map.parts.map(({ winner, x, y, width, height }) => s("rect", {
      x, y, width: width + 0.4, height: height + 0.4, fill: styleOf(data, data.algorithms[winner]).color,
    }, s("title", {}, words(winner)))),
    grid(box, map.sizes, map.ranks),
    ...map.names.filter(({ fits }) => fits).map(({ winner, x, y }) =>
      s("text", { x, y, class: "dlv-winner" }, words(winner))),
    ...(place % 2 === 0 ? beside(box, map.ranks) : []),
    ...(place < Object.keys(data.topologies).length - 2 ? []
      : map.sizes.flatMap((mark) => below(box, [mark], bytes, within(box, mark)))),
    edge, cell,
  ];
}
