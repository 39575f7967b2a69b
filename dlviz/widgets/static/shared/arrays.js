// Columns of a state, and search in sorted ones.

/**
 * A column of a state: a list, or one value that stands for many equal ones.
 * @template T
 * @typedef {T[] | T} Column
 */

/** @type {(value: number, low: number, high: number) => number} */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** A column as a list of `count` values. @type {<T>(values: Column<T>, count: number) => T[]} */
export function column(values, count) {
  return Array.isArray(values) ? values : new Array(count).fill(values);
}

/** The texts of a state that lists each text once.
 * @type {<T>(indexed: { at: Column<number>, of: T[] }, count: number) => T[]} */
export function texts(indexed, count) {
  return column(indexed.at, count).map((place) => indexed.of[place]);
}

/** Segments of equal values next to each other.
 * @template T
 * @param {T[]} values */
export function segments(values) {
  /** @type {{ value: T, first: number, last: number }[]} */
  const found = [];
  values.forEach((value, i) => {
    const before = found.at(-1);
    if (before?.value === value) before.last = i;
    else found.push({ value, first: i, last: i });
  });
  return found;
}

/** How many of values[low..high) are at most x; values are ascending.
 * @type {(values: ArrayLike<number>, x: number, low?: number, high?: number) => number} */
export function upTo(values, x, low = 0, high = values.length) {
  let [from, to] = [low, high];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The index of the nearest value. @type {(values: number[], to: number) => number} */
export function nearest(values, to) {
  return values.reduce((best, value, i) => (Math.abs(value - to) < Math.abs(values[best] - to) ? i : best), 0);
}

/** The index of the nearest size, by ratio; 0 for an invalid size. @type {(sizes: number[], size: number) => number} */
export function placeOf(sizes, size) {
  return nearest(sizes.map(Math.log), Math.log(size));
}

/** A set with a value added, or removed if it was there. @type {<T>(values: Set<T>, value: T) => Set<T>} */
export function turned(values, value) {
  const others = [...values].filter((one) => one !== value);
  return new Set(others.length < values.size ? others : [...others, value]);
}
