// One moment as a picture: the server among its workers, what each does, the messages in transit.
import { s } from "../shared/dom.js";
import { fills } from "../shared/paint.js";
import { doingAt, dotsAt, spotsOf } from "./geometry.js";
import { nameOf, served } from "./state.js";
import { doesWords, momentWords } from "./words.js";

/** @import { Doing, Dot, Spot } from "./geometry.js" */
/** @import { Consistency, Side, Data } from "./state.js" */
/** @import { Style } from "../shared/theme.js" */

const SIZE = 192; // pixels
const DOT = 5;

/** @type {(own: Consistency) => SVGSVGElement} */
export function momentPicture({ shown }) {
  const { now } = shown;
  const svg = s("svg", { class: "dlv-moment", role: "img", viewBox: `0 0 ${SIZE} ${SIZE}`, width: SIZE, height: SIZE });
  const { shown: kinds, look } = now.data;
  const filled = fills(look.kinds, [...kinds, "idle"]);
  shown.paints(["predicted", "measured", "which", "at"], () => {
    const side = now[now.which] ?? now.predicted;
    const doing = doingAt(side, now.at);
    svg.replaceChildren(...drawn(side, now.data, doing, now.at, filled));
    svg.setAttribute("aria-label", momentWords(side, now.data.shown, now.at, doing));
  });
  return svg;
}

/** @type {(side: Side, data: Data, doing: Doing[], at: number, filled: ReturnType<typeof fills>) => SVGElement[]} */
function drawn(side, { shown, look: { kinds } }, doing, at, filled) {
  const spots = spotsOf(side, SIZE);
  const dots = dotsAt(side, at, spots);
  return [
    filled.defs,
    s("path", { class: "dlv-links", d: linksOf(side, spots) }),
    ...spots.map((spot) => rankOf(side, shown, spot, doing[spot.rank], filled.of, kinds)),
    ...dots.map((dot) => s("circle", {
      class: "dlv-dot", "data-message": dot.message, cx: dot.x.toFixed(1), cy: dot.y.toFixed(1), r: DOT,
      fill: kinds[dot.push || !served(side) ? "send" : "recv"].color,
    }, s("title", {}, dotWords(side, dot)))),
  ];
}

/** @type {(side: Side, spots: Spot[]) => string} */
function linksOf(side, spots) {
  /** @type {(from: Spot, to: Spot) => string} */
  const line = (from, to) => `M${from.x.toFixed(1)} ${from.y.toFixed(1)}L${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
  if (served(side)) return spots.slice(1).map((spot) => line(spots[0], spot)).join("");
  const pairs = new Set(side.messages.src.map((src, i) => `${src} ${side.messages.dst[i]}`));
  return [...pairs].map((pair) => pair.split(" ").map((rank) => spots[Number(rank)]))
    .map(([from, to]) => line(from, to)).join("");
}

/** A server or a worker: its fill shows what it does, below its name is its clock.
 * @type {(side: Side, shown: string[], spot: Spot, doing: Doing, fillOf: (kind: string) => string, kinds:
 *   Record<string, Style>) => SVGElement} */
function rankOf(side, shown, { rank, x, y, radius }, doing, fillOf, kinds) {
  const kind = doing.kind < 0 ? "idle" : doing.waits ? "wait" : shown[doing.kind];
  const server = served(side) && rank === 0;
  const box = { class: "dlv-node", fill: fillOf(kind) };
  const shape = server
    ? s("rect", { ...box, x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius, rx: 4 })
    : s("circle", { ...box, cx: x, cy: y, r: radius });
  const ink = { fill: kind === "idle" ? null : kinds[kind].ink };
  return s("g", { "data-rank": rank, "data-does": doesWords(side, shown, doing) },
    s("title", {}, `${nameOf(side, rank)} ${doesWords(side, shown, doing)}`), shape,
    server ? s("text", { x, y, style: inked(ink), class: "dlv-small" }, "server") : [
      s("text", { x, y: y - 4, style: inked(ink) }, rank),
      s("text", { x, y: y + 7, style: inked(ink), class: "dlv-small" }, `c ${doing.clock}`),
    ]);
}

/** @type {(ink: { fill: string | null }) => string | null} */
function inked({ fill }) {
  return fill ? `fill: ${fill}` : null;
}

/** @type {(side: Side, dot: Dot) => string} */
function dotWords(side, { src, dst, push, waits }) {
  const what = !served(side) ? "model" : push ? "push" : "pull";
  return `${what} from ${nameOf(side, src)} to ${nameOf(side, dst)}${waits ? ", which is busy" : ""}`;
}
