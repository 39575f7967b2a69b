// The player's ranks on a circle, the links that join them, and the arrows between them.
import { messagesIn } from "./state.js";

/** @import { Scene } from "./state.js" */

/** @typedef {[x: number, y: number]} Point */
/** @typedef {{ rank: number, x: number, y: number, radius: number }} Node */
/** @typedef {{ x: number, y: number }} Place */
/** @typedef {{ rank: number, turn: number } & Place} Part a rank or a hub, `turn` ranks round the circle */

const TAG = 0.36; // of an arrow's length: where its label is, apart from that of the reverse arrow
const GROUPED = 0.7; // extra room between two racks or switches, in ranks

/** @typedef {(rank: number) => number} Level which rack, switch or host joins a rank */

/** The ranks on a circle, grouped by rack, switch or host, and what joins them: in a ring, links from rank to rank;
 * else from each to its switch (a hub), and from there to the next one up in the middle.
 * @type {(scene: Pick<Scene, "rows" | "topology"> & { groupOf?: number[] }, size: number) => { nodes: Node[], links:
 *   [Place, Place][], hubs: Place[], groups: Node[][] }} */
export function placesOf({ rows, topology, groupOf = [] }, size) {
  const many = rows.length;
  const levels = topology.kind === "hosts" ? hostsOf(rows, groupOf) : levelsOf(rows, topology);
  const parted = levels.length > 1;
  const { turns, around } = turnsOf(rows, parted ? levels[0] : null);
  const middle = size / 2;
  const radius = many > 1 ? middle - 26 : 0;
  /** @type {(turn: number, share: number) => Place} */
  const place = (turn, share) => {
    const angle = (2 * Math.PI * turn) / around - Math.PI / 2;
    return { x: middle + share * radius * Math.cos(angle), y: middle + share * radius * Math.sin(angle) };
  };
  const dot = many > 1 ? Math.max(6, Math.min(18, (Math.PI * radius) / around / 1.6)) : 18;
  const nodes = rows.map((rank, row) => ({ rank, ...place(turns[row], 1), radius: dot }));
  if (topology.kind === "ring" && many > 1) {
    return { nodes, links: nodes.map((node, i) => [node, nodes[(i + 1) % many]]), hubs: [], groups: [] };
  }
  /** @type {[Place, Place][]} */
  const links = [];
  /** @type {Place[]} */
  const hubs = [];
  /** @type {Part[]} */
  let below = nodes.map((node, row) => ({ ...node, turn: turns[row] }));
  levels.forEach((own, level) => {
    below = grouped(below, own).map((parts) => {
      const turn = (parts[0].turn + parts[parts.length - 1].turn) / 2;
      const hub = { rank: parts[0].rank, turn, ...place(turn, 1 - (level + 1) / levels.length) };
      for (const part of parts) links.push([part, hub]);
      hubs.push(hub);
      return hub;
    });
  });
  return { nodes, links, hubs, groups: parted ? grouped(nodes, levels[0]) : [] };
}

/** The hosts of ranks, and the level that joins them. @type {(rows: number[], groupOf: number[]) => Level[]} */
function hostsOf(rows, groupOf) {
  const host = new Map(rows.map((rank, row) => [rank, groupOf[row]]));
  return [(rank) => host.get(rank) ?? -1, () => 0];
}

/** The switches that join ranks, level by level up to the one that joins all drawn ranks.
 * @type {(rows: number[], topology: Scene["topology"]) => Level[]} */
function levelsOf(rows, { kind, sizes }) {
  if (kind === "ring" || !kind) return [];
  const levels = sizes.map((own) => (/** @type {number} */ rank) => Math.floor(rank / own));
  const whole = levels.findIndex((level) => rows.every((rank) => level(rank) === level(rows[0])));
  return levels.slice(0, whole < 0 ? undefined : whole + 1);
}

/** Each rank's position on the circle, in ranks, and the length of the whole circle, with room between groups of a
 * level. @type {(rows: number[], level: Level | null) => { turns: number[], around: number }} */
