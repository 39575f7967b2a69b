// What the player draws, as plain objects: a scene, a frame's number and a width in, positions out.
import { clamp, column, texts } from "../shared/arrays.js";

const LEFT = 50; // pixels of the ranks' names
const TOP = 34; // chunk names and cell numbers above
const GAP = 14; // between two ranks, if there is room
const PAD = 3; // around what a rank holds
const BESIDE = 70; // the place of messages whose cells are in no watched buffer
const NARROWEST = 10; // of a column; a wider picture than its panel is scrolled
const LETTER = 6.6; // pixels of a digit
const CHIP = 13; // a contribution's side, if there is room
const THINNEST = 4; // of a row of contributions
const NUMBER = 15; // the height of a number
const TAG = 0.36; // of an arrow's way: where its label is, apart from that of the way back
const GROUPED = 0.7; // more room between two racks or switches, in ranks
const LANES = 5; // arrows beside each other
export const MANY = 256; // messages drawn per frame
const PICTURES = 48; // rounds that have a small picture each

/**
 * The state with its snapshots and messages written out: contents[i] is {values, holds}, a place for
 * each column of cells; messages[row] is what is known of a message of the Trace.
 */
export function unpacked(state) {
  const contents = [];
  for (const { of, at, values, holds } of state.snapshots) {
    const whole =
      of < 0 ? { values: [], holds: [] } : { values: [...contents[of].values], holds: [...contents[of].holds] };
    at.forEach((column, i) => {
      whole.values[column] = values[i];
      whole.holds[column] = holds[i];
    });
    contents.push(whole);
  }
  const frameOf = new Map();
  state.frames.forEach((frame, number) => frame.messages.forEach((row) => frameOf.set(row, number)));
  const rowOf = new Map(state.rows.map((rank, row) => [rank, row]));
  const messages = messagesOf(state);
  const most = Object.values(messages).reduce((top, { nbytes }) => Math.max(top, nbytes), 1);
  return { ...state, messages, contents, frameOf, rowOf, most };
}

function messagesOf({ frames, messages }) {
  const count = frames.reduce((sum, frame) => sum + frame.messages.length, 0);
  const columns = Object.entries(messages).map(([name, values]) => [
    name,
    values.of ? texts(values, count) : column(values, count),
  ]);
  const all = {};
  for (let i = 0; i < count; i++) {
    const own = Object.fromEntries(columns.map(([name, values]) => [name, values[i]]));
    all[own.row] = {
      ...own,
      chunks: [own.chunk, own.after],
      formula: own.formula ? own.formula.split("\n") : [],
      spans: [own.sender, own.receiver],
      where: [own.sentAt, own.receivedAt],
    };
  }
  return all;
}

/** The messages of a frame that are drawn, each with its row of the Trace. */
export function messagesIn(scene, number) {
  return scene.frames[number].messages
    .slice(0, MANY)
    .map((message) => ({ message, ...scene.messages[message] }))
    .filter(({ src, dst }) => scene.rowOf.has(src) && scene.rowOf.has(dst));
}

/**
 * Where columns, chunks and ranks lie in a picture that is `width` pixels wide and `tall` pixels high
 * if it can be. Numbers stand in the cells where they fit.
 */
export function layoutOf(scene, width, tall = Infinity) {
  const count = scene.columns.length;
  const lanes = scene.chunks.map(() => 0);
  scene.frames.forEach((_, number) => {
    for (const { chunk, lane } of lanesOf(scene, number)) lanes[chunk] = Math.max(lanes[chunk], lane + 1);
  });
  const step = scene.chunks.length > 16 ? 4 : 7;
  const gutters = lanes.map((many) => (many ? 12 : 9) + step * many);
  const beside = scene.chunks.some((chunk) => chunk.from === chunk.to) ? BESIDE : 0;
  const across = width - LEFT - 8 - beside - gutters.reduce((sum, gutter) => sum + gutter, 0);
  const wide = count ? clamp(across / count, NARROWEST, 120) : 0;
  const columns = [];
  let x = LEFT + 4;
  const chunks = scene.chunks.map((chunk, place) => {
    const left = x;
    for (let column = chunk.from; column < chunk.to; column++, x += wide) columns.push({ x, width: wide });
    if (chunk.from === chunk.to) x += BESIDE;
    const own = { x: left, width: x - left, gutter: gutters[place], step };
    x += gutters[place];
    return own;
  });
  const single = wide >= (CHIP * scene.ranks.length) / 2;
  const narrow = single ? wide : chunks.reduce((least, { width: own }) => Math.min(least, own), Infinity);
  const lines = scene.ranks.length ? Math.min(4, chipRows(scene.ranks.length, narrow)) : 0;
  const each = (tall - TOP) / Math.max(scene.rows.length, 1);
  const gap = clamp(each / 5, 4, GAP);
  const room = each - gap - 2 * PAD;
  const longest = scene.values.reduce((most, text) => Math.max(most, text.length), 0);
  const fits = longest && longest * LETTER + 3 <= wide && room - NUMBER >= lines * THINNEST;
  const valueHeight = fits ? NUMBER : 0;
  const stripHeight = lines * clamp((room - valueHeight) / lines, THINNEST, CHIP) || 0;
  const height = Math.max(12, 2 * PAD + valueHeight + stripHeight);
  return {
    columns,
    chunks,
    single,
    lines,
    gap,
    valueHeight,
    stripHeight,
    rowHeight: height,
    rows: scene.rows.map((_, row) => TOP + row * (height + gap)),
    width: Math.max(x + 4, LEFT + 40),
    height: TOP + scene.rows.length * (height + gap),
  };
}

