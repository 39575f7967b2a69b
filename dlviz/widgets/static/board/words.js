// What the drawing board says, in sentences.
import { digits } from "../shared/numbers.js";

/** @import { BoardState, Cell, Ghost, Idle } from "./state.js" */

/** @type {Record<string, string>} */
export const DOES = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };

/** The score of a drawing, beside the best known schedule of its size. @type {(state: BoardState) => string} */
export function scoreWords({ score, broken, complete, level, best, zoo, beaten, held, cells }) {
  const found = zoo.find(({ name }) => name === best);
  const words = [];
  if (beaten) words.push("★ Better than the best known schedule!");
  if (broken) {
    words.push(`This drawing does not count: ${broken === 1 ? "1 rule is" : `${broken} rules are`} broken.`);
  } else if (cells.length) {
    const so = `${score.slots} ${score.slots === 1 ? "slot" : "slots"}, bubble ratio ${digits(score.ratio)}`;
    const most = `at most ${Math.max(...score.peak)}${held === "chunks" ? " chunks" : ""} in flight`;
    words.push(`${complete ? "Now" : "So far"} ${so}, ${most}.`);
  }
  if (found) {
    words.push(`Best known: ${found.title} with ${found.slots} slots, ${Math.max(...found.peak)} in flight.`);
  } else if (!level) words.push("No known schedule stays within this limit.");
  return words.join(" ");
}

/** A cell, ghost or idle time in words; "" for none.
 * @type {(thing: { cell?: Cell, ghost?: Ghost, idle?: Idle }) => string} */
export function wordsOf({ cell, ghost, idle }) {
  if (cell) {
    if (cell.faults.length) return cell.faults.join(" ");
    const does = cell.parts.map(({ kind, microbatch, stage }) =>
      `${DOES[kind]} of microbatch ${microbatch} through stage ${stage}`);
    return `${cell.action}: ${does.join(" and ")}, on rank ${cell.rank}, ${slots(cell.slot, cell.slot + cell.slots)}.`;
  }
  if (ghost) {
    const { action, rank, slot } = ghost;
    return `${action} can come next, on rank ${rank} at slot ${slot}. Click to place this action.`;
  }
  return idle ? `Rank ${idle.rank}, ${slots(idle.start, idle.end)}: ${idle.words}.` : "";
}

/** @type {(from: number, to: number) => string} */
function slots(from, to) {
  return to - from === 1 ? `slot ${from}` : `slots ${from} to ${to - 1}`;
}

/** The short name of an action: its text, or the halves of an overlap.
 * @type {(piece: { action: string, parts: { stage: number, kind: string, microbatch: number }[] }) => string} */
export function nameOf({ action, parts }) {
  return parts.length > 1 ? parts.map(longName).join("&") : action;
}

/** @type {(part: { stage: number, kind: string, microbatch: number }) => string} */
export function longName({ stage, kind, microbatch }) {
  return `${stage}${kind}${microbatch}`;
}

/** Without the stage, which the row shows: lower case for a rank's second chunk, f3, then f3', ...
 * @type {(part: { kind: string, microbatch: number, chunk: number }) => string} */
export function shortName({ kind, microbatch, chunk }) {
  return `${chunk ? kind.toLowerCase() : kind}${microbatch}${"'".repeat(Math.max(0, chunk - 1))}`;
}

/** A CSV on one line, for a chat or a cell. @type {(csv: string) => string} */
export function onOneLine(csv) {
  return csv.trimEnd().split("\n").map((row) => row.replaceAll(",", " ")).join(" / ");
}