function turnsOf(rows, level) {
  let at = 0;
  const turns = rows.map((rank, row) => {
    if (row) at += 1 + (level && level(rank) !== level(rows[row - 1]) ? GROUPED : 0);
    return at;
  });
  return { turns, around: at + 1 + (level ? GROUPED : 0) };
}

/** Parts grouped by a level. @type {<T extends { rank: number }>(parts: T[], level: Level) => T[][]} */
function grouped(parts, level) {
  const groups = new Map();
  for (const part of parts) {
    const group = level(part.rank);
    groups.set(group, [...(groups.get(group) ?? []), part]);
  }
  return [...groups.values()];
}

/** The placed ranks, and an arrow for each message of a frame; its width grows with its bytes.
 * @type {(scene: Scene, number: number, size: number) => { nodes: Node[], arrows: { message: number, never: boolean,
 *   label: string, width: number, path: [start: Point, turned: Point, end: Point], at: Point }[] }} */
export function circleOf(scene, number, size) {
  const { nodes } = placesOf(scene, size);
  /** @type {Record<string, number>} */
  const beside = {};
  const arrows = messagesIn(scene, number)
    .filter(({ src, dst }) => src !== dst)
    .map(({ message, src, dst, nbytes, received, label }) => {
      const [from, to] = [src, dst].map((rank) => nodes[scene.rowOf[rank]]);
      const pair = `${src} ${dst}`;
      const turn = beside[pair] ?? 0;
      beside[pair] = turn + 1;
      const bend = 0.12 + 0.16 * turn;
      /** @type {Point} */
      const turned = [(from.x + to.x) / 2 + (to.y - from.y) * bend, (from.y + to.y) / 2 - (to.x - from.x) * bend];
      const start = towards(from, turned, from.radius + 2);
      const end = towards(to, turned, to.radius + 3);
      const width = 1.5 + 3 * (Math.max(0, nbytes) / scene.most);
      const [x, y] = [0, 1].map(
        (axis) => (1 - TAG) ** 2 * start[axis] + 2 * TAG * (1 - TAG) * turned[axis] + TAG ** 2 * end[axis],
      );
      return {
        message, never: received == null, label, width,
        path: /** @type {[Point, Point, Point]} */ ([start, turned, end]), at: /** @type {Point} */ ([x, y]),
      };
    });
  return { nodes, arrows };
}

/** A line for each pair of ranks that ever exchange a message.
 * @type {(scene: Scene, size: number) => [start: Point, end: Point][]} */
export function pairsOf(scene, size) {
  const { nodes } = placesOf(scene, size);
  /** @type {Set<string>} */
  const pairs = new Set();
  scene.frames.forEach((_, number) => {
    for (const { src, dst } of messagesIn(scene, number)) {
      if (src !== dst) pairs.add(`${scene.rowOf[src]} ${scene.rowOf[dst]}`);
    }
  });
  return [...pairs].map((pair) => {
    const [from, to] = pair.split(" ").map((row) => nodes[Number(row)]);
    return [towards(from, [to.x, to.y], from.radius + 2), towards(to, [from.x, from.y], to.radius + 3)];
  });
}

/** @type {(from: Place, to: Point, distance: number) => Point} */
function towards({ x, y }, [tx, ty], distance) {
  const length = Math.hypot(tx - x, ty - y) || 1;
  return [x + ((tx - x) / length) * distance, y + ((ty - y) / length) * distance];
}

/** The three corners of an arrow head at `tip`, pointing away from `from`.
 * @type {(from: Point, tip: Point, size: number) => Point[]} */
export function headOf(from, tip, size) {
  const length = Math.hypot(tip[0] - from[0], tip[1] - from[1]) || 1;
  const [x, y] = [(tip[0] - from[0]) / length, (tip[1] - from[1]) / length];
  const [bx, by] = [tip[0] - x * size, tip[1] - y * size];
  return [tip, [bx - (y * size) / 2, by + (x * size) / 2], [bx + (y * size) / 2, by - (x * size) / 2]];
}