function chipRows(ranks, width) {
  return Math.ceil(ranks / Math.max(1, Math.min(ranks, Math.floor(width / CHIP))));
}

/** Which lane beside its last chunk each arrow of a frame takes: those that overlap, different ones. */
function lanesOf(scene, number) {
  const taken = new Map();
  return messagesIn(scene, number)
    .filter(({ src, dst }) => src !== dst)
    .map(({ message, src, dst, chunks }) => {
      const chunk = chunks[1] - 1;
      const [low, high] = [scene.rowOf.get(src), scene.rowOf.get(dst)].sort((a, b) => a - b);
      const own = taken.get(chunk) ?? taken.set(chunk, []).get(chunk);
      let lane = own.findIndex((others) => others.every(([from, to]) => to < low || from > high));
      if (lane < 0) lane = own.length < LANES ? own.push([]) - 1 : LANES - 1;
      own[lane].push([low, high]);
      return { message, chunk, lane };
    });
}

/**
 * What each rank holds once the messages of a frame have landed: a cell for each rank and chunk.
 *
 * Its runs are its columns one by one where they are wide enough to show contributions, else
 * stretches of columns that hold the same.
 */
export function cellsOf(scene, layout, number) {
  const { snapshots } = scene.frames[number];
  const before = number ? scene.frames[number - 1].snapshots : snapshots;
  return scene.rows.flatMap((rank, row) => {
    const held = scene.contents[snapshots[row]];
    const old = scene.contents[before[row]];
    return scene.chunks.map((chunk, place) => {
      const { x, width } = layout.chunks[place];
      const cell = {
        rank,
        row,
        chunk: place,
        x,
        y: layout.rows[row],
        width,
        height: layout.rowHeight,
        values: [],
        runs: [],
      };
      for (let column = chunk.from; held && column < chunk.to; column++) {
        if (held.values[column] == null) continue;
        const [value, hold] = [held.values[column], held.holds[column]];
        const changed = old?.values[column] !== value;
        cell.values.push({ column, text: scene.values[value], changed });
        const last = cell.runs.at(-1);
        if (last?.hold === hold && last.to === column && !layout.single) last.to = column + 1;
        else cell.runs.push({ from: column, to: column + 1, hold });
      }
      return cell;
    });
  });
}

/** The contributions in a run of a cell: one box for each that it holds, in a place of its own. */
export function chipsOf(scene, layout, cell, run) {
  const { counts } = scene.holds[run.hold];
  const many = scene.ranks.length;
  const [first, last] = [layout.columns[run.from], layout.columns[run.to - 1]];
  const wide = last.x + last.width - first.x - 2;
  const top = cell.y + PAD + layout.valueHeight;
  if (!many) return [];
  if (!counts) return [{ source: -1, count: 1, x: first.x + 1, y: top, width: wide, height: layout.stripHeight }];
  const lines = wide / Math.ceil(many / layout.lines) >= 3 ? layout.lines : chipRows(many, wide + 2);
  const each = Math.ceil(many / lines);
  const [width, height] = [wide / each, layout.stripHeight / Math.ceil(many / each)];
  return counts.map(([source, count]) => ({
    source,
    count,
    x: first.x + 1 + (source % each) * width,
    y: top + Math.floor(source / each) * height,
    width,
    height,
  }));
}

/** The runs of a cell, those that stand beside each other and hold the same made one. */
export function stretches(scene, { runs }) {
  const whole = [];
  for (const run of runs) {
    const last = whole.at(-1);
    if (last?.to === run.from && (last.hold === run.hold || follows(scene, last, run))) last.to = run.to;
    else whole.push({ ...run });
  }
  return whole;
}

