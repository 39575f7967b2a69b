// The drawing board's state as the rules make it, and look-ups in it.

/** @typedef {{ rank: number, slot: number }} Spot a slot of a rank */
/** @typedef {{ action: string, rank: number, slot: number }} Place an action that starts in a slot of a rank */
/** @typedef {{ stage: number, kind: string, microbatch: number, chunk: number }} Part an action, half of an overlap */
/** @typedef {Place & { slots: number, parts: Part[] }} Piece a cell or a ghost on the grid, `slots` wide */
/** @typedef {Piece & { faults: string[] }} Cell */
/** @typedef {Piece & { lead: boolean }} Ghost what may come next; `lead`: the first of its stage and kind */
/** @typedef {{ rank: number, start: number, end: number, cause: string, actions: string[], words: string }} Idle */
/** @typedef {{ slots: number, ratio: number, fraction: number, peak: number[], inside: number }} Score */
/** @typedef {{ cited: string, address: string }} Paper */
/** @typedef {Score & { name: string, title: string, paper: Paper | null }} Known */
/** @typedef {{ stage: number, kind: string, microbatches: number[] }} Left */
/** @typedef {{ color: string, pattern: string, ink: string, edge: string, line: string }} Style */
/** @typedef {{ words: string, reached: boolean }} Goal */
/** @typedef {{ name: string, title: string, paper: Paper | null, words: string }} Answer */
/** @typedef {{ question: string, goals: Goal[], answer: Answer | null }} Asked */

/** @typedef {Pick<BoardState, "ranks" | "microbatches" | "stages" | "lasts" | "slot" | "latency" | "backward" |
 * "limit" | "overlaps" | "undo" | "redo" | "shades"> & { name: string, cells: Place[] }} Given a drawing as a widget
 * and its kernel store it (`DrawingBoard.state` in dlviz/board/board.py). Each change gives it a new `name` */

/**
 * @typedef {object} BoardState all that the board shows
 * @property {number} ranks
 * @property {number} microbatches
 * @property {number[]} stages the rank of each stage
 * @property {string} kinds the kinds of action that are offered
 * @property {Record<string, number[]>} lasts for each kind its duration in each stage, in slots
 * @property {number} slot seconds
 * @property {number} latency slots
 * @property {string} backward
 * @property {number | null} limit
 * @property {boolean} overlaps
 * @property {number} columns
 * @property {number} end
 * @property {Cell[]} cells
 * @property {Ghost[]} ghosts
 * @property {Idle[]} idle
 * @property {Left[]} left
 * @property {string} verdict
 * @property {number} broken
 * @property {boolean} complete
 * @property {string[]} names
 * @property {string} held
 * @property {Score} score
 * @property {Known[]} zoo
 * @property {string | null} best
 * @property {boolean} beaten
 * @property {Asked | null} level
 * @property {{ words: string, move: Place | null } | null} advice
 * @property {string} said
 * @property {number} undo
 * @property {number} redo
 * @property {string} csv
 * @property {Record<string, Style[]>} shades of each kind the style in each chunk
 */

/** @typedef {{ do: string, [more: string]: any }} Gesture */

const ACTION = /^(\d+)([FBIW])(\d+)$/;

/** Whether a cell has this action, rank and slot. @type {(one: Place) => (other: Place) => boolean} */
export function sameAs(one) {
  return (other) => other.action === one.action && other.rank === one.rank && other.slot === one.slot;
}

/** An action, rank and slot alone. @type {(piece: Place) => Place} */
export function placeOf({ action, rank, slot }) {
  return { action, rank, slot };
}

/** The cell or idle time at a rank and slot; the cell placed last wins.
 * @type {(state: { cells: Cell[], idle: Idle[] }, spot: Spot) => { cell?: Cell, idle?: Idle }} */
