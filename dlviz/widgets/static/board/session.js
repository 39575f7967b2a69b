// The gestures on a drawing board: the rules of the page say what comes of each, and the kernel hears of it.
import { requests } from "../shared/rpc.js";
import { apply, givenOf, stateOf, stepOf, tableIn } from "./rules.js";

/** @import { Answer } from "../shared/rpc.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Table } from "./rules.js" */
/** @import { BoardState, Gesture } from "./state.js" */

/** @typedef {{ gesture: Gesture, table: Table }} Asked a gesture, and what comes of it */

/**
 * @typedef {object} Session
 * @property {() => BoardState} shown the board with all gestures
 * @property {(gesture: Gesture) => void} send
 * @property {() => void} turnOff no kernel answers any more: what it has not answered is taken back
 * @property {() => void} stop
 */

/** The gestures of a board. `changed`: the board is another one, by a gesture or without one.
 * @type {(model: Model, changed: (done: Gesture | null) => void) => Session} */
export function session(model, changed) {
  let live = !model.page;
  let table = tableIn(model, live); // as the kernel has it
  let pending = /** @type {Asked[]} */ ([]); // what the kernel has not answered
  const away = /** @type {Map<string, Table>} */ (new Map()); // boards that were left for another level's
  let shown = table; // with all gestures
  const kernel = requests(model);

  /** @param {Gesture} gesture */
  function go(gesture) {
    const before = shown;
    const next = apply(before, gesture);
    const foreseen = !(live && next.beyond);
    if (foreseen && next.present === before.present) { // nothing else is drawn
      if (!pending.length) table = next;
      shown = next;
      return;
    }
    shown = { ...(foreseen ? next : before), name: named() };
    if (!live) {
      table = shown;
      model.set("board", JSON.stringify(givenOf(table)));
      return;
    }
    const asked = { gesture, table: shown };
    pending.push(asked);
    const step = stepOf(gesture, before, { ...next, name: shown.name });
    kernel.send("draw", { step }, (answer) => hearOf(asked, answer));
  }

  /** @param {string} [said] why what the kernel has is not what was done here */
  function take(said = "") {
    const name = nameIn(model);
    if (table.past.length + table.future.length) away.set(table.name, table);
    const found = name === table.name ? table : away.get(name) ?? tableIn(model, live);
    table = shown = { ...(live ? found : alone(found)), said };
  }

  /** @type {(asked: Asked, answer: Answer) => void} `late`: what it was done on had become another board */
  function hearOf(asked, { error, late }) {
    if (pending[0] !== asked) return; // it was asked again
    const rest = late ? pending : pending.slice(1);
    if (nameIn(model) === asked.table.name) {
      ({ table } = asked);
      pending = rest;
      return;
    }
    pending = [];
    take(error);
    for (const { gesture } of rest) go(gesture);
    changed(late ? null : asked.gesture);
  }

  function hear() {
    if (pending.length || nameIn(model) === table.name) return; // to what is pending an answer follows
    take();
    changed(null);
  }

  model.on("change:board", hear);
  return {
    shown: () => stateAt(shown),
    send(gesture) {
      const before = shown;
      go(gesture);
      if (shown.present !== before.present || shown.name === before.name) changed(gesture);
    },
    turnOff() {
      live = false;
      kernel.close();
      pending = [];
      table = shown = alone(table);
      changed(null);
    },
    stop() {
      kernel.close();
      model.off("change:board", hear);
    },
  };
}

/** @type {WeakMap<Table, BoardState>} */
const states = new WeakMap();

/** @type {(table: Table) => BoardState} */
function stateAt(table) {
  const state = states.get(table) ?? stateOf(table);
  states.set(table, state);
  return state;
}

/** A table without the steps that only a kernel knows. @type {(table: Table) => Table} */
function alone(table) {
  return { ...table, older: 0, newer: 0 };
}

/** `the result`: of what the kernel has. @type {(model: Model) => string} */
function nameIn(model) {
  return JSON.parse(model.get("board")).name;
}

/** A name for what is drawn, which no other drawing of the widget has. @type {() => string} */
function named() {
  return Math.random().toString(36).slice(2);
}
