// How the spans of a timeline look.

/** @import { Styles } from "../shared/gantt/paint.js" */
/** @import { Colors } from "../shared/theme.js" */
/** @import { Scene } from "./state.js" */

/**
 * How the kinds of a scene look on a page in these colours. Steps and phases only hold others: they are as pale as the
 * page's cells.
 * @param {Pick<Scene, "span" | "look" | "shades">} scene
 * @param {Colors} colors
 * @returns {Styles}
 */
export function stylesOf({ span, look, shades }, colors) {
  const { kinds } = look;
  const held = { pattern: "", ink: colors.ink, edge: colors.faint, line: colors.faint };
  const holders = { step: { ...held, color: colors.cell }, phase: { ...held, color: colors.grid } };
  const of = span.kinds.of.map((kind) => holders[kind] ?? kinds[kind] ?? kinds[""]);
  return {
    of, shades: span.kinds.of.map((kind, i) => shades[kind] ?? [of[i]]),
    idle: kinds.idle, waiting: kinds.wait, gaps: { ...kinds.idle, pattern: "." },
  };
}
