// The graph in the colours of its devices: a click gives a group to the next one.
import { fitted } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";
import { fills } from "../shared/paint.js";
import { tooltip } from "../shared/tooltip.js";

/** @import { Data, Group, Placement } from "./index.js" */

/** In pixels. @typedef {{ x: number, y: number, radius: number }} Node */

export const HEIGHT = 212; // pixels of the picture
const [EDGE, LARGEST, FAR] = [14, 17, 54]; // pixels: around the graph, of a radius, between two rows at most
const HEAD = 5; // pixels of an arrow's head

/** The device of each group, as the reader sees them; those of the last answer until another graph has come.
 * @type {(now: Placement["shown"]["now"]) => number[]} */
export function devicesOf({ controls, data }) {
  const { placement } = controls.graph === data.controls.graph ? controls : data.controls;
  return placement.split(",").map(Number);
}

/** Selects a group in both pictures. @type {(own: Placement, group: number) => void} */
export function select({ shown, frame }, group) {
  shown.show({ group });
  if (group < 0) return;
  frame.say(groupWords(shown.now.data, devicesOf(shown.now), group).join(", "));
}

/** Gives a group to a device, by default the next one, and selects it.
 * @type {(own: Placement, group: number, device?: number) => void} */
export function give(own, group, device) {
  const { now } = own.shown;
  const many = now.controls.devices;
  if (group < 0 || now.controls.graph !== now.data.controls.graph || (device ?? 0) >= many) return;
  const devices = devicesOf(now);
  devices[group] = device ?? (devices[group] + 1) % many;
  if (own.can("placement")) own.choose({ placement: devices.join(",") });
  select(own, group);
}

/** @type {(own: Placement) => HTMLElement} */
export function graphPicture(own) {
  const { shown } = own;
  const { now } = shown;
  const svg = s("svg", { class: "dlv-graph", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  plot.append(tip.element);
  const looks = fills(now.data.ranks);
  const groupAt = (/** @type {Event} */ event) =>
    Number(/** @type {Element} */ (event.target).closest("[data-group]")?.getAttribute("data-group") ?? -1);
  svg.addEventListener("click", (event) => give(own, groupAt(event)));
  svg.addEventListener("pointermove", (event) => {
    const group = groupAt(event);
    if (group >= 0) tip.show(event, groupWords(now.data, devicesOf(now), group));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  shown.paints(["data", "controls", "group", "width"], () => {
    if (!plot.clientWidth) return;
    const nodes = placed(now.data.groups, fitted(svg, plot.clientWidth, HEIGHT), HEIGHT);
    svg.replaceChildren(looks.defs, ...drawn(now.data, devicesOf(now), nodes, now.group, looks.of));
    const words = devicesOf(now).map((device, group) => `group ${group} on device ${device}`);
    svg.setAttribute("aria-label", `The graph: ${words.join(", ")}`);
  });
  return h("div", { class: "dlv-chart" },
    h("h4", {}, "Click a group: the next device; broken arrows are messages"), plot);
}

/** Where groups are drawn. @type {(groups: Group[], width: number, height: number) => Node[]} */
export function placed(groups, width, height) {
  const [columns, rows] = [0, 1].map((i) => groups.map(({ at }) => at[i]));
  const across = (width - 2 * EDGE) / (1 + Math.max(...columns));
  const tall = Math.max(...rows) - Math.min(...rows);
  const down = Math.min(FAR, (height - 2 * EDGE) / (1 + tall));
  const middle = (Math.max(...rows) + Math.min(...rows)) / 2;
  const radius = Math.min(LARGEST, 0.36 * across, 0.42 * down);
  return groups.map(({ at: [column, row] }) =>
    ({ x: EDGE + (column + 0.5) * across, y: height / 2 + (row - middle) * down, radius }));
}

/** @type {(data: Data, devices: number[], nodes: Node[], chosen: number, fillOf: (device: number) => string) =>
 *   SVGElement[]} */
function drawn({ groups, ranks, played }, devices, nodes, chosen, fillOf) {
  const arrows = groups.flatMap(({ parents }, child) => parents.map((parent) => {
    const [from, to] = [nodes[parent], nodes[child]];
    const [x1, x2] = [from.x + from.radius, to.x - to.radius - 1];
    const middle = (x1 + x2) / 2;
    const own = parent === chosen || child === chosen;
    return s("path", {
      class: `dlv-value${devices[parent] === devices[child] ? "" : " dlv-message"}${own ? " dlv-chosen" : ""}`,
      d: `M${x1} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${x2} ${to.y}m${-HEAD} ${-HEAD / 2}l${HEAD} `
        + `${HEAD / 2}l${-HEAD} ${HEAD / 2}`,
    });
  }));
  const path = new Set(played.critical.map((i) => played.bars[i]).filter(({ lane }) => lane === "compute")
    .map(({ stage }) => stage));
  return [...arrows, ...nodes.map(({ x, y, radius }, group) => s("g", { "data-group": group, class: "dlv-group" },
    s("circle", {
      class: `dlv-node${path.has(group) ? " dlv-onpath" : ""}`, cx: x, cy: y, r: radius,
      fill: fillOf(devices[group]), "data-device": devices[group],
    }),
    group === chosen ? s("circle", { class: "dlv-ring", cx: x, cy: y, r: radius + 4 }) : null,
    s("text", { x, y, style: `fill: ${ranks[devices[group]].ink}` }, group)))];
}

/** @type {(data: Data, devices: number[], group: number) => string[]} */
export function groupWords({ groups }, devices, group) {
  const { seconds: own, parents } = groups[group];
  return [`group ${group} on device ${devices[group]}`, seconds(own),
    parents.length ? `needs the value${parents.length > 1 ? "s" : ""} of ${parents.join(", ")}` : "needs no value"];
}
