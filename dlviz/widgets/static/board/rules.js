// The rules of the drawing board: a drawing and a gesture in; the next drawing, and all that is said of it, out.
import { Refused, filled, parse, quoted } from "./actions.js";
import { AskKernel, fromCsv, toCsv } from "./csv.js";
import { add, drawing, isSame, laidOut, offering, place, remove, rowsOf } from "./drawing.js";
import { faultsOf, firstFault } from "./faults.js";
import { begunAs, bestOf, movesOf, scoreOf, zooOf } from "./known.js";
import { BACKWARDS, chunkOf, heldIn, kindsOf, lasting, pipelineOf } from "./pipeline.js";
import { SENTENCES } from "./sentences.js";
import { advice, askedBy, goalsOf, verdict } from "./verdict.js";
import { idleOf, nextOf } from "./waiting.js";

/** @import { Drawing } from "./drawing.js" */
/** @import { Fault } from "./faults.js" */
/** @import { Given, Move, Schedule } from "./known.js" */
/** @import { Pipeline, Placed } from "./pipeline.js" */
/** @import { BoardState, Gesture, Given as Drawn, Left, Piece, Place, Style } from "./state.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Level } from "./verdict.js" */
/** @import { Next } from "./waiting.js" */

/** @typedef {{ known: Given[], level: Level | null }} Rules what a board knows beside its state */

/**
 * @typedef {object} Table a drawing with its history
 * @property {string} name
 * @property {Drawing} present
 * @property {Drawing[]} past
 * @property {Drawing[]} future
 * @property {number} older how many earlier steps only the kernel can undo
 * @property {number} newer how many later steps only it can redo
 * @property {Rules} rules
 * @property {Record<string, Style[]>} shades
 * @property {string} said why the last gesture was refused
 * @property {boolean} beyond whether only a kernel can do the last gesture
 * @property {Move[] | null} moves the next moves, if the last gesture asked for them
 */

const ROOM = 3; // empty room after the last action, in actions

/** A table of a given drawing. `live`: whether a kernel has its history.
 * @type {(given: Drawn, rules: Rules, live?: boolean) => Table} */
export function tableOf(given, rules, live = false) {
  const { name, shades, cells, undo, redo } = given;
  const present = drawing(pipelineOf(given), cells.map(placedOf));
  const [older, newer] = live ? [undo, redo] : [0, 0];
  return { name, present, past: [], future: [], older, newer, rules, shades, said: "", beyond: false, moves: null };
}

/** The table of a model's drawing. `live`: whether a kernel has its history.
 * @type {(model: Model, live?: boolean) => Table} */
export function tableIn(model, live = false) {
  return tableOf(JSON.parse(model.get("board")), JSON.parse(model.get("rules")), live);
}

/** A table without its history, as a widget stores it. @type {(table: Table) => Drawn} */
export function givenOf(table) {
  const { name, present: { pipeline, placed }, shades } = table;
  return { name, ...pipeline, cells: placed.map(placeIn), ...stepsOf(table), shades };
}

/** How many steps can be undone and redone. @type {(table: Table) => { undo: number, redo: number }} */
function stepsOf({ past, future, older, newer }) {
  return { undo: past.length + older, redo: future.length + newer };
}

/** @type {(placed: Placed) => Place} */
function placeIn({ action: { text }, rank, slot }) {
  return { action: text, rank, slot };
}

/** What the kernel needs to know of a gesture: its result, or the gesture itself where only the kernel can do it.
 * @type {(gesture: Gesture, before: Table, table: Table) => object} */
export function stepOf(gesture, { name: on }, { name, beyond, present }) {
  if (beyond) return { ...gesture, on };
  if (["undo", "redo"].includes(gesture.do)) return { do: gesture.do, on, name };
  const { pipeline: { backward, limit, overlaps }, placed } = present;
  const cells = placed.map(placeIn);
  return { do: "draw", on, name, backward, limit, overlaps, cells, fault: firstFault(present) };
}

/** A table after a gesture; a refused one changes only `said`. @type {(table: Table, asked: Gesture) => Table} */
export function apply(table, asked) {
  const before = { ...table, said: "", beyond: false };
  try {
    return DOES[asked.do](before, asked);
  } catch (error) {
    if (error instanceof Refused) return { ...before, said: error.message, beyond: error instanceof AskKernel };
    throw error;
  }
}