/** Whether a run holds numbers of the cell after the one whose numbers end the run before it. */
function follows({ holds }, last, run) {
  const [first, next] = [holds[last.hold].from, holds[run.hold].from];
  return first != null && next === first + (last.to - last.from);
}

/** What a stretch of columns holds, in words. */
export function holdWords({ holds }, { hold, from, to }) {
  const { says, from: first } = holds[hold];
  return first != null && to - from > 1 ? `holds numbers of cells ${first}–${first + to - from - 1}` : says;
}

/** What a contribution's box says of itself, as far as there is room for it. */
export function chipLabel({ source, count, width, height }) {
  if (height < 8.5) return "";
  const texts =
    source < 0 ? ["?"] : count > 1 ? [`${source} ×${count}`, `${source}×${count}`, `×${count}`] : [`${source}`];
  return texts.find((text) => text.length * LETTER + 1.5 <= width) ?? "";
}

/** The outlines of the cells that a frame's messages took and reached, and an arrow for each. */
export function movesOf(scene, layout, number) {
  const boxes = [];
  const lanes = new Map(lanesOf(scene, number).map((own) => [own.message, own.lane]));
  const arrows = [];
  for (const { message, src, dst, chunks, received } of messagesIn(scene, number)) {
    const [first, last] = [layout.chunks[chunks[0]], layout.chunks[chunks[1] - 1]];
    const right = last.x + last.width;
    const [from, to] = [src, dst].map((rank) => layout.rows[scene.rowOf.get(rank)]);
    const shape = { message, x: first.x, width: right - first.x, height: layout.rowHeight };
    boxes.push({ ...shape, what: "sent", y: from, out: 2 });
    if (received != null) boxes.push({ ...shape, what: "received", y: to, out: Math.min(4.5, layout.gap / 2 + 1) });
    if (src === dst) continue;
    const lane = right + 12 + lanes.get(message) * last.step;
    const [leaves, enters] = [from + layout.rowHeight / 2 + 4, to + layout.rowHeight / 2 - 4];
    arrows.push({
      message,
      never: received == null,
      points: [
        [right + 2, leaves],
        [lane, leaves],
        [lane, enters],
        [right + 5, enters],
      ],
    });
  }
  return { boxes, arrows };
}

/**
 * The ranks on a circle, those of a rack or switch beside each other, and what joins them: links from
 * rank to rank in a ring, else each to its switch (a hub), and that to the next one up in the middle.
 */
export function placesOf({ rows, topology }, size) {
  const many = rows.length;
  const middle = size / 2;
  const ringed = topology.kind === "ring";
  const whole = topology.sizes.findIndex((own) =>
    rows.every((rank) => Math.floor(rank / own) === Math.floor(rows[0] / own)),
  );
  const levels = ringed || !topology.kind ? [] : topology.sizes.slice(0, whole < 0 ? undefined : whole + 1);
  const groupOf = (rank, level) => Math.floor(rank / levels[level]);
  const radius = many > 1 ? middle - 26 : 0;
  const parted = levels.length > 1;
  let at = 0;
  const turns = rows.map((rank, row) => {
    at += row ? 1 + (parted && groupOf(rank, 0) !== groupOf(rows[row - 1], 0) ? GROUPED : 0) : 0;
    return at;
  });
  const around = at + 1 + (parted ? GROUPED : 0);
  const dot = many > 1 ? Math.max(6, Math.min(18, (Math.PI * radius) / around / 1.6)) : 18;
  const place = (turn, share) => {
    const angle = (2 * Math.PI * turn) / around - Math.PI / 2;
    return { x: middle + share * radius * Math.cos(angle), y: middle + share * radius * Math.sin(angle) };
  };
  const nodes = rows.map((rank, row) => ({ rank, ...place(turns[row], 1), radius: dot }));
  const links = ringed && many > 1 ? nodes.map((node, i) => [node, nodes[(i + 1) % many]]) : [];
  const [hubs, groups] = [[], []];
  let below = rows.map((rank, row) => ({ rank, turn: turns[row], ...nodes[row] }));
  levels.forEach((_, level) => {
    const members = new Map();
    for (const part of below) {
      const group = groupOf(part.rank, level);
      members.set(group, [...(members.get(group) ?? []), part]);
    }
    if (!level && parted) groups.push(...members.values());
    below = [...members.values()].map((parts) => {
      const turn = (parts[0].turn + parts.at(-1).turn) / 2;
      const hub = { rank: parts[0].rank, turn, ...place(turn, 1 - (level + 1) / levels.length) };
      links.push(...parts.map((part) => [part, hub]));
      hubs.push(hub);
      return hub;
    });
  });
  return { nodes, links, hubs, groups };
}

