// The rules that a drawing breaks, and how to mend each.
import { EXCLUDES, action, filled, needs } from "./actions.js";
import { endOf, isSame } from "./drawing.js";
import { arrivals, earliest, gridOf, heldIn, kindsOf, lasting, rankOf } from "./pipeline.js";
import { SENTENCES } from "./sentences.js";

/** @import { Action } from "./actions.js" */
/** @import { Drawing } from "./drawing.js" */
/** @import { Pipeline, Placed } from "./pipeline.js" */

/** @typedef {{ placed: Placed, law: string, words: string, mend: string }} Fault */

/** The broken rules; of two actions in conflict, the one placed last. @type {(drawn: Drawing) => Fault[]} */
export function faultsOf(drawn) {
  const order = new Map(drawn.placed.map((placed, number) => [placed, number]));
  const number = (/** @type {Placed} */ placed) => order.get(placed) ?? -1;
  const found = [
    ...misplaced(drawn), ...twice(drawn), ...together(drawn, number), ...unmet(drawn), ...overfull(drawn),
  ];
  return found.sort((one, other) => number(one.placed) - number(other.placed));
}

/** The first broken rule and how to mend it; "" if none is broken. @type {(drawn: Drawing) => string} */
export function firstFault(drawn) {
  const [fault] = faultsOf(drawn);
  return fault ? `${fault.words} ${fault.mend}` : "";
}

/** Each forward of a rank, and how many microbatches the rank holds once it starts.
 * @type {(drawn: Drawing, rank: number) => { placed: Placed, held: number }[]} */
export function holdingOf({ pipeline, placed }, rank) {
  /** @type {Placed[]} */
  const forwards = [];
  /** @type {number[]} */
  const releases = [];
  const released = pipeline.backward === "none" ? "FBW" : "BW";
  for (const one of placed) {
    if (one.rank !== rank) continue;
    for (const { kind } of one.action.halves) {
      if (kind === "F") forwards.push(one);
      if (released.includes(kind)) releases.push(endOf(pipeline, one));
    }
  }
  forwards.sort((one, other) => one.slot - other.slot);
  return forwards.map((one, number) => {
    const gone = releases.filter((end) => end <= one.slot).length;
    return { placed: one, held: number + 1 - gone };
  });
}

/** Of alternative actions the drawn one, else the one that the pipeline offers.
 * @type {(drawn: Drawing, choice: Action[]) => Action} */
export function meant({ where, pipeline }, choice) {
  const offered = kindsOf(pipeline);
  return choice.find(({ text }) => where.has(text)) ?? choice.find(({ kind }) => offered.includes(kind)) ?? choice[0];
}

/** @param {Placed} placed */
function at({ action: { text }, rank, slot }) {
  return `${text} (rank ${rank}, slot ${slot})`;
}

/** @type {(drawn: Drawing) => Fault[]} */
function misplaced({ placed: all, pipeline }) {
  return all.flatMap((placed) => {
    const half = placed.action.halves.find(({ stage }) => pipeline.stages[stage] !== placed.rank);
    if (!half) return [];
    const home = pipeline.stages[half.stage];
    const words = `${at(placed)} is on the wrong rank: stage ${half.stage} is on rank ${home}.`;
    return [{ placed, law: "rank", words, mend: `Move ${placed.action.text} to the row of rank ${home}.` }];
  });
}

/** @type {(drawn: Drawing) => Fault[]} */
function twice({ placed: all }) {
  /** @type {Fault[]} */
  const found = [];
  /** @type {Map<string, Placed>} */
  const seen = new Map();
  for (const placed of all) {
    for (const { text, stage, kind, microbatch } of placed.action.halves) {
      const other = [...EXCLUDES[kind]].map((each) => `${stage}${each}${microbatch}`).find((each) => seen.has(each));
      const first = other && seen.get(other);
      if (first) {
        const words = other === text
          ? `${at(placed)} is drawn twice: the other is at slot ${first.slot} of rank ${first.rank}.`
          : `${at(placed)} repeats work of ${other}: a B consists of I and W.`;
        found.push({ placed, law: "twice", words, mend: "Remove one of the two." });
      }
      if (!seen.has(text)) seen.set(text, placed);
    }
  }
  return found;
}

/** `number`: its place in the order of placing.
 * @type {(drawn: Drawing, number: (placed: Placed) => number) => Fault[]} */
