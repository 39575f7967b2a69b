// A round as an SVG file: pictures and words.
import { svgFile, written } from "../shared/file.js";
import { cellsOf } from "./geometry.js";
import {
  cellPicture, fills, groupNames, headPicture, marks, movesPicture, rankName, ranksPicture, rules, sendsPicture,
} from "./paint.js";
import { roundWords } from "./words.js";

/** @import { Layout } from "./geometry.js" */
/** @import { Scene } from "./state.js" */
/** @import { Colors } from "../shared/theme.js" */

/** @typedef {ReturnType<typeof written>} Markup */

const CIRCLE = 230; // pixels of the ranks on a circle
const LINE = 18; // pixels of a line of text
const CHARACTER = 6.4; // pixels of a character, on average

/** A round as the text of an SVG file.
 * @type {(scene: Scene, layout: Layout, number: number, colors: Colors, font: string) => string} */
export function savedRound(scene, layout, number, colors, font) {
  const { defs, of: filled } = fills(written, scene, "dlv");
  const head = [scene.title, ...scene.lines, roundWords(scene, number)];
  const below = [...scene.frames[number].losses, ...scene.frames[number].remarks];
  const top = 26 + LINE * (head.length - 1) + 10;
  const low = top + Math.max(CIRCLE, layout.height) + 10;
  const meanings = meaningsAt(scene, filled, low);
  const longest = Math.max(...head.map((text) => text.length));
  const width = Math.max(CIRCLE + 24 + layout.width + 12, meanings.right, 12 + CHARACTER * longest);
  return svgFile(
    Math.ceil(width),
    low + 34 + LINE * below.length,
    written("title", {}, `${scene.title}: ${roundWords(scene, number)}`),
    written("style", {}, `svg { font-family: ${font} }\n${rules(colors)}`),
    defs,
    written("rect", { width: "100%", height: "100%", fill: colors.paper }),
    head.map((text, i) => {
      const kind = i ? (i < head.length - 1 ? "dlv-words" : "dlv-start") : "dlv-title";
      return written("text", { x: 12, y: LINE + LINE * i, class: kind }, text);
    }),
    circleAt(scene, number, top),
    scene.values.length ? gridAt(scene, layout, number, filled, top) : null,
    meanings.parts,
    below.map((text, i) => written("text", { x: 12, y: low + 34 + LINE * i, class: "dlv-start" }, text)),
  );
}

/** @type {(scene: Scene, number: number, top: number) => Markup} */
function circleAt(scene, number, top) {
  const { ground, ranks } = ranksPicture(written, scene, CIRCLE);
  const sends = sendsPicture(written, scene, number, CIRCLE, true);
  return written("g", { transform: `translate(6 ${top})` }, ground, sends, ranks);
}

/** @type {(scene: Scene, layout: Layout, number: number, filled: string[], top: number) => Markup} */
function gridAt(scene, layout, number, filled, top) {
  return written("g", { transform: `translate(${CIRCLE + 24} ${top})` },
    headPicture(written, scene, layout),
    groupNames(written, scene, layout),
    scene.rows.map((rank, row) => rankName(written, layout, rank, row)),
    cellsOf(scene, layout, number).map((cell) => cellPicture(written, scene, layout, cell, filled)),
    movesPicture(written, scene, layout, number));
}

/** The marks with their meanings in a line, and where the line ends.
 * @type {(scene: Scene, filled: string[], low: number) => { parts: Markup[], right: number }} */
function meaningsAt(scene, filled, low) {
  let right = 12;
  const parts = marks(written, scene, filled).map(([mark, wide, words]) => {
    const at = right;
    right += wide + 18 + words.length * CHARACTER;
    return written("g", { transform: `translate(${at} ${low})` },
      mark, written("text", { x: wide + 4, y: 8, class: "dlv-words" }, words));
  });
  return { parts, right };
}
