// A moment of a run as plain values: what each rank does, which messages are in transit and where; the next moment.
import { clamp, upTo } from "../shared/arrays.js";
import { placesOf } from "../player/circle.js";
import { served } from "./state.js";

/** @import { Place } from "../player/circle.js" */
/** @import { Side } from "./state.js" */

/** A rank at a moment: the index of its kind, -1 if it does nothing; `clock` counts the gradients that it has pushed,
 * or without a server applied; `age` is the staleness of the last one applied, null if none.
 * @typedef {{ rank: number, kind: number, waits: boolean, done: boolean, clock: number, age: number | null }} Doing */

/** @typedef {Place & { message: number, src: number, dst: number, push: boolean, waits: boolean }} Dot */

/** @typedef {Place & { rank: number, radius: number }} Spot */

const PACE = 4e-5; // s of the run per ms of the reader's time
const FLIGHT = 1.25e-6; // the same while a message is in transit

/** What each rank does at a moment (s). @type {(side: Side, at: number) => Doing[]} */
export function doingAt(side, at) {
  const { first, start, end, waited, kind, applied, messages } = side;
  const many = upTo(applied.time, at);
  return Array.from({ length: side.ranks }, (_, rank) => {
    const [low, high] = [first[rank], first[rank + 1]];
    const place = upTo(start, at, low, high) - 1;
    const busy = place >= low && at < end[place];
    /** @type {number | null} */
    let age = null;
    let clock = 0;
    for (let i = 0; i < many; i++) {
      if (applied.rank[i] !== rank) continue;
      clock += 1;
      if (applied.staleness[i] >= 0) age = applied.staleness[i];
    }
    if (served(side)) {
      clock = messages.received.filter((when, i) => when <= at && messages.src[i] === rank).length;
    }
    return {
      rank, kind: busy ? kind[place] : -1, waits: busy && at < waited[place], done: place === high - 1 && !busy,
      clock, age,
    };
  });
}

/** Where each rank is in a square of `size` pixels, the server in the middle.
 * @type {(side: Side, size: number) => Spot[]} */
export function spotsOf(side, size) {
  const all = Array.from({ length: side.ranks }, (_, rank) => rank);
  const rows = served(side) ? all.slice(1) : all;
  const { nodes } = placesOf(/** @type {any} */ ({ rows, topology: { kind: "ring", sizes: [] } }), size);
  const around = nodes.map(({ rank, x, y, radius }) => ({ rank, x, y, radius: Math.max(radius, 15) }));
  if (!served(side)) return around;
  const middle = { rank: 0, x: size / 2, y: size / 2, radius: 20 };
  const beside = rows.length === 1 ? [{ ...around[0], y: 26 }] : around;
  return [middle, ...beside];
}

/** The messages in transit at a moment (s), and at the receiver those that arrived and are not received yet.
 * @type {(side: Side, at: number, spots: Spot[]) => Dot[]} */
export function dotsAt(side, at, spots) {
  const { src, dst, sent, arrived, received } = side.messages;
  const central = served(side);
  return sent.flatMap((leaves, message) => {
    if (at < leaves || at >= received[message]) return [];
    const share = clamp((at - leaves) / (arrived[message] - leaves || 1), 0, 1);
    const [from, to] = [spots[src[message]], spots[dst[message]]];
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const along = from.radius + share * Math.max(0, length - from.radius - to.radius);
    return [{
      message, src: src[message], dst: dst[message], push: central && dst[message] === 0, waits: share === 1,
      x: from.x + ((to.x - from.x) * along) / length, y: from.y + ((to.y - from.y) * along) / length,
    }];
  });
}

/** The moment (s) after `ms` of the reader's time: slower while a message is in transit, so that it can be seen.
 * @type {(side: Side, at: number, ms: number) => number} */
export function advanced({ edges, aloft, last }, at, ms) {
  let left = ms;
  while (left > 0 && at < last) {
    const place = upTo(edges, at);
    const pace = place && aloft[place - 1] > 0 ? FLIGHT : PACE;
    const edge = Math.min(edges[place] ?? last, last);
    if (at + left * pace < edge) return at + left * pace;
    left -= (edge - at) / pace;
    at = edge;
  }
  return at;
}

/** The next, or previous, moment (s) at which a message leaves or arrives.
 * @type {(side: Side, at: number, forward: boolean) => number} */
export function stepped({ edges, last }, at, forward) {
  const place = upTo(edges, at);
  if (forward) return edges[place] ?? last;
  return edges[edges[place - 1] === at ? place - 2 : place - 1] ?? 0;
}
