// A run of a method in words: a bar, a moment, the measurement.
import { digits, gapWords, percent, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { nameOf, served } from "./state.js";

/** @import { Doing } from "./geometry.js" */
/** @import { Data, Side, SideData } from "./state.js" */

/** @type {Record<string, string>} */
const DOES = {
  forward: "forward", backward: "backward", update: "updates", send: "sends", recv: "receives", wait: "waits",
};

/** What a rank does, in a word or two; `shown` are the kinds.
 * @type {(side: Side, shown: string[], doing: Doing) => string} */
export function doesWords(side, shown, { rank, kind, waits, done }) {
  if (done) return "done";
  if (kind < 0) return "–";
  if (waits) return "waits";
  const worker = served(side) && rank > 0;
  if (worker && shown[kind] === "send") return "pushes";
  if (worker && shown[kind] === "recv") return "pulls";
  return DOES[shown[kind]];
}

/** A bar in lines, the first its name; `shown` are the kinds, `how` is "predicted" or "run".
 * @type {(side: Side, i: number, shown: string[], how: string) => string[]} */
export function barLines(side, i, shown, how) {
  const { rank, kind, start, end, waited } = side;
  const lines = [
    `${nameOf(side, rank[i])}: ${DOES[shown[kind[i]]]}`,
    `${how}: ${seconds(start[i])} to ${seconds(end[i])} (${seconds(end[i] - start[i])})`,
  ];
  if (waited[i] > start[i]) lines.push(`waits ${seconds(waited[i] - start[i])} of it`);
  return lines;
}

/** The result in a sentence. @type {(data: Data) => string} */
export function answerWords({ predicted, run }) {
  const { rate, staleness, workers } = predicted;
  const measured = run?.side;
  /** @type {(own: SideData) => string} */
  const waiting = (own) => percent(own.workers.reduce((sum, worker) => sum + worker.waiting, 0) / workers.length);
  const beside = (/** @type {(own: SideData) => string} */ of) => (measured ? ` (measured ${of(measured)})` : "");
  const age = (/** @type {SideData} */ own) => digits(own.staleness ?? 0);
  return [
    `${digits(rate)} gradients/s${beside((own) => `${digits(own.rate)}, ${gapWords(own.rate, rate)}`)}`,
    ...(staleness == null ? [] : [`staleness ${digits(staleness)}${beside(age)}`]),
    `workers wait ${waiting(predicted)}${beside(waiting)}`,
  ].join("; ");
}

/** The outcome of the last run. @type {(now: { data: Data }) => string} */
export function ranWords({ data: { run } }) {
  return run ? outcome(run, () => run.summary) : "";
}

/** A moment for screen readers: what each rank does.
 * @type {(side: Side, shown: string[], at: number, doing: Doing[]) => string} */
export function momentWords(side, shown, at, doing) {
  const ranks = doing.map((one) => `${nameOf(side, one.rank)} ${doesWords(side, shown, one)}`);
  return `${seconds(at)}: ${ranks.join(", ")}.`;
}