function together(drawn, number) {
  const { pipeline, placed: all } = drawn;
  /** @type {Map<Placed, Fault>} */
  const found = new Map();
  for (let rank = 0; rank < pipeline.ranks; rank++) {
    /** @type {Placed[]} */
    let running = [];
    for (const placed of all.filter((one) => one.rank === rank).sort((one, other) => one.slot - other.slot)) {
      running = running.filter((one) => endOf(pipeline, one) > placed.slot);
      for (const one of running) {
        const [first, last] = number(one) < number(placed) ? [one, placed] : [placed, one];
        if (found.has(last)) continue;
        const shared = `shares slot ${placed.slot} with ${first.action.text}`;
        const words = `${at(last)} ${shared}: a rank runs one action at a time.`;
        found.set(last, { placed: last, law: "together", words, mend: moveThere(drawn, last) });
      }
      running.push(placed);
    }
  }
  return [...found.values()];
}

/** @type {(drawn: Drawing) => Fault[]} */
function unmet(drawn) {
  return drawn.placed.flatMap((placed) => arrivals(drawn.grid, placed.action).flatMap(({ choice, slot }) => {
    if (slot <= placed.slot) return [];
    const need = meant(drawn, choice);
    const words = `${at(placed)} needs ${need.text} of rank ${rankOf(drawn.pipeline, need)}, which is`;
    if (slot === Infinity) {
      return [{ placed, law: "needs", words: `${words} not drawn.`, mend: drawWords(drawn, need, placed) }];
    }
    const there = `${words} there only from slot ${slot} on.`;
    return [{ placed, law: "needs", words: there, mend: moveThere(drawn, placed, need) }];
  }));
}

/** @type {(drawn: Drawing) => Fault[]} */
function overfull(drawn) {
  const { pipeline } = drawn;
  const { limit, ranks } = pipeline;
  if (limit == null) return [];
  const kind = kindsOf(pipeline).includes("B") ? "B" : "W";
  const what = heldIn(pipeline);
  return Array.from({ length: ranks }, (_, rank) => holdingOf(drawn, rank)).flat()
    .filter(({ held }) => held > limit).map(({ placed, held }) => {
      const { action: { text }, rank, slot } = placed;
      const words = filled(SENTENCES.memory, { action: text, rank, slot, held, what, limit });
      return { placed, law: "memory", words, mend: filled(SENTENCES.release, { kind, rank, action: text }) };
    });
}

/** @type {(drawn: Drawing, placed: Placed, need?: Action | null) => string} */
function moveThere({ pipeline, placed: all }, placed, need = null) {
  const { text } = placed.action;
  const slot = earliest(gridOf(pipeline, all.filter((one) => !isSame(one, placed))), placed.action);
  if (slot == null) return `Draw what ${text} needs, and move ${text} behind that.`;
  return `Move ${text} to slot ${slot}${need ? `, or move ${need.text} to an earlier slot` : ""}.`;
}

/** How to draw a missing action in time. @type {(drawn: Drawing, need: Action, placed: Placed) => string} */
function drawWords(drawn, need, placed) {
  const rank = rankOf(drawn.pipeline, need);
  const by = placed.slot - (rank === placed.rank ? 0 : drawn.pipeline.latency);
  if (by < soonest(drawn, need)) {
    return `Draw ${need.text} on rank ${rank}, and move ${placed.action.text} behind ${need.text}.`;
  }
  return `Draw ${need.text} on rank ${rank} so that ${need.text} ends by slot ${by}.`;
}

/** The earliest slot at which an action can end, given what is drawn.
 * @type {(drawn: Drawing, wanted: Action) => number} */
function soonest({ pipeline, grid: { there } }, wanted) {
  const offered = kindsOf(pipeline);
  /** @type {Map<string, number>} */
  const ends = new Map();
  const stages = pipeline.stages.map((_, stage) => stage);
  for (const [kinds, order] of /** @type {[string, number[]][]} */ ([["F", stages], ["BI", stages.toReversed()]])) {
    for (const stage of order) {
      for (const kind of kinds) {
        const one = action(stage, kind, wanted.microbatch);
        const drawn = there.get(one.text);
        if (drawn === undefined && !offered.includes(kind) && one.text !== wanted.text) continue;
        ends.set(one.text, drawn ?? begun(pipeline, one, ends) + lasting(pipeline, one));
      }
    }
  }
  return ends.get(wanted.text) ?? Infinity;
}

/** The slot at which an action can start; `ends` says when its needs end.
 * @type {(pipeline: Pipeline, one: Action, ends: Map<string, number>) => number} */
function begun(pipeline, one, ends) {
  const rank = rankOf(pipeline, one);
  return Math.max(0, ...needs(one, pipeline.stages.length).map((choice) => {
    const first = Math.min(...choice.map(({ text }) => ends.get(text) ?? Infinity));
    return first + (pipeline.stages[choice[0].stage] === rank ? 0 : pipeline.latency);
  }));
}
