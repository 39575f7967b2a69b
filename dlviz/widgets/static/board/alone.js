// Drawings and levels of the explorer of schedules without a kernel, by the rules of this page.
import { toCsv } from "./csv.js";
import { firstFault } from "./faults.js";
import { pictureOf } from "./picture.js";
import { apply, givenOf, stateOf, tableIn, tableOf } from "./rules.js";
import { SENTENCES } from "./sentences.js";

/** @import { Rules } from "./rules.js" */
/** @import { Model } from "../shared/theme.js" */
/** @import { BoardState, Given } from "./state.js" */

/**
 * @typedef {object} Alone
 * @property {(name: string, value: any) => boolean} can whether a control can be set without a kernel
 * @property {(name: string, value: any) => void} change sets it
 * @property {() => void} drew takes over the drawing
 */

/** @typedef {{ board: Given, rules: Rules, known: object }} Blank a level's empty grid and its known schedule */

const DRAWN = "drawn";

/** Does the part of the kernel that a page can do: it sets the widget's traits, as a kernel does.
 * @type {(model: Model) => Alone} */
export function alone(model) {
  /** @type {Record<string, Blank>} */
  const blanks = JSON.parse(model.get("blanks") ?? "{}");
  const first = read(model, "state"); // shown again when the drawing is left
  /** @type {Map<number, string>} */
  const boards = new Map(); // what was drawn on other levels
  let opening = false; // while another level opens, its board is not a drawing

  /** @param {object} changes */
  function show(changes) {
    const state = { ...read(model, "state"), run: null, ...changes };
    const drawn = state.controls.schedule === DRAWN;
    const csv = !drawn ? first.csv : state.sides[0].error ? "" : toCsv(tableIn(model).present);
    model.set("state", JSON.stringify({ ...state, chart: first.chart, csv, settled: true }));
  }

  /** @param {number} level */
  function open(level) {
    boards.set(model.get("level"), model.get("board"));
    const { board: blank, rules } = blanks[level];
    const empty = tableOf(blank, rules);
    const saved = model.get("drawings")[level];
    const table = saved ? { ...apply(empty, { do: "csv", text: saved }), past: [] } : empty;
    model.set("rules", JSON.stringify(rules));
    model.set("level", level);
    opening = true;
    model.set("board", boards.get(level) ?? JSON.stringify(givenOf(table)));
    opening = false;
    const controls = { ...read(model, "state").controls, beside: "" };
    show({ level, controls, sides: [sideOf(model)] });
  }

  function drew() {
    if (opening) return;
    const state = read(model, "state");
    const board = stateOf(tableIn(model));
    const levels = state.levels && solvedBy(state.levels, state.level, board);
    if (levels && board.cells.length && !board.broken && (board.level?.answer || !solved(state))) {
      model.set("drawings", { ...model.get("drawings"), [state.level]: board.csv });
    }
    const drawn = sideOf(model);
    const sides = state.sides.map((/** @type {{ name: string }} */ side) => (side.name === DRAWN ? drawn : side));
    show(levels ? { levels, sides } : { sides });
  }

  /** @type {Record<string, (value: any) => void>} */
  const changes = {
    level: open,
    beside: (name) => {
      const { controls, level } = read(model, "state");
      show({ controls: { ...controls, beside: name }, sides: [sideOf(model), ...(name ? [blanks[level].known] : [])] });
    },
    schedule: (name) => {
      const { controls, sides: [, ...beside] } = read(model, "state");
      const side = name === DRAWN ? sideOf(model) : first.sides[0];
      show({ controls: { ...controls, schedule: name }, sides: [side, ...beside] });
    },
  };

  return {
    can: (name, value) => {
      const { controls, level } = first;
      if (level) return name === "level" ? value in blanks : name === "beside" && level in blanks;
      return name === "schedule" && model.get("board") !== "{}" && [DRAWN, controls.schedule].includes(value);
    },
    change: (name, value) => changes[name](value),
    drew,
  };
}

/** @type {(model: Model, name: string) => any} */
function read(model, name) {
  return JSON.parse(model.get(name));
}

/** @typedef {{ number: number, title: string, solved: boolean }} LevelChip */

/** Whether the current level was solved. @type {(state: { level: number, levels: LevelChip[] }) => boolean} */
function solved({ level, levels }) {
  return levels.some((one) => one.number === level && one.solved);
}

/** The levels; the current one gets its star once it is solved.
 * @type {(levels: LevelChip[], level: number, board: BoardState) => LevelChip[]} */
function solvedBy(levels, level, board) {
  const now = board.level?.answer != null;
  return levels.map((one) => (one.number === level ? { ...one, solved: one.solved || now } : one));
}

/** The drawing as a side, or why it cannot be one. @type {(model: Model) => object} */
function sideOf(model) {
  const title = read(model, "state").titles[DRAWN];
  const { present, shades } = tableIn(model);
  const error = present.placed.length ? firstFault(present) : SENTENCES.empty;
  if (error) return { name: DRAWN, title, error };
  return { name: DRAWN, title, ...pictureOf(present, shades) };
}
