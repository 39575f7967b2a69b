// The nodes and their ranks, where each is in the mesh, and the groups of an axis; an axis can be dropped on them.
import { fitted } from "../shared/chart.js";
import { h, s, write } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import { fills } from "../shared/paint.js";
import { tooltip } from "../shared/tooltip.js";
import { HEIGHT, pictureOf } from "./geometry.js";
import { placeIn } from "./state.js";
import { pictureWords, rankLines } from "./words.js";

/** @import { Box, Picture } from "./geometry.js" */
/** @import { Axis, Mesh, Data } from "./state.js" */

/** @type {(own: Mesh) => HTMLElement} */
export function meshPicture({ shown }) {
  const { now } = shown;
  const title = h("h4");
  const svg = s("svg", { class: "dlv-mesh", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const element = h("div", {}, title, plot);
  const { element: box, show: showTip, hide } = tooltip(plot);
  const owners = fills(now.data.owners);
  plot.append(box);
  plot.addEventListener("pointermove", (event) => {
    const over = /** @type {Element} */ (event.target).closest("[data-rank]");
    if (over) showTip(event, rankLines(now.data, Number(over.getAttribute("data-rank"))));
    else hide();
  });
  plot.addEventListener("pointerleave", hide);
  shown.paints(["data", "width", "axis"], () => {
    const many = now.data.placements[now.data.controls.order].groups[now.axis].length;
    write(title, `Who is where, and the ${many} group${many > 1 ? "s" : ""} of ${now.axis}`);
    if (!element.clientWidth) return;
    const { controls, placements } = now.data;
    const groups = placements[controls.order].groups[now.axis];
    const width = fitted(svg, element.clientWidth, HEIGHT);
    const picture = pictureOf(controls.nodes, groups.flat().length, groups, width);
    svg.replaceChildren(...drawn(now.data, now.axis, picture, owners));
    svg.setAttribute("aria-label", pictureWords(now.data, now.axis));
  });
  return element;
}

/** @type {(data: Data, axis: Axis, picture: Picture, filled: ReturnType<typeof fills>) => SVGElement[]} */
function drawn({ controls, placements, owners, axes }, axis, { nodes, ranks, link, groups }, filled) {
  const of = placements[controls.order].groups[axis];
  const per = ranks.length / nodes.length;
  /** @type {(rank: number, box: Box) => SVGElement} */
  const rankDrawn = (rank, box) => {
    const group = of.findIndex((one) => one.includes(rank));
    const places = placeIn(controls, rank);
    /** @type {(text: string, i: number, bold: boolean) => SVGElement} */
    const line = (text, i, bold) => s("text", {
      x: box.x + box.width / 2, y: box.y + 11 + 17.5 * i, class: bold ? "dlv-named" : null,
      style: `fill: ${owners[group].ink}`,
    }, text);
    return s("g", { "data-rank": rank, "data-group": group },
      s("rect", { class: "dlv-block", rx: 4, ...box, fill: filled.of(group) }),
      line(`rank ${rank}`, 0, false), axes.map(([one], i) => line(`${one} ${places[one]}`, i + 1, one === axis)));
  };
  return [
    filled.defs,
    ...nodes.map((box, node) => s("g", { "data-place": 2 },
      s("rect", { class: "dlv-meshnode", rx: 6, ...box }),
      s("text", { class: "dlv-start", x: box.x + 8, y: box.y + 10 }, `node ${node}`),
      ranks.slice(node * per, (node + 1) * per).map((place, i) => rankDrawn(node * per + i, place)))),
    ...(link ? [s("g", { "data-place": 0 },
      s("rect", { class: "dlv-meshlink", rx: 6, ...link }),
      nodes.map(({ x, y, width, height }) =>
        s("path", { class: "dlv-meshwire", d: `M${x + width / 2} ${y + height}V${link.y}` })),
      s("text", { class: "dlv-start", x: link.x + 8, y: link.y + link.height / 2 },
        `between nodes: ${controls.slower === 1 ? "as fast as inside" : `${digits(controls.slower)} times slower`}`))]
      : []),
    ...groups.map(({ group, path }) => s("path", { class: "dlv-meshgroup", d: path, stroke: owners[group].color })),
  ];
}
