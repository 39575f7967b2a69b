// The bar of the game: the level, its goals and, once it is solved, its lesson.
import { h, write } from "../shared/dom.js";

/** @import { Asked, Paper } from "./state.js" */

/** The levels in a widget's state.
 * @typedef {{ level: number, levels: { number: number, title: string, solved: boolean }[], controls: { beside:
 *   string } }} LevelsState */

/**
 * @typedef {object} LevelBar
 * @property {HTMLElement} chips a button for each level
 * @property {HTMLElement} box the question and its goals
 * @property {HTMLElement} solved
 * @property {HTMLElement} actions what may be done once a level is solved
 * @property {(state: LevelsState, asked: Asked, away: boolean, able: boolean) => void} draw `asked`: the level and its
 *   goals; `away`: whether the grid is hidden; `able`: whether levels can be opened and compared
 */

/**
 * The bar of the levels.
 * @param {object} does
 * @param {(number: number) => void} does.open shows a level
 * @param {(name: string) => void} does.compare shows the known schedule under the drawing
 * @param {() => void} does.back shows the grid again
 * @returns {LevelBar}
 */
export function levelBar({ open, compare, back }) {
  const chips = h("span", { role: "group", "aria-label": "levels" });
  const question = h("p", { class: "dlv-question" });
  const goals = h("p", { class: "dlv-goals" });
  const words = h("p");
  const beside = h("button", { type: "button" });
  const grid = h("button", { type: "button", onclick: back }, "✎ Back to the grid");
  const onward = h("button", { type: "button" });
  const actions = h("div", { class: "dlv-toolbar" }, beside, grid, onward);
  const solved = h("div", { class: "dlv-solved", role: "status", hidden: true }, words, actions);
  let seen = "";

  /** @type {LevelBar["draw"]} */
  function draw({ level, levels, controls }, asked, away, able) {
    const key = JSON.stringify([level, levels, controls.beside, asked, away, able]);
    if (key === seen) return;
    seen = key;
    const focused = chips.contains(document.activeElement);
    chips.replaceChildren(...levels.map((one) => chipOf(one, one.number === level, able, open)));
    if (focused) /** @type {HTMLElement} */ (chips.querySelector("[aria-pressed=true]")).focus();
    const title = levels.find(({ number }) => number === level)?.title;
    question.replaceChildren(h("strong", {}, `Level ${level}: ${title}. `), asked.question);
    goals.replaceChildren(...asked.goals.map((goal) =>
      h("span", { "data-reached": String(goal.reached) }, `${goal.reached ? "☑" : "☐"} ${goal.words}`)));
    solved.hidden = !asked.answer;
    if (!asked.answer) return;
    const { name, title: known, paper, words: solvedWords } = asked.answer;
    words.replaceChildren(`★ Solved. ${solvedWords} `, paper ? paperLink(paper) : "");
    write(beside, `Compare with ${known}`);
    beside.onclick = () => compare(name);
    beside.hidden = controls.beside !== "";
    grid.hidden = !away;
    const next = levels[levels.findIndex(({ number }) => number === level) + 1];
    onward.hidden = !next;
    if (next) write(onward, `Level ${next.number} →`);
    onward.onclick = () => open(next.number);
    beside.disabled = grid.disabled = onward.disabled = !able;
  }

  return { chips, box: h("div", {}, question, goals), solved, actions, draw };
}

/** A link to a paper, which opens beside the page. @type {(paper: Paper) => HTMLAnchorElement} */
export function paperLink({ cited, address }) {
  const name = { title: cited, "aria-label": `paper: ${cited}` };
  return h("a", { href: address, target: "_blank", rel: "noopener", ...name }, "paper ↗");
}

/** @type {(level: { number: number, title: string, solved: boolean }, shown: boolean, able: boolean, open: (number:
 *   number) => void) => HTMLButtonElement} */
function chipOf({ number, title, solved }, shown, able, open) {
  return h("button", {
    type: "button", "aria-pressed": String(shown), disabled: !able, title, onclick: () => open(number),
  }, `${solved ? "★" : "☆"} ${number}`, h("span", { class: "dlv-spoken" }, `${title}${solved ? ", solved" : ""}`));
}
