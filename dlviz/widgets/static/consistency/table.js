// The workers in numbers: what each does at the shown moment, and its averages.
import { h, write } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import { doingAt } from "./geometry.js";
import { nameOf, served } from "./state.js";
import { doesWords, percent } from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Consistency, Side, Worker } from "./state.js" */

/** @type {[string, (worker: Worker) => string, (side: Side) => string][]} */
const COLUMNS = [
  ["gradients/s", ({ rate }) => digits(rate), ({ rate }) => digits(rate)],
  ["mean staleness", ({ staleness }) => age(staleness), ({ staleness }) => age(staleness)],
  ["waits", ({ waiting }) => percent(waiting),
    ({ workers }) => percent(workers.reduce((sum, { waiting }) => sum + waiting, 0) / workers.length)],
];

/** @type {(staleness: number | null) => string} */
function age(staleness) {
  return staleness == null ? "–" : digits(staleness);
}

/** The table; a cell has the prediction, then the measurement. @type {(own: Consistency) => HTMLElement} */
export function workersTable({ shown }) {
  const { now } = shown;
  const box = h("div", { class: "dlv-workers" });
  /** @type {HTMLElement[][]} */
  let live = [];
  /** @type {(...text: Child[]) => HTMLElement} */
  const amount = (...text) => h("td", { class: "dlv-amount" }, text);

  shown.paints(["predicted", "measured", "data"], () => {
    const { predicted, measured } = now;
    const first = served(predicted) ? 1 : 0;
    /** @type {<T extends Worker | Side>(of: (one: T) => string, own: T, other?: T | null) => HTMLElement} */
    const both = (of, own, other) => amount(of(own), other ? h("strong", {}, ` | ${of(other)}`) : null);
    live = predicted.workers.map(() => [h("td", { class: "dlv-does" }), amount(), amount()]);
    box.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, h("td", {}), ["now", "clock c", "last staleness"].map((name, i) =>
        h("th", { scope: "col", class: i ? "dlv-amount" : null }, name)),
      COLUMNS.map(([name]) => h("th", { scope: "col", class: "dlv-amount" }, name)))),
      h("tbody", {}, predicted.workers.map((worker, i) => h("tr", {},
        h("th", { scope: "row" }, nameOf(predicted, i + first)), live[i],
        COLUMNS.map(([, of]) => both(of, worker, measured?.workers[i]))))),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 4 },
        measured ? "all; predicted | measured" : "all, predicted"),
      COLUMNS.map(([, , of]) => both(of, predicted, measured))))));
  });
  shown.paints(["predicted", "measured", "data", "which", "at"], () => {
    const side = now[now.which] ?? now.predicted;
    const first = served(side) ? 1 : 0;
    doingAt(side, now.at).slice(first).forEach((doing, i) => {
      const [does, clock, last] = live[i];
      write(does, doesWords(side, now.data.shown, doing));
      write(clock, String(doing.clock));
      write(last, doing.age == null ? "–" : String(doing.age));
    });
  });
  return box;
}
