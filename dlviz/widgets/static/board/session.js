// The gestures on a drawing board: the rules answer at once; a kernel, where there is one, has the last word.
import { apply, stateOf, tableOf } from "./rules.js";

/** @import { Rules, Table } from "./rules.js" */
/** @import { BoardState, Gesture, Model, Numbered } from "./state.js" */

/**
 * @typedef {object} Session
 * @property {() => BoardState} shown the board with all gestures
 * @property {(gesture: Gesture) => void} send
 * @property {() => void} turnOff no kernel answers any more: what it has not answered is taken back
 * @property {() => void} stop
 */

/**
 * The gestures of a board.
 * @param {Model} model
 * @param {(done: Gesture | null) => void} changed the board is another one, by a gesture or without one
 * @returns {Session}
 */
export function session(model, changed) {
  let live = model.get("live") !== false;
  let table = opened(model); // as the kernel last answered
  /** @type {{ asked: Numbered, table: Table }[]} */
  let pending = []; // what the kernel has not answered, and what comes of it
  /** @type {WeakMap<Table, BoardState>} */
  const states = new WeakMap();
  /** @type {Map<string, Table>} */
  const away = new Map(); // boards that were left for another level's, by their states
  let state = live ? JSON.parse(model.get("board")) : stateAt(table);
  let last = table.answered;
  let answering = false;

  /** @param {Table} one */
  function stateAt(one) {
    const known = states.get(one) ?? stateOf(one);
    states.set(one, known);
    return known;
  }

  const ahead = () => pending.at(-1)?.table ?? table;

  /** Goes on with what the kernel says, or with the board of another level. */
  function hear() {
    if (answering) return;
    /** @type {BoardState} */
    const heard = JSON.parse(model.get("board"));
    const done = pending.filter(({ asked }) => asked.n <= heard.answer).at(-1);
    const agrees = done != null && keyOf(stateAt(done.table)) === keyOf(heard);
    const rest = pending.filter(({ asked }) => asked.n > heard.answer);
    last = Math.max(last, heard.answer);
    if (agrees) [table, pending] = [done.table, rest];
    else {
      if (states.has(table)) away.set(keyOf(stateAt(table)), table); // it was drawn on
      table = away.get(keyOf(heard)) ?? opened(model);
      pending = [];
      for (const { asked } of rest) pending.push({ asked, table: apply(ahead(), asked) });
    }
    state = live && !pending.length ? heard : stateAt(ahead());
    changed(agrees || !done ? null : done.asked);
  }

  model.on("change:board", hear);
  return {
    shown: () => state,
    send(gesture) {
      const asked = { n: (last += 1), ...gesture };
      const next = apply(ahead(), asked);
      const foreseen = !(live && next.beyond);
      if (foreseen) state = stateAt(next);
      answering = true;
      if (live) {
        pending.push({ asked, table: next });
        model.set("gesture", JSON.stringify(pending.map((one) => one.asked)));
        model.save_changes();
      } else {
        table = next;
        model.set("board", JSON.stringify(state));
      }
      answering = false;
      if (foreseen) changed(asked);
    },
    turnOff() {
      live = false;
      pending = [];
      state = stateAt(table);
      changed(null);
    },
    stop: () => model.off("change:board", hear),
  };
}

/**
 * The board of a model, without a history.
 * @param {Model} model
 * @returns {Table}
 */
function opened(model) {
  /** @type {Rules} */
  const rules = JSON.parse(model.get("rules"));
  return tableOf(JSON.parse(model.get("board")), rules);
}

/**
 * A state without what came before it.
 * @param {BoardState} state
 * @returns {string}
 */
function keyOf(state) {
  return JSON.stringify({ ...state, answer: 0, undo: 0, redo: 0 });
}
