// Rows of bars as data: their contents, places and spans.
import { upTo } from "../arrays.js";

/**
 * A row; pixels count from the top of the first one.
 * @typedef {object} Row
 * @property {number} rank
 * @property {string} label
 * @property {number} top
 * @property {number} bottom
 * @property {number} middle
 * @property {Memory | null} [memory] the memory of its rank, drawn above it
 * @property {{ label: string, middle: number }[]} [also] smaller names beside the row
 * @property {string} [remark] the text of a row without bars
 * @property {number} [group] the group of its rank, -1 for none
 * @property {boolean} [hidden]
 * @property {boolean} [pinned] stays in place while the others scroll
 */

/** What a rank held, and of each use where it named several: s; bytes or microbatches.
 * @typedef {{ rank: number, time: number[], held: number[], counts: boolean, uses: Record<string, number[]> }}
 *   Memory */

/** The spans first to after - 1, which follow each other in time. A slot shown `once` for all ranks lies above the
 * rows.
 * @typedef {{ row: number, first: number, after: number, top: number, bottom: number, once?: boolean }} Slot */

/** @typedef {{ label: string, where: string, summary: string[] }} Group ranks of one host or rack, in words */

/** @typedef {{ spans: number[], level: number }} Head shown once for all ranks */

/**
 * @typedef {object} Rows
 * @property {Row[]} rows
 * @property {number[]} shown the rows that are not hidden, from top to bottom
 * @property {Slot[]} slots
 * @property {ArrayLike<number>} slotOf of each span
 * @property {number} count of spans
 * @property {ArrayLike<number>} kindOf of each span
 * @property {number} kinds
 * @property {string[][]} labels of each span, the longest form first
 * @property {number[]} chunk of each span
 * @property {Set<number>} open spans that never ended
 * @property {boolean[]} holds of each kind: whether its spans only hold others
 * @property {Head[]} heads
 * @property {Group[]} [rankGroups] of ranks, each named over its rows
 * @property {Map<number, number>} headOf the head of a span that is shown once
 * @property {number} above pixels over the rows
 * @property {number} pinned pixels of the pinned rows
 * @property {number} height pixels of all rows
 * @property {number} strip pixels of a row's memory
 * @property {number} peak of all memory
 * @property {{ tail: number, head: number, summary: string }[]} cycle rows in the cycle of a deadlock
 * @property {{ tail: number[], head: number[], flow: number[], count: number }} arrows messages: their rows, and the
 *   message of each span (or -1)
 */

/** @typedef {{ start: ArrayLike<number>, end: ArrayLike<number>, row: number[], count: number }} Intervals */

/**
 * The times of the rows' contents, in seconds.
 * @typedef {object} Times
 * @property {ArrayLike<number>} start of each span
 * @property {ArrayLike<number>} end
 * @property {number} low
 * @property {number} high
 * @property {number} quantum the least difference of two moments
 * @property {Intervals} idle
 * @property {Intervals} gaps not drawn
 * @property {number[]} critical the spans of the critical path
 * @property {{ start: number[], end: number[] }} path
 * @property {boolean} memory whether memory is known by this clock
 * @property {number[]} sent of each message
 * @property {number[]} received NaN if never
 * @property {Map<number, number>} waited until when each waiting span waited
 * @property {{ rank: number, at: number, summary: string }[]} lost lost ranks, in words
 */

export const GROUP_LINE = 15; // pixels of a group's name over its rows

/** Whether a row that follows the row `before` (-1: none) has a line with its group's name. Pinned rows are apart
 * from the others. @type {(rows: Pick<Row, "group" | "pinned">[], row: number, before: number) => boolean} */
export function named(rows, row, before) {
  const [{ group = -1, pinned }, last] = [rows[row], rows[before]];
  return group >= 0 && (last?.group !== group || Boolean(last.pinned) !== Boolean(pinned));
}

/** Rows in another order: `order` from top to bottom, of which the `pinned` come first and the `hidden` do not show.
 * @type {<R extends Rows>(rows: R, chosen: { order: number[], hidden: Set<number>, pinned: Set<number> }) => R} */
