// The gestures on a drawing board: the page's rules apply each, and the kernel is sent the result.
import { requests } from "../shared/rpc.js";
import { apply, givenOf, stateOf, stepOf, tableIn } from "./rules.js";

/** @import { Answer } from "../shared/rpc.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { Table } from "./rules.js" */
/** @import { BoardState, Gesture } from "./state.js" */

/** @typedef {{ gesture: Gesture, table: Table }} Asked a gesture and its result */

/** `shown`: the board after all gestures; `turnOff`: no kernel answers any more: gestures that it has not answered are
 * undone.
 * @typedef {{ shown: () => BoardState, send: (gesture: Gesture) => void, turnOff: () => void, stop: () => void }}
 *   Session */

/** The gestures of a board. `changed` is called when the board changed, by a gesture or (null) without one.
 * @type {(model: Model, changed: (done: Gesture | null) => void) => Session} */
export function session(model, changed) {
  let live = !model.page;
  let table = tableIn(model, live); // as the kernel has it
  let pending = /** @type {Asked[]} */ ([]); // not answered by the kernel yet
  const away = /** @type {Map<string, Table>} */ (new Map()); // boards of levels that were left
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

  /** @param {string} [said] why the kernel's board differs from this one */
  function take(said = "") {
    const name = nameIn(model);
    if (table.past.length + table.future.length) away.set(table.name, table);
    const found = name === table.name ? table : away.get(name) ?? tableIn(model, live);
    table = shown = { ...(live ? found : alone(found)), said };
  }

  /** @type {(asked: Asked, answer: Answer) => void} `late`: the kernel's board had changed meanwhile */
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
    if (pending.length || nameIn(model) === table.name) return; // the pending gestures will be answered
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

/** A table without the steps that only a kernel can undo. @type {(table: Table) => Table} */
function alone(table) {
  return { ...table, older: 0, newer: 0 };
}

/** The name of the kernel's board. @type {(model: Model) => string} */
function nameIn(model) {
  return JSON.parse(model.get("board")).name;
}

/** A unique name for a drawing. @type {() => string} */
function named() {
  return Math.random().toString(36).slice(2);
}
