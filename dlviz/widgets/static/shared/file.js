// SVG written as text, downloads, and the clipboard.

/** @type {Record<string, string>} */
const NAMED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text that is markup already. */
class Markup {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/** An element like that of `s` in dom.js, but as text: for a file, and without a document.
 * @type {(tag: string, attributes?: Record<string, any>, ...children: any[]) => Markup} */
export function written(tag, attributes = {}, ...children) {
  const own = Object.entries(attributes).filter(([, value]) => value !== false && value != null);
  const inside = children.flat(Infinity).filter((child) => child != null);
  return new Markup(
    `<${tag}${own.map(([name, value]) => ` ${name}="${plain(value)}"`).join("")}>` +
      `${inside.map((child) => (child instanceof Markup ? child.text : plain(child))).join("")}</${tag}>`,
  );
}

/** The text of an SVG file of such elements. @type {(width: number, height: number, ...children: any[]) => string} */
export function svgFile(width, height, ...children) {
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return written("svg", { xmlns: "http://www.w3.org/2000/svg", ...size }, ...children).text;
}

/** Downloads a picture. @type {(svg: string, name: string) => void} */
export function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export const COPIED = "copied";
export const SELECTED = "The page may not copy: press Ctrl+C, the text is selected.";

/** Copies a text; returns whether the page may: a frame of another page often may not.
 * @type {(text: string) => Promise<boolean>} */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Escaped text, without the characters that XML forbids. @type {(value: unknown) => string} */
function plain(value) {
  return String(value)
    .replace(/[&<>"]/g, (character) => NAMED[character])
    .replace(/[^\t\n\r\x20-\uFFFD]|\uFFFE|\uFFFF/g, "");
}
