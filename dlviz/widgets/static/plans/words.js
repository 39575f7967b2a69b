// Plans and a run in words.
import { besideWords, bytes, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { bestOf, chosenOf, leastOf, limitOf, meshOf, runOf } from "./state.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Controls, Plans, Data } from "./state.js" */

/** @type {Record<string, string>} */
const AGAIN = { none: "no recomputation", selective: "selective recomputation", full: "full recomputation" };

/** A plan in words. @type {(data: Data, i: number) => string} */
export function planWords(data, i) {
  return `${meshOf(data.plans, i)}, ${variantWords(data, i)}`;
}

/** A plan without its mesh, in words. @type {(data: Data, i: number) => string} */
export function variantWords({ plans, titles }, i) {
  const { microbatch, schedule, recompute, pp } = plans;
  const order = pp[i] > 1 ? `${titles[schedule[i]]}, ` : "";
  return `microbatches of ${microbatch[i]}, ${order}${AGAIN[recompute[i]]}`;
}

/** A plan without its mesh and recomputation, short enough for a row of the table.
 * @type {(data: Data, i: number) => string} */
export function rowWords({ plans, titles }, i) {
  return `microbatch ${plans.microbatch[i]}${plans.pp[i] > 1 ? `, ${titles[plans.schedule[i]]}` : ""}`;
}

/** Why a plan fails, or what limits it. @type {(data: Data, i: number, limit: number) => string} */
export function limitWords({ plans, says }, i, limit) {
  const lacks = plans.memory[i] - limit;
  return lacks > 0 ? `fails by ${bytes(lacks)} ${whereWords(plans, i)}` : says[plans.limited_by[i]];
}

/** Which ranks of a plan hold the most. @type {(plans: Plans, i: number) => string} */
function whereWords({ pp, stage }, i) {
  return pp[i] > 1 ? `on stage ${stage[i]}` : "on each rank";
}

/** Which plan is best, and what the limit costs. @type {(data: Data, controls: Controls) => string} */
export function answerWords(data, controls) {
  const { plans } = data;
  const all = plans.memory.length;
  if (!data.settled) return "Computing all plans …";
  if (!all) return "No plan splits this model and batch over so many devices.";
  const limit = limitOf(data, controls);
  const best = bestOf(plans, limit);
  if (best < 0) {
    const least = leastOf(plans);
    const [need, lacks] = [plans.memory[least], plans.memory[least] - limit].map(bytes);
    return `None of ${all} plans fits in ${bytes(limit)} a rank. The smallest is ${planWords(data, least)}: it needs `
      + `${need} ${whereWords(plans, least)}, ${lacks} too much.`;
  }
  const fit = plans.memory.filter((own) => own <= limit).length;
  const many = fit === all ? `All ${all} plans fit` : `${fit} of ${all} plans fit`;
  return `${many} in ${bytes(limit)} a rank. The best is ${planWords(data, best)}: `
    + `${seconds(plans.seconds[best])} a step, ${bytes(plans.memory[best])}.${fasterWords(plans, best, limit)}`;
}

/** What the fastest plan lacks, if it does not fit. @type {(plans: Plans, best: number, limit: number) => string} */
function fasterWords({ memory, seconds: took }, best, limit) {
  if (!best) return "";
  const lacks = bytes(memory[0] - limit);
  return ` The fastest of all is ${digits(took[best] / took[0])} times as fast and needs ${lacks} more.`;
}

/** A plan in lines, the first its name. @type {(data: Data, i: number, limit: number) => string[]} */
export function planLines(data, i, limit) {
  const { plans } = data;
  return [
    meshOf(plans, i), variantWords(data, i),
    `${seconds(plans.seconds[i])} a step, ${bytes(plans.memory[i])} a rank, bubble ratio ${digits(plans.bubble[i])}`,
    ...exposedWords(data, i), limitWords(data, i, limit),
  ];
}

/** What a rank sends exposed along each axis: a line, or none. @type {(data: Data, i: number) => string[]} */
function exposedWords({ plans }, i) {
  const sent = Object.entries(plans.sent).filter(([, of]) => of[i] > 0);
  const words = sent.map(([axis, of]) => `${axis} ${bytes(of[i])}`);
  return words.length ? [`a rank sends exposed: ${words.join(", ")}`] : [];
}

/** The map, for screen readers. @type {(data: Data, controls: Controls, chosen: number) => string} */
export function mapWords(data, controls, chosen) {
  const shown = chosen < 0 ? "" : ` Chosen: ${planLines(data, chosen, limitOf(data, controls)).join("; ")}.`;
  return `Step time over memory per rank of all plans. ${answerWords(data, controls)}${shown}`;
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
export function ranWords({ data, controls, live }) {
  if (data.run) return outcome(data.run, () => []);
  const chosen = chosenOf(data, controls);
  const run = runOf(data, chosen);
  if (!run) return live ? data.long : "";
  const { seconds: took, memory, bubble } = data.plans;
  const limit = limitOf(data, controls);
  const judged = (run.memory > limit) === (memory[chosen] > limit) ? ""
    : `By the measurement it ${run.memory > limit ? "fails" : "fits"}.`;
  return outcome(run, () => [
    `Measured ${besideWords(run.seconds, took[chosen], seconds)}; ${besideWords(run.memory, memory[chosen], bytes)}; `
      + `bubble ratio ${besideWords(run.bubble, bubble[chosen], digits)}.`,
    judged, ...run.summary,
  ]);
}
