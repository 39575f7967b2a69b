// The workers in numbers: what each does at the shown moment, and its averages.
import { h, write } from "../shared/dom.js";
import { digits, percent } from "../shared/numbers.js";
import { table } from "../shared/table.js";
import { doingAt } from "./geometry.js";
import { nameOf, served } from "./state.js";
import { doesWords } from "./words.js";

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
export function workersTable(own) {
  const { shown } = own;
  const { now } = shown;
  /** @type {HTMLElement[][]} */
  let live = [];
  /** @type {<T extends Worker | Side>(of: (one: T) => string, own: T, other?: T | null) => Child} */
  const both = (of, own, other) => [of(own), other ? h("strong", {}, ` | ${of(other)}`) : null];
  const box = table(own, ["predicted", "measured", "data"], () => {
    const { predicted, measured } = now;
    const first = served(predicted) ? 1 : 0;
    live = predicted.workers.map(() => ["does", "amount", "amount"].map((kind) => h("td", { class: `dlv-${kind}` })));
    return {
      kind: "", words: [0, 1], heads: ["worker", "now", "clock c", "last staleness", ...COLUMNS.map(([name]) => name)],
      rows: predicted.workers.map((worker, i) => ({
        name: nameOf(predicted, i + first),
        cells: [...live[i], ...COLUMNS.map(([, of]) => both(of, worker, measured?.workers[i]))],
      })),
      foot: [{
        name: measured ? "all; predicted | measured" : "all, predicted",
        cells: COLUMNS.map(([, , of]) => both(of, predicted, measured)),
      }],
    };
  }, "dlv-workers");
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