/** The ranks in their places, and an arrow for each message of a frame, as wide as its bytes are many. */
export function circleOf(scene, number, size) {
  const { nodes } = placesOf(scene, size);
  const beside = new Map();
  const arrows = messagesIn(scene, number)
    .filter(({ src, dst }) => src !== dst)
    .map((own) => {
      const [from, to] = [own.src, own.dst].map((rank) => nodes[scene.rowOf.get(rank)]);
      const pair = `${own.src} ${own.dst}`;
      const turn = beside.get(pair) ?? 0;
      beside.set(pair, turn + 1);
      const [dx, dy] = [to.x - from.x, to.y - from.y];
      const bend = 0.12 + 0.16 * turn;
      const turned = [(from.x + to.x) / 2 + dy * bend, (from.y + to.y) / 2 - dx * bend];
      const start = towards(from, turned, from.radius + 2);
      const end = towards(to, turned, to.radius + 3);
      const width = 1.5 + 3 * (Math.max(0, own.nbytes) / scene.most);
      return {
        message: own.message,
        never: own.received == null,
        label: own.label,
        width,
        path: [start, turned, end],
        at: [0, 1].map(
          (axis) => (1 - TAG) ** 2 * start[axis] + 2 * TAG * (1 - TAG) * turned[axis] + TAG ** 2 * end[axis],
        ),
      };
    });
  return { nodes, arrows };
}

function towards({ x, y }, [tx, ty], distance) {
  const length = Math.hypot(tx - x, ty - y) || 1;
  return [x + ((tx - x) / length) * distance, y + ((ty - y) / length) * distance];
}

/** Who ever sends to whom, as pairs of places on the circle. */
export function pairsOf(scene, size) {
  const { nodes } = placesOf(scene, size);
  const pairs = new Set();
  scene.frames.forEach((_, number) => {
    for (const { src, dst } of messagesIn(scene, number))
      if (src !== dst) pairs.add(`${scene.rowOf.get(src)} ${scene.rowOf.get(dst)}`);
  });
  return [...pairs].map((pair) => {
    const [from, to] = pair.split(" ").map((row) => nodes[row]);
    return [towards(from, [to.x, to.y], from.radius + 2), towards(to, [from.x, from.y], to.radius + 3)];
  });
}

/**
 * A small picture of every round side by side: of each its place, and for each share of the ranks
 * (0 to 1; -1: wrong) the boxes of the cells that hold the numbers of so many. No pictures where the
 * contents are not known, or where there are too many rounds.
 */
export function stripOf(scene, width, height) {
  const many = scene.frames.length;
  const count = scene.columns.length;
  if (many < 2 || many > PICTURES || !scene.ranks.length || !count) return [];
  const wide = Math.min(110, width / many);
  const [across, down] = [(wide - 6) / count, height / scene.rows.length];
  return scene.frames.map((frame, number) => {
    const x = number * wide;
    const shares = new Map();
    frame.snapshots.forEach((snapshot, row) => {
      for (const { share, from, to } of sharesIn(scene, snapshot)) {
        const box = { x: x + 3 + from * across, y: row * down + 0.5, width: (to - from) * across, height: down - 1 };
        shares.set(share, [...(shares.get(share) ?? []), box]);
      }
    });
    return { x, width: wide, shares };
  });
}

/** The stretches of columns of a snapshot that hold the numbers of equally many ranks. */
function sharesIn({ contents, holds, ranks }, snapshot) {
  const found = [];
  (contents[snapshot]?.holds ?? []).forEach((hold, column) => {
    const { counts } = holds[hold];
    const share = !counts || counts.some(([, times]) => times > 1) ? -1 : counts.length / ranks.length;
    const last = found.at(-1);
    if (last?.share === share && last.to === column) last.to = column + 1;
    else found.push({ share, from: column, to: column + 1 });
  });
  return found;
}

/** The three corners of an arrow's head that ends in `tip`, coming from `from`. */
export function headOf(from, tip, size) {
  const length = Math.hypot(tip[0] - from[0], tip[1] - from[1]) || 1;
  const [x, y] = [(tip[0] - from[0]) / length, (tip[1] - from[1]) / length];
  const [bx, by] = [tip[0] - x * size, tip[1] - y * size];
  return [tip, [bx - (y * size) / 2, by + (x * size) / 2], [bx + (y * size) / 2, by - (x * size) / 2]];
}