export function thingAt(state, { rank, slot }) {
  const cell = state.cells.findLast((one) => one.rank === rank && one.slot <= slot && slot < one.slot + one.slots);
  if (cell) return { cell };
  const idle = state.idle.find((one) => one.rank === rank && one.start <= slot && slot < one.end);
  return idle ? { idle } : {};
}

/** The slot `by` to the right of the cursor; an action counts as one step.
 * @type {(state: BoardState, spot: Spot, by: number) => number} */
export function besides(state, { rank, slot }, by) {
  const { cell } = thingAt(state, { rank, slot });
  if (!cell) return slot + by;
  return by > 0 ? cell.slot + cell.slots : cell.slot - 1;
}

/** The halves of an action's text; null if the pipeline has no such action.
 * @type {(state: BoardState, text: string) => { stage: number, kind: string, microbatch: number }[] | null} */
export function halvesOf(state, text) {
  const inner = /^\((.*);(.*)\)OVERLAP_F_B$/.exec(text);
  const parts = [];
  for (const half of inner ? inner.slice(1) : [text]) {
    const found = ACTION.exec(half);
    if (!found) return null;
    parts.push({ stage: Number(found[1]), kind: found[2], microbatch: Number(found[3]) });
  }
  return parts.every(({ stage, kind }) => stage < state.stages.length && state.lasts[kind]) ? parts : null;
}

/** How many slots an action lasts. @type {(state: BoardState, text: string) => number} */
export function slotsOf(state, text) {
  return halvesOf(state, text)?.reduce((sum, { stage, kind }) => sum + state.lasts[kind][stage], 0) ?? 1;
}

/** The leading ghosts of a rank, earliest first: the palette. @type {(state: BoardState, rank: number) => Ghost[]} */
export function nextOn(state, rank) {
  return state.ghosts.filter((ghost) => ghost.lead && ghost.rank === rank).sort((one, other) => one.slot - other.slot);
}

/** The leading ghosts of all ranks. @type {(state: BoardState) => Ghost[]} */
export function nextOnAll(state) {
  const leads = state.ghosts.filter((ghost) => ghost.lead);
  return leads.sort((one, other) => one.slot - other.slot || one.rank - other.rank);
}

/** The action of a kind that the reader most likely wants on a rank: the one that may come next, else the first that
 * is not drawn. If `before` is of that kind, the rank's next stage.
 * @type {(state: BoardState, rank: number, kind: string, before: string | null) => string | null} */
export function pick(state, rank, kind, before) {
  const mine = state.left.filter((one) => one.kind === kind && state.stages[one.stage] === rank);
  if (!mine.length) return null;
  const next = (/** @type {number} */ stage) => state.ghosts.find(
    ({ lead, parts }) => lead && parts.length === 1 && parts[0].stage === stage && parts[0].kind === kind);
  const own = before && halvesOf(state, before)?.[0];
  if (own && own.kind === kind) {
    const after = mine.find(({ stage }) => stage > own.stage) ?? mine[0];
    return next(after.stage)?.action ?? `${after.stage}${kind}${after.microbatches[0]}`;
  }
  const ready = mine.flatMap(({ stage }) => next(stage) ?? []);
  ready.sort((one, other) => one.slot - other.slot);
  return ready[0]?.action ?? `${mine[0].stage}${kind}${mine[0].microbatches[0]}`;
}

/** The same action of the next, or previous, microbatch that is not drawn. `by`: 1 or -1.
 * @type {(state: BoardState, action: string, by: number) => string} */
export function turned(state, action, by) {
  const [own, other] = halvesOf(state, action) ?? [];
  if (!own || other) return action;
  const all = state.left.find(({ stage, kind }) => stage === own.stage && kind === own.kind)?.microbatches;
  if (!all?.length) return action;
  const at = all.indexOf(own.microbatch);
  const place = at < 0 ? 0 : (at + by + all.length) % all.length;
  return `${own.stage}${own.kind}${all[place]}`;
}
