// Nodes, ranks and the groups of an axis as plain objects: a placement in, positions out.

/** @typedef {{ x: number, y: number, width: number, height: number }} Box pixels */

/** `groups` are the lines joining the ranks of a group: above the ranks within a node, below them between nodes.
 * `link`: between the nodes.
 * @typedef {{ nodes: Box[], ranks: Box[], link: Box | null, groups: { group: number, path: string }[] }} Picture */

const [EDGE, GAP, ROOM] = [2, 14, 6]; // pixels at the edges, between two nodes, inside a node
const [ABOVE, TILE, BELOW] = [24, 74, 8]; // pixels above the ranks, of a rank, below them
const [STEP, WIDEST] = [5, 96]; // pixels between two lines, of a rank

export const HEIGHT = 160;

/** The picture at this `width`; `groups` are those of the shown axis.
 * @type {(nodes: number, ranks: number, groups: number[][], width: number) => Picture} */
export function pictureOf(nodes, ranks, groups, width) {
  const per = ranks / nodes;
  const wide = (width - 2 * EDGE - (nodes - 1) * GAP) / nodes;
  const tile = Math.min(WIDEST, (wide - 2 * ROOM) / per);
  const tall = ABOVE + TILE + BELOW;
  const boxes = Array.from({ length: nodes }, (_, node) => ({
    x: EDGE + node * (wide + GAP), y: EDGE, width: wide, height: tall,
  }));
  const places = Array.from({ length: ranks }, (_, rank) => {
    const { x } = boxes[Math.floor(rank / per)];
    const left = x + (wide - per * tile) / 2;
    return { x: left + (rank % per) * tile + 3, y: EDGE + ABOVE, width: tile - 6, height: TILE };
  });
  const top = EDGE + tall + 8;
  const link = nodes > 1 ? { x: EDGE, y: top, width: width - 2 * EDGE, height: HEIGHT - EDGE - top } : null;
  return {
    nodes: boxes, ranks: places, link,
    groups: groups.flatMap((group, number) => group.slice(1).map((rank, i) => {
      const [from, to] = [places[group[i]], places[rank]];
      const inside = Math.floor(group[i] / per) === Math.floor(rank / per);
      const off = (number % 4) * STEP;
      const shift = (number - (groups.length - 1) / 2) * 2; // lines of two groups do not overlap
      const [a, b] = [from, to].map(({ x, width: own }) => (x + own / 2 + shift).toFixed(1));
      const end = inside ? from.y : from.y + TILE;
      const turn = inside ? from.y - 5 - off : top + 6 + (number % 8) * STEP;
      return { group: number, path: `M${a} ${end}V${turn}H${b}V${end}` };
    })),
  };
}
