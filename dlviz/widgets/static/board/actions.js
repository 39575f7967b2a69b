// Actions and what makes a schedule legal: dlviz/schedules/action.py and rules.py in the browser.

/**
 * @typedef {object} Action
 * @property {string} text as schedules write it
 * @property {number} stage
 * @property {string} kind F, B, I or W
 * @property {number} microbatch
 * @property {Action[]} halves the two actions of an overlap; for any other action the action itself
 */

export const KINDS = "FBIW";
/** @type {Record<string, string>} */
export const EXCLUDES = { F: "F", B: "BIW", I: "IB", W: "WB" }; // kinds that exclude each other
const ONE = /^([0-9]{1,9})([FBIW])([0-9]{1,9})$/;
const TWO = /^\(([^;()]*);([^;()]*)\)OVERLAP_F_B$/;
const SHOWN = 8; // actions of a row that a message shows

/** An action that is impossible, with a sentence for the reader. */
export class Refused extends Error {}

/** The action of a stage, kind and microbatch. @type {(stage: number, kind: string, microbatch: number) => Action} */
export function action(stage, kind, microbatch) {
  const one = { text: `${stage}${kind}${microbatch}`, stage, kind, microbatch, halves: /** @type {Action[]} */ ([]) };
  one.halves.push(one);
  return one;
}

/** A forward and a backward at the same time. @type {(one: Action, other: Action) => Action} */
export function overlap(one, other) {
  const text = `(${one.text};${other.text})OVERLAP_F_B`;
  return { text, stage: -1, kind: "OVERLAP_F_B", microbatch: -1, halves: [one, other] };
}

/** Parses an action; refuses any other text. @type {(text: string) => Action} */
export function parse(text) {
  const own = text.trim();
  const two = TWO.exec(own);
  if (two) return overlap(parse(two[1]), parse(two[2]));
  const one = ONE.exec(own);
  if (one) return action(Number(one[1]), one[2], Number(one[3]));
  const what = quoted(own.slice(0, 40));
  throw new Refused(`${what} is not an action: write stage, F, B, I or W, and microbatch, as in 2F0.`);
}

/** Whether an action is one forward and one backward at the same time. @type {(one: Action) => boolean} */
export function isOverlap({ halves }) {
  return ["FB", "BF", "FI", "IF"].includes(halves.map(({ kind }) => kind).join(""));
}

/** What has to have run before an action, F, B, I or W: each a list of actions any of which would do.
 * @type {(one: Action, stages: number) => Action[][]} */
export function needs({ stage, kind, microbatch }, stages) {
  if (kind === "W") return [[action(stage, "I", microbatch)]];
  const neighbour = stage + (kind === "F" ? -1 : 1);
  const own = kind === "F" ? [] : [[action(stage, "F", microbatch)]];
  if (neighbour < 0 || neighbour >= stages) return own;
  return [...own, [...(kind === "F" ? "F" : "BI")].map((each) => action(neighbour, each, microbatch))];
}

/** Refuses rows with an action on the wrong rank or drawn twice. `stages`: the rank of each stage.
 * @type {(rows: Action[][], stages: number[]) => void} */
export function checkActions(rows, stages) {
  rows.forEach((row, rank) => row.forEach((one, index) => {
    if (one.halves.length > 1 && !isOverlap(one)) {
      const law = "an overlap is one forward and one backward, B or I";
      throw broken(rows, rank, index, `rank ${rank} cannot run ${one.text}: ${law}`);
    }
    for (const { text, stage } of one.halves) {
      const law = stage >= stages.length ? `the stages are 0 to ${stages.length - 1}`
        : stages[stage] !== rank ? `stage ${stage} is on rank ${stages[stage]}` : "";
      if (law) throw broken(rows, rank, index, `rank ${rank} cannot run ${text}: ${law}`);
    }
  }));
  /** @type {Map<string, number>} */
  const seen = new Map();
  rows.forEach((row, rank) => row.forEach((one, index) => {
    for (const half of one.halves) {
      for (const kind of EXCLUDES[half.kind]) {
        const before = `${half.stage}${kind}${half.microbatch}`;
        const first = seen.get(before);
        if (first === undefined) continue;
        throw broken(rows, rank, index, kind === half.kind
          ? `rank ${rank} runs ${half.text} twice, as its ${ordinal(first)} and ${ordinal(index)} action`
          : `rank ${rank} runs both ${before} and ${half.text}: a B is its I and its W`);
      }
      seen.set(half.text, index);
    }
  }));
}

