// Maps a domain to pixels and back, with d3's names.
import { unitOf } from "./numbers.js";

/** @typedef {(value: number) => number} Map */
/** @typedef {Map & { domain: [number, number], range: [number, number], invert: Map }} Scale */

/** A linear scale. @type {(domain: [number, number], range: [number, number]) => Scale} */
export function scaleLinear(domain, range) {
  return scaled((value) => value, (value) => value, domain, range);
}

/** A logarithmic scale; its domain is above 0. @type {(domain: [number, number], range: [number, number]) => Scale} */
export function scaleLog(domain, range) {
  return scaled(Math.log, Math.exp, domain, range);
}

/** @type {(to: Map, from: Map, domain: [number, number], range: [number, number]) => Scale} */
function scaled(to, from, domain, range) {
  const [low, high] = domain.map(to);
  const [left, right] = range;
  const factor = (right - left) / (high - low || 1);
  /** @type {Map} */
  const scale = (value) => left + (to(value) - low) * factor;
  /** @type {Map} */
  const invert = (place) => from(low + (place - left) / factor);
  return Object.assign(scale, { domain, range, invert });
}

/** The round number at or above a rough step between marks. @type {(rough: number) => number} */
export function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5].map((factor) => factor * power).find((one) => one >= rough * 0.999) ?? 10 * power;
}

/** Round moments of a scale of seconds, about one per 90 pixels, in the best unit.
 * @type {(x: Scale) => { x: number, label: string }[]} */
export function timeTicks(x) {
  const { domain: [from, to], range: [left, right] } = x;
  const unit = unitOf(Math.max(Math.abs(from), Math.abs(to)));
  const step = roundStep((to - from) / Math.max((right - left) / 90, 1));
  const places = Math.max(0, -Math.floor(Math.log10((step / unit[1]) * 1.0001)));
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to; i++) {
    found.push({ x: x(i * step), label: `${((i * step) / unit[1]).toFixed(places)} ${unit[0]}` });
  }
  return found;
}