/** A table with another drawing; undo restores the present one. @type {(table: Table, next: Drawing) => Table} */
function did(table, next) {
  const { present, past } = table;
  const same = next.placed.length === present.placed.length
    && next.placed.every((one, i) => isSame(one, present.placed[i]))
    && samePipeline(next.pipeline, present.pipeline);
  if (same) return { ...table, moves: null };
  return { ...table, present: next, past: [...past, present], future: [], newer: 0, moves: null };
}

/** @type {(one: Pipeline, other: Pipeline) => boolean} */
function samePipeline(one, other) {
  return one.backward === other.backward && one.limit === other.limit && one.overlaps === other.overlaps;
}

/** @type {Record<string, (table: Table, asked: Gesture) => Table>} */
const DOES = {
  place: (table, asked) => did(table, asked.slot === undefined
    ? add(table.present, parse(asked.action)) : place(table.present, placedOf(/** @type {any} */ (asked)))),
  move: (table, { from, rank, slot }) => {
    if (from.rank === rank && from.slot === slot) return table;
    const placed = placedOf(from);
    return did(table, place(remove(table.present, placed), { action: placed.action, rank, slot }));
  },
  remove: (table, { from }) => did(table, remove(table.present, placedOf(from))),
  undo: (table) => {
    const { present, past, future } = table;
    const last = past.at(-1);
    if (!last && table.older) throw new AskKernel();
    if (!last) return { ...table, moves: null };
    return { ...table, present: last, past: past.slice(0, -1), future: [present, ...future], moves: null };
  },
  redo: (table) => {
    const { present, past, future: [next, ...future] } = table;
    if (!next && table.newer) throw new AskKernel();
    if (!next) return { ...table, moves: null };
    return { ...table, present: next, past: [...past, present], future, moves: null };
  },
  reset: (table) => did(table, drawing(table.present.pipeline)),
  tighten: (table) => {
    const fault = firstFault(table.present);
    if (fault) throw new Refused(fault);
    return did(table, laidOut(table.present.pipeline, rowsOf(table.present)));
  },
  known: (table, { name }) => {
    if (table.rules.level) throw new Refused(SENTENCES.fixed);
    const { pipeline } = table.present;
    const known = zooOf(pipeline, table.rules.known).find((one) => one.name === name);
    if (!known) throw new Refused(`${quoted(name)} is not defined for this size and placement.`);
    return did(table, laidOut(offering(pipeline, known.rows), known.rows));
  },
  csv: (table, { text }) => did(table, fromCsv(String(text), table.present.pipeline, table.rules.level != null)),
  set: (table, asked) => {
    if (table.rules.level) throw new Refused(SENTENCES.fixed);
    const { pipeline, placed } = table.present;
    return did(table, drawing(changed(pipeline, asked), placed));
  },
  advise: (table) => {
    const { present, rules } = table;
    const broken = faultsOf(present).length > 0;
    return { ...table, moves: broken ? [] : movesOf(present, zooOf(present.pipeline, rules.known)) };
  },
};

/** A pipeline with another `backward`, `limit` or `overlaps`.
 * @type {(pipeline: Pipeline, asked: Gesture) => Pipeline} */
function changed(pipeline, asked) {
  const { limit = pipeline.limit, backward = pipeline.backward, overlaps = pipeline.overlaps } = asked;
  if (limit != null && !(Number.isInteger(limit) && limit >= 1)) {
    throw new Refused(filled(SENTENCES.count, { name: "limit", value: quoted(limit) }));
  }
  if (!BACKWARDS[backward]) {
    const known = Object.keys(BACKWARDS).join(", ");
    throw new Refused(filled(SENTENCES.backward, { value: quoted(backward), known }));
  }
  if ((backward === "none") !== (pipeline.backward === "none")) {
    throw new Refused("A pipeline for training cannot become one for inference, nor the reverse.");
  }
  return { ...pipeline, limit, backward, overlaps };
}

/** @type {(place: Place) => Placed} */
function placedOf({ action, rank, slot }) {
  return { action: parse(action), rank, slot };
}

