// Elements, numbers in words, and search in sorted columns: what every front end uses.

/** An element with attributes and children. A child that is no element is text, never markup. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null).map(asNode));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** The same in SVG. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null).map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Writes text into an element, but only where it is another one. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** A column of a state: a list, or one number that stands for `count` equal ones. */
export function column(values, count) {
  return Array.isArray(values) ? values : new Array(count).fill(values);
}

/** The texts of a state that lists each only once. */
export function texts(indexed, count) {
  return column(indexed.at, count).map((place) => indexed.of[place]);
}

/** How many of values[low..high) are at most x; values ascend. */
export function upTo(values, x, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

const UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
const BYTES = [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]];

/** The unit, and its seconds, in which a stretch of time is read best. */
export function unitOf(span) {
  return UNITS.find(([, size]) => span >= 2 * size) ?? UNITS[2];
}

/** A duration in words: 3.1 ms. */
export function seconds(value) {
  const known = UNITS.find(([, size]) => Math.abs(value) >= 0.9995 * size); // 0.9996 ms is 1 ms
  const [name, size] = known ?? (value ? UNITS[2] : UNITS[1]);
  const scaled = value / size;
  return `${Math.abs(scaled) < 1000 ? digits(scaled) : Math.round(scaled).toLocaleString("en")} ${name}`;
}

/** A moment on an axis, to the nanosecond in ms and µs. */
export function moment(value, [name, size]) {
  return `${(value / size).toFixed(name === "s" ? 6 : 3)} ${name}`;
}

/** A number with three significant digits. */
export function digits(value) {
  return String(Number(value.toPrecision(3)));
}

/** A size in words, a KB being 1000 bytes: 4.1 KB. */
export function bytes(value) {
  const known = BYTES.find(([, size]) => value >= 0.9995 * size); // 999,600 bytes are 1 MB
  if (!known) return `${value} ${value === 1 ? "byte" : "bytes"}`;
  const many = value / known[1];
  return `${many < 999.5 ? digits(many) : Math.round(many).toLocaleString("en")} ${known[0]}`;
}

const WHOLE = 640; // pixels: as high as a front end is at most, so that a laptop shows all of it

/** How high a part of `root` may be, so that all of it is no higher than that; `least` anyhow. */
export function roomFor(root, part, least) {
  const [whole, own] = [root, part].map((one) => one.getBoundingClientRect().height);
  return Math.max(least, Math.floor(WHOLE - whole + own));
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** The number that was typed; other text as it is, for the kernel to refuse in words. */
export function typed(text) {
  return NUMBER.test(text.trim()) ? Number(text) : text.trim();
}

/** Calls `draw` once before the next picture, however often it is asked to. */
export function oncePerPicture(draw) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  ask.cancel = () => cancelAnimationFrame(asked);
  return ask;
}
