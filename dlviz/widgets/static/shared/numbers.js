// Numbers in words: seconds, bytes, percent, three significant digits, all digits; typed numbers.

/** @typedef {[name: string, size: number]} Unit a unit of time and its seconds */

/** @type {Unit[]} */
const UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
/** @type {[string, number][]} */
const BYTES = [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]];

/** The best unit for a duration. @type {(seconds: number) => Unit} */
export function unitOf(span) {
  return UNITS.find(([, size]) => span >= 2 * size) ?? UNITS[2];
}

/** A duration in words: 3.1 ms. @type {(seconds: number) => string} */
export function seconds(value) {
  const known = UNITS.find(([, size]) => Math.abs(value) >= 0.9995 * size); // 0.9996 ms is 1 ms
  const [name, size] = known ?? (value ? UNITS[2] : UNITS[1]);
  const scaled = value / size;
  return `${Math.abs(scaled) < 1000 ? digits(scaled) : Math.round(scaled).toLocaleString("en")} ${name}`;
}

/** A measurement, its prediction and the relative error: 2.28 MB, predicted 3.44 MB (−33.7 %).
 * @type {(measured: number, predicted: number, said: (value: number) => string) => string} */
export function besideWords(measured, predicted, said) {
  if (said(measured) === said(predicted)) return `${said(measured)}, as predicted`;
  const summary = `${said(measured)}, predicted ${said(predicted)}`;
  if (said(predicted) === said(0) || !Number.isFinite(predicted)) return summary;
  return `${summary} (${gapWords(measured, predicted)})`;
}

/** The relative prediction error, measured minus predicted: −33.7 %.
 * @type {(measured: number, predicted: number) => string} */
export function gapWords(measured, predicted) {
  const gap = 100 * (measured / predicted - 1);
  return `${gap < 0 ? "−" : "+"}${Math.abs(gap).toFixed(1)} %`;
}

/** A moment on an axis, to the nanosecond in ms and µs. @type {(seconds: number, unit: Unit) => string} */
export function moment(value, [name, size]) {
  return `${(value / size).toFixed(name === "s" ? 6 : 3)} ${name}`;
}

/** A number with three significant digits. @type {(value: number) => string} */
export function digits(value) {
  return String(Number(value.toPrecision(3)));
}

/** A size in words, with 1000 bytes to a KB: 4.1 KB. @type {(bytes: number) => string} */
export function bytes(value) {
  const known = BYTES.find(([, size]) => value >= 0.9995 * size); // 999,600 bytes are 1 MB
  if (!known) return `${value} ${value === 1 ? "byte" : "bytes"}`;
  const many = value / known[1];
  return `${many < 999.5 ? digits(many) : Math.round(many).toLocaleString("en")} ${known[0]}`;
}

/** A share in percent. @type {(share: number) => string} */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** A number to three digits, large ones with commas. @type {(value: number) => string} */
export function amount(value) {
  return value >= 1000 ? Number(value.toPrecision(3)).toLocaleString("en") : digits(value);
}

/** A number with all digits; a mean that is not whole, to a tenth. @type {(value: number) => string} */
export function exact(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** The typed number; other text unchanged, for the kernel to refuse. @type {(text: string) => number | string} */
export function typed(text) {
  return NUMBER.test(text.trim()) ? Number(text) : text.trim();
}