export function arranged(rows, { order, hidden, pinned }) {
  const first = order.filter((row) => pinned.has(row));
  const shown = [...first, ...order.filter((row) => !pinned.has(row))].filter((row) => !hidden.has(row));
  const own = rows.rows.map((row, number) => ({ ...row, pinned: pinned.has(number) }));
  const strips = own.map(({ memory }) => (memory ? rows.strip : 0));
  /** @type {(of: Row[], row: number, before: number) => number} */
  const line = (of, row, before) => (named(of, row, before) ? GROUP_LINE : 0);
  /** @type {(row: number) => number} */
  const over = (row) => strips[row] + line(rows.rows, row, row - 1); // pixels between a gap and its row
  const gaps = own.map(({ top }, row) => (row ? top - own[row - 1].bottom - over(row) : 0));
  const least = Math.min(...gaps.slice(1)); // pixels between two rows go with the lower one
  /** @type {Map<number, number>} */
  const moved = new Map();
  /** @type {(row: number) => number} */
  const by = (row) => moved.get(row) ?? 0;
  let reached = 0;
  let held = 0; // pixels of the pinned rows
  shown.forEach((row, place) => {
    const { top, bottom } = own[row];
    const gap = (reached ? Math.max(gaps[row], least) : 0) + line(own, row, shown[place - 1] ?? -1);
    moved.set(row, reached + gap + strips[row] - top);
    reached = bottom + by(row);
    if (pinned.has(row)) held = reached;
  });
  return {
    ...rows, shown, height: reached, pinned: held,
    rows: own.map((row, number) => ({
      ...row, top: row.top + by(number), bottom: row.bottom + by(number), middle: row.middle + by(number),
      also: row.also?.map((one) => ({ ...one, middle: one.middle + by(number) })),
      hidden: !moved.has(number),
    })),
    slots: rows.slots.map((slot) =>
      (slot.once ? slot : { ...slot, top: slot.top + by(slot.row), bottom: slot.bottom + by(slot.row) })),
  };
}

/** The spans of a slot that overlap an interval: the first, and the one after the last.
 * @type {(slot: Slot, times: Times, from: number, to: number) => [number, number]} */
export function within(slot, { start, end }, from, to) {
  let first = upTo(start, from, slot.first, slot.after);
  /** @type {(i: number) => boolean} */
  const seen = (i) => end[i] > from || start[i] === from; // a span may have no length
  while (first > slot.first && seen(first - 1)) first--;
  return [first, upTo(start, to, first, slot.after)];
}

/** The span before or after `place` on its row, by start, outer ones first; or -1.
 * @type {(rows: Rows, times: Times, place: number, forward: boolean) => number} */
export function beside(rows, { start, end }, place, forward) {
  const { row } = rows.slots[rows.slotOf[place]];
  /** @type {(i: number) => number[]} */
  const key = (i) => [start[i], -end[i], i];
  /** @type {(a: number[], b: number[]) => number} */
  const before = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  const own = key(place);
  let best = -1;
  for (const slot of rows.slots) {
    if (slot.row !== row) continue;
    const [low, high] = around(slot, start, own[0]);
    for (let i = low; i < high; i++) {
      const side = before(key(i), own);
      if (i === place || (forward ? side < 0 : side > 0)) continue;
      if (best < 0 || (forward ? before(key(i), key(best)) < 0 : before(key(i), key(best)) > 0)) best = i;
    }
  }
  return best;
}

/** The spans of a slot that start at a moment, at the last start before it, or at the next one after it.
 * @type {(slot: Slot, start: ArrayLike<number>, moment: number) => number[]} */
function around({ first, after }, start, moment) {
  let high = upTo(start, moment, first, after);
  let low = high;
  while (low > first && start[low - 1] === moment) low--;
  if (low > first) low--;
  while (low > first && start[low - 1] === start[low]) low--;
  if (high < after) high++;
  while (high < after && start[high] === start[high - 1]) high++;
  return [low, high];
}

/** The innermost span of a row at a moment, else the nearest; or -1.
 * @type {(rows: Rows, times: Times, row: number, time: number) => number} */
export function at(rows, { start, end }, row, time) {
  let best = -1;
  let distance = Infinity;
  for (const slot of rows.slots) {
    if (slot.row !== row) continue;
    const near = upTo(start, time, slot.first, slot.after);
    for (const i of [near - 1, near]) {
      if (i < slot.first || i >= slot.after) continue;
      const away = Math.max(start[i] - time, time - end[i], 0);
      if (away <= distance) [best, distance] = [i, away]; // of two equally near, the inner
    }
  }
  return best;
}

/** For each head when it begins on the first rank; it is drawn to the last rank's end, or the next head's begin.
 * @type {(rows: Rows, times: Times) => { from: number, to: number, until: number, level: number }[]} */
export function headTimes({ heads }, { start, end }) {
  const found = heads.map(({ spans, level }) => ({
    level,
    from: spans.reduce((least, i) => Math.min(least, start[i]), Infinity),
    to: spans.reduce((most, i) => Math.max(most, end[i]), -Infinity),
  }));
  return found.map((own, number) => {
    const next = found[number + 1];
    return { ...own, until: next?.level === own.level ? Math.min(own.to, Math.max(next.from, own.from)) : own.to };
  });
}