/** Refuses rows that cannot finish, and says what is missing. `stages`: the rank of each stage.
 * @type {(rows: Action[][], stages: number[]) => void} */
export function checkProgress(rows, stages) {
  /** @type {Set<string>} */
  const done = new Set();
  const missing = (/** @type {Action} */ one) => one.halves.flatMap((half) => needs(half, stages.length))
    .filter((choice) => !choice.some(({ text }) => done.has(text)));
  const reached = rows.map(() => 0);
  for (let moved = true; moved;) {
    moved = false;
    rows.forEach((row, rank) => {
      while (reached[rank] < row.length && !missing(row[reached[rank]]).length) {
        for (const { text } of row[reached[rank]].halves) done.add(text);
        reached[rank] += 1;
        moved = true;
      }
    });
  }
  const rank = rows.findIndex((row, each) => reached[each] < row.length);
  if (rank >= 0) throw stuck(rows, stages, rank, reached, missing(rows[rank][reached[rank]]));
}

/** Why a rank stops, and where the rank that has the missing action stops.
 * @type {(rows: Action[][], stages: number[], rank: number, reached: number[], choices: Action[][]) => Refused} */
function stuck(rows, stages, rank, reached, choices) {
  const there = new Set(rows.flat().flatMap(({ halves }) => halves.map(({ text }) => text)));
  const missing = choices.map((choice) => choice.find(({ text }) => there.has(text)) ?? choice[0]);
  const index = reached[rank];
  const before = `rank ${rank} stops before its ${ordinal(index)} action, ${rows[rank][index].text}`;
  let words = `${before}: it needs ${missing.map(({ text }) => text).join(" and ")}, which never ran`;
  /** @type {Map<number, Action>} */
  const holders = new Map();
  for (const one of missing) if (there.has(one.text)) holders.set(stages[one.stage], one);
  for (const [other, one] of holders) {
    if (other === rank || reached[other] >= rows[other].length) continue;
    words += `; rank ${other}, which has ${one.text}, stops before ${rows[other][reached[other]].text}`;
  }
  return broken(rows, rank, index, words);
}

/** `words`, and the row of the rank up to the place.
 * @type {(rows: Action[][], rank: number, index: number, words: string) => Refused} */
function broken(rows, rank, index, words) {
  const shown = rows[rank].slice(0, index + 1);
  const cells = shown.slice(-SHOWN).map(({ text }) => text);
  cells.push(`[${cells.pop()}]`);
  if (shown.length > SHOWN) cells.unshift("...");
  return new Refused(`${words}; its row up to there: ${cells.join(" ")}.`);
}

/** The place in a row as a reader counts: "1st" for 0. @type {(index: number) => string} */
function ordinal(index) {
  const number = index + 1;
  const end = Math.floor(number / 10) % 10 === 1 ? "th" : ["th", "st", "nd", "rd"][number % 10] ?? "th";
  return `${number}${end}`;
}

/** Fills in the names in braces. @type {(words: string, values: Record<string, unknown>) => string} */
export function filled(words, values) {
  return words.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/** A value as Python writes it. @type {(value: unknown) => string} */
export function quoted(value) {
  if (typeof value !== "string") return String(value);
  const [mark, other] = value.includes("'") && !value.includes('"') ? ['"', '"'] : ["'", "\\'"];
  const text = value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll("\t", "\\t").replaceAll("\r", "\\r");
  return `${mark}${mark === "'" ? text.replaceAll("'", other) : text}${mark}`;
}
