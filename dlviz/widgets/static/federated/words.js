// A run, a round and a client in words.
import { amount, besideWords, bytes, digits, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";
import { currentOf } from "./state.js";

/** @import { Run, Data } from "./state.js" */

/** A share in percent. @type {(share: number) => string} */
export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** A run after a round, in lines. @type {(run: Run, round: number) => string[]} */
export function pointLines({ name, accuracy, nbytes, seconds: took, epsilon, recorded }, round) {
  return [
    recorded ? `${name} (recorded)` : name,
    `after ${round + 1} ${round ? "rounds" : "round"}: ${percent(accuracy[round])} recognised`,
    `${bytes(nbytes[round])}, ${seconds(took[round])} (modelled)`,
    ...(epsilon.length ? [`ε = ${amount(epsilon[round])}`] : []),
  ];
}

/** A client in lines, some about the column under the pointer; with `saw` the cells show what the server saw.
 * @type {(data: Data, at: { client: number, column: string, round: number }, saw: boolean) => string[]} */
export function clientLines(data, { client, column, round }, saw) {
  const { table, seconds: took, slow, attackers, late } = data.predicted;
  const own = table[client];
  const run = currentOf(data);
  const kind = [slow.includes(client) ? "slow" : "", client < attackers ? "attacks" : ""].filter(Boolean).join(", ");
  const lines = [`client ${client}${kind ? ` (${kind})` : ""}`];
  if (column === "rounds" && run) {
    const fate = run.fates[client][round];
    lines.push(`round ${round + 1}: ${fate < 0 ? "not asked" : data.fates[fate][1]}`);
    if (run.unchanged.includes(round)) lines.push("this round left the weights unchanged");
  } else if (column === "bars") {
    lines.push(took[client] ? `${seconds(took[client])} a round, modelled` : "no digit, so nothing to train on");
    if (late.includes(client)) lines.push(`late at the deadline of ${digits(data.controls.deadline)} s`);
  } else if (saw && column === "cells") {
    lines.push(sawWords(run, client));
  } else {
    const labels = own.map((many, label) => (many ? `${label}: ${many}` : "")).filter(Boolean);
    lines.push(`${own.reduce((sum, many) => sum + many, 0)} digits`, labels.join(", "));
  }
  return lines.filter(Boolean);
}

/** @type {(run: Run | null, client: number) => string} */
function sawWords(run, client) {
  if (!run) return "what the server sees of it is known after a run";
  if (!run.saw[client]) return "not among the clients heard last";
  return run.summed ? "residues modulo 2^32, as the server saw them" : "values of its update, as the server saw them";
}

/** The outcome of the last run, or of the run of the present controls. @type {(now: { data: Data }) => string} */
export function ranWords({ data }) {
  if (data.run) return outcome(data.run, () => []);
  const run = currentOf(data);
  if (!run) return "";
  const { predicted: { nbytes, lasts }, controls: { rounds } } = data;
  const [sent, took] = [run.nbytes, run.seconds].map((each) => each[each.length - 1]);
  return [
    run.recorded ? "A recorded run." : "", ...run.notes,
    `All rounds: ${besideWords(sent, rounds * nbytes, bytes)}; modelled ${besideWords(took, rounds * lasts, seconds)}.`,
  ].filter(Boolean).join(" ");
}

/** All runs, for screen readers. @type {(data: Data) => string} */
export function chartWords({ runs }) {
  if (!runs.length) return "Test digits recognised after each round: nothing was run yet.";
  const all = runs.map(({ name, accuracy }) => `${name}: ${percent(accuracy[accuracy.length - 1])}`);
  const whose = runs.every(({ recorded }) => recorded) ? " of recorded runs" : "";
  return `Test digits recognised after the last round${whose}. ${all.join("; ")}.`;
}
