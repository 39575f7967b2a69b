// A timeline's view as the text of an SVG file.
import { svgFile, written } from "../shared/file.js";
import { vector } from "../shared/vector.js";

/** @import { Painting } from "../shared/paint.js" */
/** @import { Colors } from "../shared/theme.js" */

const HEADING = 26; // pixels over the picture

/** The rows as they were painted, below the title.
 * @type {(painting: Painting, title: string, colors: Colors, font: string) => string} */
export function savedRows({ width, height, paint }, title, colors, font) {
  const context = vector("p", written);
  paint(context);
  const look = { "font-size": 14, "font-weight": 600, fill: colors.ink, "dominant-baseline": "central" };
  return svgFile(width, HEADING + height, written("g", { "font-family": font },
    written("rect", { width, height: HEADING, fill: colors.paper }),
    written("text", { x: 8, y: HEADING / 2, ...look }, title),
    written("g", { transform: `translate(0 ${HEADING})` }, context.done())));
}
