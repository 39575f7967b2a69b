// Blocks, prices and runs in words.
import { besideWords, bytes, seconds } from "../shared/numbers.js";
import { outcome } from "../shared/running.js";

/** @import { Now } from "../shared/explorer.js" */
/** @import { Block, Layer, Matrix, Data } from "./state.js" */

const ITEMSIZE = 4; // bytes

/** The shape of a matrix in words. @type {(shape: [number, number]) => string} */
export function shapeWords([rows, columns]) {
  return `${rows} × ${columns}`;
}

/** A rank's block in lines, the first its name. @type {(matrix: Matrix, rank: number, block: Block) => string[]} */
export function blockLines({ name, made, cut, shape }, rank, [top, bottom, left, right]) {
  /** @type {(what: string, low: number, high: number, all: number) => string} */
  const part = (what, low, high, all) =>
    (high - low === all ? `all ${all} ${what}` : `${what} ${low} to ${high - 1} of ${all}`);
  return [
    `rank ${rank}: ${name}${made ? ` = ${made}` : ""}`,
    `${part("rows", top, bottom, shape[0])}, ${part("columns", left, right, shape[1])}`,
    `${cut === "sum" ? "a summand of the matrix, " : ""}${bytes((bottom - top) * (right - left) * ITEMSIZE)}`,
  ];
}

/** @type {Record<string, string>} */
const CUTS = {
  rows: "each rank has some rows", columns: "each rank has some columns", whole: "all ranks have it",
  sum: "each rank has a summand",
};

/** The picture of the matrices, for screen readers. @type {(data: Layer) => string} */
export function pictureWords({ matrices }) {
  /** @type {(row: (Matrix | null)[]) => string} */
  const said = (row) => row.filter((matrix) => matrix != null).map((matrix) => {
    const sends = matrix.collective ? `, then ${matrix.collective}` : "";
    return `${matrix.name} ${shapeWords(matrix.shape)}: ${CUTS[matrix.cut]}${(matrix.goes ?? 0) > 0 ? sends : ""}`;
  }).join("; ");
  return `Forward: ${said(matrices[0])}. Backward: ${said(matrices[1])}.`;
}

/** A rank's blocks, in a sentence. @type {(data: Layer, rank: number) => string} */
export function rankWords({ matrices, drawn }, rank) {
  const from = drawn === "run" ? "as the run's Trace says" : "as the form says";
  if (rank < 0) return `A block for each rank, ${from}; a stack: all ranks; Σ: summands.`;
  const held = matrices[0].filter((matrix) => matrix != null).map((matrix) => {
    const [top, bottom, left, right] = matrix.blocks[rank];
    return `${matrix.name}[${top}:${bottom}, ${left}:${right}]`;
  });
  return `Rank ${rank}: ${[...new Set(held)].join(", ")}.`;
}

/** The outcome of the last run. @type {(now: Now<Data>) => string} */
export function ranWords({ data: { run, long, prices, controls }, live }) {
  if (!run) return live ? long : "";
  return outcome(run, () => {
    const took = prices.find(({ form }) => form === controls.form)?.seconds ?? NaN;
    return [`A step took ${besideWords(run.seconds, took, seconds)}.`, ...run.summary];
  });
}
