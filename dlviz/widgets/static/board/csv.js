// Writes and reads a drawing as the compute-only CSV of torch.distributed.pipelining.
import { Refused, checkActions, checkProgress, parse } from "./actions.js";
import { laidOut, offering, rowsOf } from "./drawing.js";
import { checkInside } from "./pipeline.js";
import { SENTENCES } from "./sentences.js";

/** @import { Action } from "./actions.js" */
/** @import { Drawing } from "./drawing.js" */
/** @import { Pipeline } from "./pipeline.js" */

/** A request that only a kernel can answer. */
export class AskKernel extends Refused {}

const AWAY = "This text is a schedule of another size: without a kernel only one of this size can be drawn.";

/** The order of a drawing. @type {(drawn: Drawing) => string} */
export function toCsv(drawn) {
  return rowsOf(drawn).map((row) => `${row.map(({ text }) => text).join(",")}\n`).join("");
}

/** The drawing of a CSV at the earliest times; refuses an invalid schedule and one that deadlocks. `fixed`: whether
 * only this pipeline will do. @type {(text: string, pipeline: Pipeline, fixed: boolean) => Drawing} */
export function fromCsv(text, pipeline, fixed) {
  const given = cellsOf(text);
  const rows = fitting([...given, ...Array.from({ length: pipeline.ranks - given.length }, () => [])], pipeline);
  if (!rows) {
    const [own, stages] = rowsAlone(given);
    checkActions(own, stages);
    checkProgress(own, stages);
    throw new AskKernel(fixed ? SENTENCES.other : AWAY);
  }
  const offered = offering(pipeline, rows);
  const drawn = laidOut(offered, rows);
  if (fixed && (offered.backward !== pipeline.backward || offered.overlaps !== pipeline.overlaps)) {
    throw new Refused(SENTENCES.other);
  }
  return drawn;
}

/** The cells of each row of a CSV, or of its rows on one line with "/" between them.
 * @type {(text: string) => string[][]} */
export function cellsOf(text) {
  const own = text.replace(/^\uFEFF/, "").trimEnd(); // Excel's "CSV UTF-8" begins with a BOM
  if (!own) return [];
  const lines = own.includes("/") ? own.split("/") : own.split(/\r\n|\r|\n/);
  return lines.map((line) => line.replaceAll(",", " ").trim().split(/\s+/).filter(Boolean));
}

/** The rows, if each action belongs to the pipeline and is on the rank of its stage; else null.
 * @type {(cells: string[][], pipeline: Pipeline) => Action[][] | null} */
function fitting(cells, pipeline) {
  if (cells.length !== pipeline.ranks) return null;
  try {
    const rows = cells.map((row) => row.map(parse));
    rows.forEach((row, rank) => row.forEach((one) => checkInside(pipeline, { action: one, rank, slot: 0 })));
    const home = rows.every((row, rank) => row.every(({ halves }) =>
      halves.every(({ stage }) => pipeline.stages[stage] === rank)));
    return home ? rows : null;
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

/** The rows of a schedule of any size, and the rank whose row runs each stage.
 * @type {(cells: string[][]) => [rows: Action[][], stages: number[]]} */
function rowsAlone(cells) {
  const rows = cells.map((row, rank) => {
    try {
      return row.map(parse);
    } catch (error) {
      throw new Refused(`row ${rank + 1} (rank ${rank}): ${/** @type {Error} */ (error).message}`);
    }
  });
  /** @type {number[]} */
  const stages = [];
  rows.forEach((row, rank) => {
    const where = `row ${rank + 1} (rank ${rank})`;
    if (!row.length) throw new Refused(`${where} has no actions.`);
    for (const { stage, text } of row.flatMap(({ halves }) => halves)) {
      const first = stages[stage] ??= rank;
      if (first === rank) continue;
      const other = `row ${first + 1} (rank ${first}) runs stage ${stage} as well`;
      throw new Refused(`${where} runs ${text}, yet ${other}: a stage is on one rank.`);
    }
  });
  const missing = stages.findIndex((rank) => rank === undefined);
  if (missing >= 0 || !rows.length) {
    throw new Refused(`no row runs stage ${Math.max(missing, 0)}: a rank's row is missing.`);
  }
  return [rows, stages];
}
