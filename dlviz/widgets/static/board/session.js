// The gestures on a drawing board: the rules answer at once; a kernel, where there is one, has the last word.
import { requests } from "../shared/rpc.js";
import { apply, stateOf, tableOf } from "./rules.js";

/** @import { Model } from "../shared/theme.js" */
/** @import { Rules, Table } from "./rules.js" */
/** @import { BoardState, Gesture } from "./state.js" */

/** @typedef {{ gesture: Gesture, table: Table }} Asked a gesture, and what comes of it */

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
  let live = !model.page;
  let table = opened(model); // as the kernel last answered
  /** @type {Asked[]} */
  let pending = []; // what the kernel has not answered
  /** @type {WeakMap<Table, BoardState>} */
  const states = new WeakMap();
  /** @type {Map<string, Table>} */
  const away = new Map(); // boards that were left for another level's, by their states
  let state = live ? JSON.parse(model.get("board")) : stateAt(table);
  let doing = false; // the page itself changes the board
  const kernel = requests(model);

  /** @param {Table} one */
  function stateAt(one) {
    const known = states.get(one) ?? stateOf(one);
    states.set(one, known);
    return known;
  }

  const ahead = () => pending.at(-1)?.table ?? table;

  /**
   * Goes on with what the kernel says, after `done` or for another reason, or with the board of another level.
   * @param {Asked | null} done
   */
  function goOn(done) {
    const heard = JSON.parse(model.get("board"));
    const agrees = done != null && keyOf(stateAt(done.table)) === keyOf(heard);
    if (agrees) ({ table } = done);
    else {
      if (states.has(table)) away.set(keyOf(stateAt(table)), table); // it was drawn on
      table = away.get(keyOf(heard)) ?? opened(model);
      const rest = pending;
      pending = [];
      for (const { gesture } of rest) pending.push({ gesture, table: apply(ahead(), gesture) });
    }
    state = live && !pending.length ? heard : stateAt(ahead());
    changed(agrees || !done ? null : done.gesture);
  }

  function hear() {
    if (!doing && !pending.length) goOn(null); // to what is pending an answer follows
  }

  model.on("change:board", hear);
  return {
    shown: () => state,
    send(gesture) {
      const next = apply(ahead(), gesture);
      const foreseen = !(live && next.beyond);
      if (foreseen) state = stateAt(next);
      doing = true;
      if (live) {
        pending.push({ gesture, table: next });
        kernel.send("gesture", { gesture }, () => goOn(pending.shift() ?? null));
      } else {
        table = next;
        model.set("board", JSON.stringify(state));
      }
      doing = false;
      if (foreseen) changed(gesture);
    },
    turnOff() {
      live = false;
      kernel.close();
      pending = [];
      state = stateAt(table);
      changed(null);
    },
    stop() {
      kernel.close();
      model.off("change:board", hear);
    },
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
  return JSON.stringify({ ...state, undo: 0, redo: 0 });
}
