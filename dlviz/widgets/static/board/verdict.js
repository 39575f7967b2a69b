// A drawing in words: the verdict, a good move, and the goals of a level.
import { heldIn } from "./pipeline.js";

/** @import { Drawing } from "./drawing.js" */
/** @import { Fault } from "./faults.js" */
/** @import { Move, Schedule } from "./known.js" */
/** @import { Asked, Goal, Paper, Place, Score } from "./state.js" */
/** @import { Next } from "./waiting.js" */

/**
 * @typedef {object} Level what a level asks for
 * @property {string} question
 * @property {number} slots
 * @property {number | null} inside
 * @property {string} answer the name of the known schedule
 * @property {string} title its title
 * @property {Paper | null} paper
 * @property {string} source the paper, and where in it
 * @property {string} lesson
 */

/** @typedef {{ drawn: Drawing, faults: Fault[], nexts: Next[], score: Score }} Seen a drawing and its analysis */

const HOW = "Estimated by completing the schedule greedily; not proven optimal.";

/** The verdict on a drawing: its first fault, what is missing, or how it compares. `names`: the known schedules with
 * its order. @type {(seen: Seen, names: string[], best: Schedule | null) => string} */
export function verdict({ drawn, faults, nexts, score }, names, best) {
  const { placed, left } = drawn;
  if (faults.length) {
    const many = faults.length === 1 ? "1 rule is broken." : `${faults.length} rules are broken.`;
    return `${many} ${faults[0].words} ${faults[0].mend}`;
  }
  if (!placed.length) return `Nothing is drawn yet. ${nextWords(nexts)}`;
  if (left.length) {
    const other = new Set(left.filter(({ kind }) => kind !== "B").map(({ text }) => text));
    const missing = left.filter(({ stage, kind, microbatch }) => kind !== "B" || !other.has(`${stage}I${microbatch}`));
    const soFar = names.length && names.length < 4 ? ` So far this is ${names.join(" or ")}.` : "";
    const many = placed.length === 1 ? "1 action is" : `${placed.length} actions are`;
    return `${many} drawn, no rule is broken, ${missing.length} to go. ${nextWords(nexts)}${soFar}`;
  }
  return `Complete and legal. ${compared(score.slots, names, best)}`.trimEnd();
}

/** @type {(ours: number, names: string[], best: Schedule | null) => string} */
function compared(ours, names, best) {
  const words = names.length ? `This is ${names.join(" or ")}. ` : "";
  if (!best) return words;
  const { title, score: { slots } } = best;
  if (ours === slots) return `${words}No known schedule is shorter.`;
  const record = `the best known schedule, ${title} with ${slots} slots`;
  return `${words}The drawing is ${ours < slots ? "shorter" : "longer"} than ${record}.`;
}

/** @param {Next[]} nexts */
function nextWords(nexts) {
  if (!nexts.length) return "No action can come next.";
  const { action, rank, slot } = nexts.reduce((best, one) =>
    (one.placed.slot < best.placed.slot ? one : best)).placed;
  return `${action.text} can come next, on rank ${rank} at slot ${slot}.`;
}

/** The best next move in words, and its place. `broken`: whether a rule is broken; `titles`: known schedules that
 * may be named.
 * @type {(found: Move[], broken: boolean, titles: Map<string, string>) => { words: string, move: Place | null }} */
export function advice(found, broken, titles) {
  if (!found.length) {
    return { words: broken ? "First mend the broken rule." : "Every action is drawn.", move: null };
  }
  const { placed: { action, rank, slot }, end, order } = found[0];
  let words = `A good move is ${action.text} on rank ${rank} at slot ${slot}. `;
  if (end === Infinity) words += "No completion of the schedule was found. ";
  else {
    const title = titles.get(order);
    words += `The schedule can then end at slot ${end}${title ? `, continued like ${title}` : ""}. `;
  }
  for (const { placed, end: later } of found.slice(1, 4)) {
    words += `${placed.action.text} instead ${later === Infinity ? "has no known end" : cost(later - end)}. `;
  }
  return { words: words + HOW, move: { action: action.text, rank, slot } };
}

/** @param {number} slots */
function cost(slots) {
  return slots ? `costs ${slots} slot${slots > 1 ? "s" : ""}` : "costs nothing";
}

/** The goals of a level, and which a drawing reaches. @type {(level: Level, seen: Seen) => Goal[]} */
export function goalsOf({ slots, inside }, { drawn, faults, score }) {
  const { pipeline, left } = drawn;
  const whole = !left.length && !faults.length;
  const goals = [{ words: "every action is drawn and no rule is broken", reached: whole }];
  if (pipeline.limit != null) {
    const words = `at most ${pipeline.limit} ${heldIn(pipeline)} in flight on a rank`;
    goals.push({ words, reached: faults.every(({ law }) => law !== "memory") });
  }
  goals.push({ words: `${slots} slots`, reached: whole && score.slots <= slots });
  if (inside != null) {
    const words = "no rank is idle between its first action and its last";
    goals.push({ words, reached: whole && score.inside <= inside });
  }
  return goals;
}

/** A level's question and goals and, once it is solved, its known schedule. `names`: the known schedules with the
 * drawing's order. @type {(level: Level, goals: Goal[], names: string[]) => Asked} */
export function askedBy({ question, answer: name, title, paper, source, lesson }, goals, names) {
  if (!goals.every(({ reached }) => reached)) return { question, goals, answer: null };
  const same = names.includes(title);
  const known = same ? `This schedule is known as ${title}` : `The known schedule for this is ${title}`;
  const other = same ? "" : " Your order differs and is just as short.";
  const words = `${known}: ${source}.${other} ${lesson}`;
  return { question, goals, answer: { name, title, paper, words } };
}