/** All that is drawn and said of a table. @type {(table: Table) => BoardState} */
export function stateOf(table) {
  const { present: drawn, rules: { known, level } } = table;
  const { pipeline } = drawn;
  const [faults, nexts, score, zoo] = [faultsOf(drawn), nextOf(drawn), scoreOf(drawn), zooOf(pipeline, known)];
  const seen = { drawn, faults, nexts, score };
  const goals = level && goalsOf(level, seen);
  const secret = goals != null && !goals.every(({ reached }) => reached); // a level does not give its schedule away
  const is = faults.length || !drawn.placed.length ? [] : begunAs(drawn, zoo);
  const names = secret ? [] : is.map(({ title }) => title);
  const best = level ? null : bestOf(pipeline, zoo);
  const complete = !drawn.left.length;
  const titles = new Map(level ? [] : zoo.map(({ name, title }) => [name, title]));
  return {
    ...sizeOf(pipeline),
    ...gridState(drawn, faults, nexts),
    verdict: verdict(seen, names, best),
    broken: faults.length,
    complete,
    names,
    held: heldIn(pipeline),
    score,
    zoo: level ? [] : zoo.map(({ name, title, paper, score: own }) => ({ name, title, paper, ...own })),
    best: best?.name ?? null,
    beaten: best != null && complete && !faults.length && score.slots < best.score.slots,
    level: level && goals && askedBy(level, goals, names),
    advice: table.moves && advice(table.moves, faults.length > 0, titles),
    said: table.said,
    ...stepsOf(table),
    csv: toCsv(drawn),
    shades: table.shades,
  };
}

/**
 * The pipeline of a drawing.
 * @param {Pipeline} pipeline
 */
function sizeOf(pipeline) {
  const { ranks, microbatches, stages, lasts, slot, latency, backward, limit, overlaps } = pipeline;
  const kinds = kindsOf(pipeline);
  return { ranks, microbatches, stages, kinds, lasts, slot, latency, backward, limit, overlaps };
}

/**
 * What is on the grid.
 * @param {Drawing} drawn
 * @param {Fault[]} faults
 * @param {Next[]} nexts
 */
function gridState(drawn, faults, nexts) {
  const { pipeline, placed, end } = drawn;
  const kinds = [...kindsOf(pipeline)];
  const longest = Math.max(...kinds.map((kind) => pipeline.lasts[kind][0]));
  /** @type {Map<Placed, string[]>} */
  const faultsOf = new Map(placed.map((one) => [one, []]));
  for (const fault of faults) faultsOf.get(fault.placed)?.push(`${fault.words} ${fault.mend}`);
  const ghosts = nexts.map((one) => ({ ...pieceOf(pipeline, one.placed), lead: one.lead }));
  return {
    columns: Math.max(end, ...ghosts.map(({ slot, slots }) => slot + slots)) + ROOM * longest,
    end,
    cells: placed.map((one) => ({ ...pieceOf(pipeline, one), faults: faultsOf.get(one) ?? [] })),
    ghosts,
    idle: idleOf(drawn).map((gap) => ({ ...gap, actions: gap.actions.map(({ text }) => text) })),
    left: leftOf(drawn),
  };
}

/** @type {(pipeline: Pipeline, placed: Placed) => Piece} */
function pieceOf(pipeline, { action, rank, slot }) {
  const parts = action.halves.map(({ stage, kind, microbatch }) =>
    ({ stage, kind, microbatch, chunk: chunkOf(pipeline, stage) }));
  return { action: action.text, rank, slot, slots: lasting(pipeline, action), parts };
}

/** The missing actions by stage and kind. @type {(drawn: Drawing) => Left[]} */
function leftOf({ left }) {
  /** @type {Map<string, Left>} */
  const found = new Map();
  for (const { stage, kind, microbatch } of left) {
    const own = found.get(`${stage}${kind}`) ?? { stage, kind, microbatches: [] };
    own.microbatches.push(microbatch);
    found.set(`${stage}${kind}`, own);
  }
  return [...found.values()].sort((one, other) => one.stage - other.stage || (one.kind < other.kind ? -1 : 1));
}
