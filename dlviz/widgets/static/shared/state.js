// The state of a front end, and which parts are repainted when it changes.
import { oncePerPicture } from "./dom.js";

/**
 * @template {object} T
 * @typedef {object} State
 * @property {Readonly<T>} now what is shown
 * @property {(changes: Partial<T>) => void} set changes some of it; the parts that depend on it are painted before the
 *   next frame
 * @property {(names: (keyof T)[], paint: () => void) => void} paints calls `paint` when one of `names` has changed;
 *   parts are painted in the order of registration
 * @property {(...names: (keyof T)[]) => void} stale repaints the parts that depend on these names, all parts without a
 *   name
 * @property {() => void} flush paints immediately what is due
 * @property {(changes: Partial<T>) => void} show changes some of it and paints immediately
 * @property {() => void} stop paints no more
 */

/**
 * A state of a front end: `paints` declares what depends on what, `set` does the rest.
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

  /** @type {State<T>["set"]} */
  function set(changes) {
    const names = /** @type {(keyof T)[]} */ (Object.keys(changes));
    const changed = names.filter((name) => !Object.is(now[name], changes[name]));
    Object.assign(now, changes);
    if (changed.length) stale(...changed);
  }

  return {
    now, set, stale, flush,
    paints: (names, paint) => void parts.push({ names, paint, stale: true }),
    show(changes) {
      set(changes);
      flush();
    },
    stop: () => later.cancel(),
  };
}
