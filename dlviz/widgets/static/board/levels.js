// The bar of a game in levels: which level, what it asks for, and what is told once it is solved.
import { h, write } from "../shared/dom.js";

/**
 * The bar; `open(number)` shows a level, `compare(name)` the known schedule under the drawing,
 * `back()` the grid again.
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

  return {
    chips,
    box: h("div", {}, question, goals),
    solved,
    actions,
    /** `told` is what the board says of its level, `away` whether the grid is; without a kernel nothing can be asked. */
    draw({ level, levels, controls }, told, away, live) {
      const key = JSON.stringify([level, levels, controls.beside, told, away, live]);
      if (key === seen) return;
      seen = key;
      const focused = chips.contains(document.activeElement);
      chips.replaceChildren(...levels.map((one) => h("button", {
        type: "button", "aria-pressed": String(one.number === level), disabled: !live,
        title: one.title, onclick: () => open(one.number),
      }, `${one.solved ? "★" : "☆"} ${one.number}`, h("span", { class: "dlv-spoken" }, `${one.title}${one.solved ? ", solved" : ""}`))));
      if (focused) chips.querySelector("[aria-pressed=true]").focus();
      const title = levels.find(({ number }) => number === level).title;
      question.replaceChildren(h("strong", {}, `Level ${level}: ${title}. `), told.question);
      goals.replaceChildren(...told.goals.map(({ words: asked, met }) => h("span", { "data-met": String(met) }, `${met ? "☑" : "☐"} ${asked}`)));
      solved.hidden = !told.answer;
      if (!told.answer) return;
      const { name, title: known } = told.answer;
      write(words, `★ Solved. ${told.answer.words}`);
      write(beside, `Compare with ${known}`);
      beside.onclick = () => compare(name);
      beside.hidden = controls.beside !== "";
      grid.hidden = !away;
      const next = levels[levels.findIndex(({ number }) => number === level) + 1];
      onward.hidden = !next;
      if (next) write(onward, `Level ${next.number} →`);
      onward.onclick = () => open(next.number);
      beside.disabled = grid.disabled = onward.disabled = !live;
    },
  };
}
