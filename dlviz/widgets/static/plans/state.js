// What the kernel sends of all plans; which fit, are best and are chosen under a memory limit.

/** @import { Answer, Explorer } from "../shared/explorer.js" */

/** @typedef {[dp: number, tp: number, pp: number, microbatch: number, schedule: string, recompute: string]} Name */

/**
 * @typedef {object} Controls
 * @property {string} model
 * @property {string} device
 * @property {string} inside a link, as is `between`
 * @property {string} between
 * @property {number} node devices of a node
 * @property {number} devices
 * @property {number} batch sequences
 * @property {number | null} memory bytes; null: all of a device's
 * @property {Name | null} plan null: the best
 */

/** Columns of all plans, the fastest first; `memory` is the bytes of each rank of the pipeline's `stage`; `exposed` (s)
 * and the bytes `sent` meanwhile are by axis. `limited_by`: what takes most of the step besides the math.
 * @typedef {{ dp: number[], tp: number[], pp: number[], microbatch: number[], schedule: string[], recompute:
 *   string[], seconds: number[], memory: number[], stage: number[], bubble: number[], limited_by: string[], exposed:
 *   Record<string, number[]>, sent: Record<string, number[]> }} Plans */

/** The result of a run, in the plans' terms.
 * @typedef {{ seconds: number, memory: number, bubble: number, exposed: Record<string, number>, late: string,
 *   summary: string[] }} Run */

/**
 * @typedef {object} Machine
 * @property {Controls} controls
 * @property {Record<string, string>} titles of the schedules
 * @property {Record<string, string>} hues of what limits a plan
 * @property {Record<string, string>} says what limits it, in words
 * @property {Record<string, string>} axes
 * @property {number} own bytes of a device's memory
 * @property {Plans} plans
 * @property {string} long why the chosen plan cannot run here, or ""
 * @property {{ error?: string, stopped?: string } | null} run a failed or stopped run
 * @property {{ plan: Name, run: Run }[]} runs with these controls
 */

/** @typedef {Answer & Machine} Data */

/** @typedef {Explorer<Data, { pointed: number }>} Planner */

/** The plans of one mesh, the best first; `first` represents them in the table.
 * @typedef {{ mesh: string, first: number, plans: number[] }} Mesh */

/** The memory limit in bytes. @type {(data: Pick<Data, "own">, controls: Controls) => number} */
export function limitOf({ own }, { memory }) {
  return typeof memory === "number" ? memory : own;
}

/** The fastest plan within a limit in bytes; -1 if none fits. @type {(plans: Plans, limit: number) => number} */
export function bestOf({ memory }, limit) {
  return memory.findIndex((bytes) => bytes <= limit);
}

/** The plan that needs the least memory; -1 without plans. @type {(plans: Plans) => number} */
export function leastOf({ memory }) {
  return memory.reduce((best, bytes, i) => (best < 0 || bytes < memory[best] ? i : best), -1);
}

/** The index of a plan by its name; -1 if there is none. @type {(plans: Plans, name: Name | null) => number} */
export function placeOf(plans, name) {
  if (!name) return -1;
  return plans.dp.findIndex((_, i) => nameOf(plans, i).every((part, at) => part === name[at]));
}

/** @type {(plans: Plans, i: number) => Name} */
export function nameOf({ dp, tp, pp, microbatch, schedule, recompute }, i) {
  return [dp[i], tp[i], pp[i], microbatch[i], schedule[i], recompute[i]];
}

/** The shown plan: the reader's choice, else the best, else the one that needs the least memory.
 * @type {(data: Data, controls: Controls) => number} */
export function chosenOf(data, controls) {
  const own = placeOf(data.plans, controls.plan);
  if (own >= 0) return own;
  const best = bestOf(data.plans, limitOf(data, controls));
  return best >= 0 ? best : leastOf(data.plans);
}

/** The plans of each mesh: those that fit by seconds, then those that fail by the bytes they lack.
 * @type {(plans: Plans, limit: number) => Mesh[]} */
export function meshesOf(plans, limit) {
  const { memory } = plans;
  /** @type {(i: number) => number} */
  const lacks = (i) => Math.max(0, memory[i] - limit);
  /** @type {(a: number, b: number) => number} */
  const better = (a, b) => lacks(a) - lacks(b) || a - b; // plans are ordered by seconds
  /** @type {Map<string, number[]>} */
  const found = new Map();
  for (let i = 0; i < memory.length; i++) {
    const mesh = meshOf(plans, i);
    if (!found.has(mesh)) found.set(mesh, []);
    found.get(mesh)?.push(i);
  }
  return [...found].map(([mesh, own]) => {
    const sorted = own.sort(better);
    return { mesh, first: sorted[0], plans: sorted };
  }).sort((a, b) => better(a.first, b.first));
}

/** @type {(plans: Plans, i: number) => string} */
export function meshOf({ dp, tp, pp }, i) {
  return `dp ${dp[i]} × tp ${tp[i]} × pp ${pp[i]}`;
}

/** The run of a plan, if there is one. @type {(data: Data, i: number) => Run | undefined} */
export function runOf({ plans, runs }, i) {
  return i < 0 ? undefined : runs.find(({ plan }) => String(plan) === String(nameOf(plans, i)))?.run;
}
