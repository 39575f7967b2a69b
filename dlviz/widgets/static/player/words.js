// The player's sentences: a cell's contents, a message's times, a round, a guess.
import { bytes, moment, seconds, unitOf } from "../shared/numbers.js";
import { tileWords } from "./tiles.js";

/** @import { Cell, Run } from "./geometry.js" */
/** @import { Message, Scene } from "./state.js" */

const SPOKEN = 4; // messages read out per round
const OUTLINED = 12; // phases in the outline of all rounds

/** The moment of a round's contents. @type {(scene: Scene, number: number) => string} */
export function afterwards({ frames }, number) {
  const { name, messages } = frames[number];
  return messages.length ? `after ${name}` : number ? "in the end" : "at the start";
}

/** A round in words. @type {(scene: Scene, number: number) => string} */
export function roundWords({ frames }, number) {
  const { name, phase, summary } = frames[number];
  return number
    ? [name, phase, summary].filter(Boolean).join(" · ")
    : "start: what each rank holds before the first message";
}

/** A round for screen readers. @type {(scene: Scene, number: number) => string} */
export function roundSpoken(scene, number) {
  const { name, phase, messages } = scene.frames[number];
  const words = messages.slice(0, SPOKEN).map((row) => scene.messages[row].sentence);
  if (messages.length > SPOKEN) words.push(`and ${messages.length - SPOKEN} more messages`);
  return [[name, phase].filter(Boolean).join(", "), ...words].join(". ");
}

/** All rounds in a few lines, one per phase. @type {(scene: Scene) => string[]} */
export function outlineOf({ frames, messages }) {
  /** @type {{ phase: string, call: string, rounds: number, many: number }[]} */
  const parts = [];
  for (const { name, phase, messages: own } of frames.filter((frame) => frame.messages.length)) {
    const last = parts.at(-1);
    const call = name.match(/^call \d+/)?.[0] ?? "";
    if (last?.phase === phase && last.call === call) {
      last.rounds += 1;
      last.many += own.length;
    } else parts.push({ phase, call, rounds: 1, many: own.length });
  }
  if (!parts.length) return ["No message was sent."];
  const lines = parts.slice(0, OUTLINED).map(({ phase, call, rounds, many }) =>
    `${[call, phase].filter(Boolean).join(", ")}: ${counted(many, "message")} in ${counted(rounds, "round")}`);
  return [...lines, `${counted(Object.keys(messages).length, "message")} in all`];
}

/** @type {(count: number, what: string) => string} */
function counted(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** A message's bytes and times. @type {(message: Message) => string} */
export function timesOf({ nbytes, sent, received, known }) {
  const unit = unitOf(received ?? sent);
  const parts = nbytes >= 0 ? [bytes(nbytes)] : [];
  parts.push(`sent at ${moment(sent, unit)}`);
  if (received != null) parts.push(`received at ${moment(received, unit)}, ${seconds(received - sent)} later`);
  return [...parts, known].filter(Boolean).join(" · ");
}

/** The runs of a cell; adjacent ones that hold the same are joined. @type {(scene: Scene, cell: Cell) => Run[]} */
export function segments(scene, { runs }) {
  /** @type {Run[]} */
  const whole = [];
  for (const run of runs) {
    const last = whole.at(-1);
    if (last?.to === run.from && (last.hold === run.hold || follows(scene, last, run))) last.to = run.to;
    else whole.push({ ...run });
  }
  return whole;
}

/** Whether the cells of a run's numbers continue those of the run before it.
 * @type {(scene: Scene, last: Run, run: Run) => boolean} */
function follows({ holds }, last, run) {
  const [first, next] = [holds[last.hold].from, holds[run.hold].from];
  return first != null && next === first + (last.to - last.from);
}

/** What a segment of columns holds. @type {(scene: Scene, run: Run) => string} */
export function holdWords({ holds }, { hold, from, to }) {
  const { says, from: first } = holds[hold];
  return first != null && to - from > 1 ? `holds numbers of cells ${first}–${first + to - from - 1}` : says;
}

/** The numbers in a segment of a cell. @type {(cell: Cell, run: Run) => string[]} */
export function numbersIn({ values }, { from, to }) {
  return values.filter(({ column, text }) => text && column >= from && column < to).map(({ text }) => text);
}

/** What a cell holds, with its numbers. @type {(scene: Scene, cell: Cell) => string} */
export function cellWords(scene, cell) {
  if (scene.image) return tileWords(scene, cell);
  const chunk = scene.chunks[cell.chunk];
  const note = cell.note?.[0] ? `, ${cell.note[0]}` : "";
  const start = `rank ${cell.rank}${note}${chunk.low < 0 ? "" : `, ${chunk.name}`}`;
  if (!cell.runs.length) return `${start}: no contents were watched`;
  const parts = segments(scene, cell).map((run) => {
    const own = numbersIn(cell, run);
    const contents = `; contents ${own.slice(0, 8).join(", ")}${own.length > 8 ? ", …" : ""}`;
    return holdWords(scene, run) + (own.length ? contents : "");
  });
  return `${start}: ${parts.slice(0, 4).join(" | ")}${parts.length > 4 ? " | …" : ""}`;
}

/** Whether a rank sends a chunk in a round, and the verdict in words.
 * @type {(scene: Scene, number: number, rank: number, chunk: number) => { right: boolean, words: string }} */
export function guessed(scene, number, rank, chunk) {
  const sent = scene.frames[number].messages.map((row) => scene.messages[row]);
  const hit = sent.find(({ src, chunks: [from, to] }) => src === rank && chunk >= from && chunk < to);
  if (hit) return { right: true, words: `Right: ${hit.sentence}.` };
  const called = scene.chunks[chunk].low < 0 ? "" : ` ${scene.chunks[chunk].name}`;
  const others = sent.slice(0, 4).map(({ src, what }) => `rank ${src} sent ${what}`).join(", ");
  const more = sent.length > 4 ? ", …" : "";
  return { right: false, words: `Wrong: rank ${rank} did not send${called}. Instead ${others}${more}.` };
}
