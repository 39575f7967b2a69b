// A picture as a file: SVG written as text, and a text handed to the reader as a file.

const NAMED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

class Markup {
  constructor(text) {
    this.text = text;
  }
}

/** An element as base.js makes it, but written: for a file, and where there is no document. */
export function written(tag, attributes = {}, ...children) {
  const own = Object.entries(attributes).filter(([, value]) => value !== false && value != null);
  const inside = children.flat(Infinity).filter((child) => child != null);
  return new Markup(
    `<${tag}${own.map(([name, value]) => ` ${name}="${plain(value)}"`).join("")}>` +
      `${inside.map((child) => (child instanceof Markup ? child.text : plain(child))).join("")}</${tag}>`,
  );
}

/** The text of an SVG file of the given size that holds such elements. */
export function svgFile(width, height, ...children) {
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return written("svg", { xmlns: "http://www.w3.org/2000/svg", ...size }, ...children).text;
}

/** Hands a text to the reader as a file. */
export function save(text, name, type = "image/svg+xml") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Text in which nothing is markup, without the characters that XML has no place for. */
function plain(value) {
  return String(value)
    .replace(/[&<>"]/g, (letter) => NAMED[letter])
    .replace(/[^\t\n\r\x20-\uFFFD]|\uFFFE|\uFFFF/g, "");
}
