// The kernel's JSON, with snapshots and messages written out; and the player's state.
import { column, texts } from "../shared/arrays.js";

/** @import { Column } from "../shared/arrays.js" */
/** @import { Selection } from "../shared/selection.js" */
/** @import { SourceFile } from "../shared/source.js" */
/** @import { State } from "../shared/state.js" */
/** @import { Colors, Look, Style } from "../shared/theme.js" */

/** A round: the rows of its messages, the snapshot of each drawn rank after it (-1: none), and words; a note for each
 * drawn rank, or none at all.
 * @typedef {{ name: string, summary: string, phase: string, messages: number[], snapshots: number[], losses:
 *   string[], remarks: string[], notes: [text: string, marked: boolean][] }} Frame */

/** Cells that travel together: [low, high), the columns [from, to); low < 0: in no watched buffer.
 * @typedef {{ label: string, name: string, low: number, high: number, from: number, to: number }} Chunk */

/** What a column holds: [rank, how often] pairs (null: unknown), words, and the cell of its numbers.
 * @typedef {{ counts: [source: number, count: number][] | null, says: string, from?: number }} Hold */

/** @typedef {{ values: number[], holds: number[] }} Contents indices into a scene's `values` and `holds`, by column */

/** A message of the Trace; `chunks` is a range, `received` is null if it never was.
 * @typedef {{ src: number, dst: number, chunks: [from: number, to: number], label: string, what: string, nbytes:
 *   number, sent: number, received: number | null, known: string, sentence: string, formula: string[], spans:
 *   [sender: number, receiver: number], where: [sent: string, received: string] }} Message */

/** @typedef {{ message: number } & Message} Numbered a message with its row of the Trace */

/** Rows from, to; columns from, to. @typedef {[top: number, bottom: number, left: number, right: number]} Edges */

/** Of a rank the block that it owns, what its buffer has room for, and how many cells down and to the right that is
 * drawn. @typedef {{ own: Edges, held: Edges, moved: [down: number, right: number] }} Tile */

/** An image of `shape` cut between ranks: the tile of each row of the scene. @typedef {{ shape: [rows: number, columns:
 *   number], tiles: (Tile | null)[] }} Image */

/**
 * What Python wrote and the player draws unchanged (see dlviz/widgets/player.py).
 * @typedef {object} Known
 * @property {string} trace
 * @property {string} title
 * @property {string[]} lines
 * @property {string[]} details
 * @property {Look} look
 * @property {string} buffer
 * @property {number[]} rows the drawn ranks
 * @property {{ kind: string, sizes: number[] }} topology
 * @property {{ label: string, summary: string[] }[]} rankGroups the hosts or racks of the ranks, in words
 * @property {number[]} groupOf the group of each row; -1 without groups
 * @property {Style[]} ranks the style of each rank's contributions; empty if unknown
 * @property {Style} undecoded
 * @property {Image | null} image that the buffers hold tiles of
 * @property {[low: number, high: number][]} columns
 * @property {Chunk[]} chunks
 * @property {string[]} values
 * @property {Hold[]} holds
 * @property {Frame[]} frames
 * @property {Record<string, SourceFile>} sources
 */

/** The written state: a snapshot is the difference from the one `of` (-1: from an empty buffer).
 * @typedef {Known & { snapshots: { of: number, at: number[], values: number[], holds: number[] }[], messages:
 *   Record<string, any> }} Written */

/** The drawn state: messages by row of the Trace, the frame of each, the row of each drawn rank, and the bytes of the
 * largest message.
 * @typedef {Known & { contents: Contents[], messages: Record<number, Message>, frameOf: Record<number, number>,
 *   rowOf: Record<number, number>, most: number }} Scene */

/**
 * What a player shows now.
 * @typedef {object} Shown
 * @property {number} number of the round; 0 is before the first message
 * @property {number} furthest the last round seen: only a guess about a later one counts
 * @property {number} speed an index into SPEEDS
 * @property {boolean} playing
 * @property {boolean} tabled whether tables replace the pictures
 * @property {boolean} predicting
 * @property {{ right: number, of: number }} score
 * @property {string} verdict on the last guess
 * @property {string} spot the cell of the grid at the keys, as "row:chunk"
 * @property {number[]} chosen messages
 * @property {{ rows: number[], words: string } | null} pointed messages at the pointer, and words
 * @property {number} width of the grid's panel in pixels
 * @property {Colors} colors
 */

/** What the parts of a player share.
 * @typedef {{ scene: Scene, now: Readonly<Shown>, show: (changes: Partial<Shown>) => void, paints:
 *   State<Shown>["paints"], say: (sentence: string) => void }} Player */

const MANY = 256; // messages drawn per frame

/** The state with its snapshots and messages written out. @type {(state: Written) => Scene} */
export function unpacked(state) {
  /** @type {Contents[]} */
  const contents = [];
  for (const { of, at, values, holds } of state.snapshots) {
    const whole = { values: [...(contents[of]?.values ?? [])], holds: [...(contents[of]?.holds ?? [])] };
    at.forEach((column, i) => {
      whole.values[column] = values[i];
      whole.holds[column] = holds[i];
    });
    contents.push(whole);
  }
  const frameOf = Object.fromEntries(
    state.frames.flatMap((frame, number) => frame.messages.map((row) => [row, number])),
  );
  const rowOf = Object.fromEntries(state.rows.map((rank, row) => [rank, row]));
  const messages = messagesOf(state);
  const most = Object.values(messages).reduce((top, { nbytes }) => Math.max(top, nbytes), 1);
  return { ...state, messages, contents, frameOf, rowOf, most };
}

/** @type {(state: Written) => Record<number, Message>} */
function messagesOf({ frames, messages }) {
  const count = frames.reduce((sum, frame) => sum + frame.messages.length, 0);
  const columns = Object.entries(messages).map(
    ([name, values]) => /** @type {const} */ ([name, values.of ? texts(values, count) : column(values, count)]),
  );
  return Object.fromEntries(Array.from({ length: count }, (_, i) => {
    const own = Object.fromEntries(columns.map(([name, values]) => [name, values[i]]));
    return [own.row, {
      ...own,
      chunks: [own.chunk, own.after],
      formula: own.formula ? own.formula.split("\n") : [],
      spans: [own.sender, own.receiver],
      where: [own.sentAt, own.receivedAt],
    }];
  }));
}

/** The messages of a frame that are drawn. @type {(scene: Scene, number: number) => Numbered[]} */
export function messagesIn(scene, number) {
  return scene.frames[number].messages
    .slice(0, MANY)
    .map((message) => ({ message, ...scene.messages[message] }))
    .filter(({ src, dst }) => src in scene.rowOf && dst in scene.rowOf);
}

/** Rows of the messages that left or reached a rank's chunk; any chunk, if none is given.
 * @type {(scene: Scene, number: number, rank: number, chunk?: number | null) => number[]} */
export function messagesAt(scene, number, rank, chunk = null) {
  return messagesIn(scene, number)
    .filter(({ src, dst }) => src === rank || dst === rank)
    .filter(({ chunks: [from, to] }) => chunk == null || (chunk >= from && chunk < to))
    .map(({ message }) => message);
}

/** Rows of a selection's messages. @type {(scene: Scene, selection: Selection) => number[]} */
export function messagesOfSelection({ messages, frameOf }, { message, span, where }) {
  if (message != null && message in frameOf) return [message];
  const rows = Object.keys(messages).map(Number);
  if (span != null) return rows.filter((row) => messages[row].spans.includes(span));
  return where != null ? rows.filter((row) => messages[row].where.includes(where)) : [];
}
