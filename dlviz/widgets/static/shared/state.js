// What a front end shows now, and which of its parts are painted again when something of that changes.
import { oncePerPicture } from "./dom.js";

/**
 * @template {object} T
 * @typedef {object} State
 * @property {Readonly<T>} now what is shown
 * @property {(changes: Partial<T>) => void} set changes some of it; what depends on that is painted before
 *   the next picture
 * @property {(names: (keyof T)[], paint: () => void) => void} paints has `paint` called when one of `names`
 *   has changed; parts are painted in the order in which they were named
 * @property {(...names: (keyof T)[]) => void} stale has the parts that depend on these painted again,
 *   all parts where no name is given
 * @property {() => void} flush paints at once what is to be painted
 * @property {() => void} stop paints no more
 */

/**
 * A state of a front end: `paints` says what depends on what, once; `set` does the rest.
 * @template {object} T
 * @param {T} first
 * @returns {State<T>}
 */
export function state(first) {
  const now = { ...first };
  /** @type {{ names: (keyof T)[], paint: () => void, stale: boolean }[]} */
  const parts = [];
  const later = oncePerPicture(flush);

  function flush() {
    later.cancel();
    for (const part of parts) {
      if (!part.stale) continue;
      part.stale = false;
      part.paint();
    }
  }

  /** @type {State<T>["stale"]} */
  function stale(...names) {
    for (const part of parts) {
      part.stale ||= !names.length || part.names.some((name) => names.includes(name));
    }
    later();
  }

  return {
    now,
    set(changes) {
      const names = /** @type {(keyof T)[]} */ (Object.keys(changes));
      const changed = names.filter((name) => !Object.is(now[name], changes[name]));
      Object.assign(now, changes);
      if (changed.length) stale(...changed);
    },
    paints: (names, paint) => void parts.push({ names, paint, stale: true }),
    stale,
    flush,
    stop: () => later.cancel(),
  };
}
