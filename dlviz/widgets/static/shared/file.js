// A picture as a file: SVG written as text, and a text handed to the reader as a file.

/** @type {Record<string, string>} */
const NAMED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text that is markup already. */
class Markup {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/** An element as `s` of dom.js makes it, but written: for a file, and where there is no document.
 * @type {(tag: string, attributes?: Record<string, any>, ...children: any[]) => Markup} */
export function written(tag, attributes = {}, ...children) {
  const own = Object.entries(attributes).filter(([, value]) => value !== false && value != null);
  const inside = children.flat(Infinity).filter((child) => child != null);
  return new Markup(
    `<${tag}${own.map(([name, value]) => ` ${name}="${plain(value)}"`).join("")}>` +
      `${inside.map((child) => (child instanceof Markup ? child.text : plain(child))).join("")}</${tag}>`,
  );
}

/** The text of an SVG file that holds such elements.
 * @type {(width: number, height: number, ...children: any[]) => string} */
export function svgFile(width, height, ...children) {
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return written("svg", { xmlns: "http://www.w3.org/2000/svg", ...size }, ...children).text;
}

/** Hands a picture to the reader as a file. @type {(svg: string, name: string) => void} */
export function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export const COPIED = "copied";
export const SELECTED = "The page may not copy: press Ctrl+C, the text is selected.";

/** Puts a text on the clipboard, and gives whether the page may do so: a frame of another page often may not.
 * @type {(text: string) => Promise<boolean>} */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Text in which nothing is markup, without the characters that XML has no place for.
 * @type {(value: unknown) => string} */
function plain(value) {
  return String(value)
    .replace(/[&<>"]/g, (character) => NAMED[character])
    .replace(/[^\t\n\r\x20-\uFFFD]|\uFFFE|\uFFFF/g, "");
}
