// The panels under a timeline: the selected span, the statistics of a range, and the table.
import { bytes, h, moment, seconds, unitOf } from "./base.js";
import { inRange } from "./timeline_stats.js";
import { amountOf, lateness, messageLines, numbersOf, placeOf, rowOf, titleOf, waited, whyOf } from "./timeline_words.js";

const LISTED = 300; // spans in the table

function link(words, pressed) {
  return h("button", { type: "button", class: "dlv-link", onclick: pressed }, words);
}

function amount(value) {
  return h("td", { class: "dlv-amount" }, value);
}

/** All that is known of span i. `go(span)` selects another, `show(where)` a line of source. */
export function spanPanel(scene, shown, i, { go, show, sourced }) {
  const clock = scene.clocks[shown];
  const unit = unitOf(clock.high - clock.low);
  const { span, message } = scene;
  const rows = [["where", rowOf(scene, i)], ["took", seconds(clock.end[i] - clock.start[i])]];
  rows.push(["from", `${moment(clock.start[i], unit)} to ${moment(clock.end[i], unit)}`]);
  if (scene.clocks.length > 1) rows.push(["late by", `${lateness(scene, i)} (wall clock after the device's, at its end)`]);
  if (numbersOf(scene, i)) rows.push(["part of", numbersOf(scene, i)]);
  const why = whyOf(scene, clock, i);
  if (why.length) {
    rows.push(["waited", why.map(({ words, at }, number) =>
      [number ? ", " : "", words, at >= 0 ? [" (", link("show it", () => go(at)), ")"] : null])]);
  }
  if (clock.turn.has(i)) rows.push(["critical path", `on it, ${clock.turn.get(i) + 1} of ${clock.critical.length}`]);
  if (span.nbytes[i] >= 0) rows.push(["size", bytes(span.nbytes[i])]);
  const flow = span.flow[i];
  if (flow >= 0) {
    const [head, ...rest] = messageLines(scene, clock, flow, unit);
    const ends = [["sender", message.sender[flow]], ["receiver", message.receiver[flow]]];
    const others = ends.filter(([, at]) => at >= 0 && at !== i).map(([name, at]) => [" ", link(`go to the ${name}`, () => go(at))]);
    rows.push(["carries", [[head, ...rest].join(", "), others]]);
  }
  if (span.fields[i]) rows.push(["noted", span.fields[i]]);
  if (span.where[i]) {
    const place = placeOf(scene, span.where[i]);
    rows.push(["line", sourced(span.where[i]) ? link(place, () => show(span.where[i])) : place]);
  }
  return h("table", {}, h("caption", {}, titleOf(scene, i)), h("tbody", {}, rows.map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

/** The statistics of a range: by kind, and by rank. */
export function statisticsPanel(scene, clock, range, found, { go }) {
  const kinds = h("table", { class: "dlv-kinds" },
    h("caption", {}, "What lies in it, in whole spans"),
    head(["kind", "count", "total", "min", "mean", "max"]),
    h("tbody", {}, found.kinds.map((own) => h("tr", {}, h("th", { scope: "row" }, own.kind), amount(own.count),
      ["total", "min", "mean", "max"].map((name) => amount(seconds(own[name])))))));
  const parts = ["compute", "update", "communication", "other", "idle"].filter((name) => name === "idle" || found.ranks.some((own) => own[name] > 0));
  const here = ({ longest }) => (longest < 0 ? -1 : inRange(clock, range, longest));
  const most = found.ranks.reduce((best, own) => Math.max(best, here(own)), 0);
  const first = found.ranks.find((own) => here(own) === most);
  const ranks = h("table", { class: "dlv-ranks" },
    h("caption", {}, "Where each rank's time went"),
    head(["rank", ...parts, "waited on any lane"], "its longest wait"),
    h("tbody", {}, found.ranks.map((own) => h("tr", {}, h("th", { scope: "row" }, own.rank),
      [...parts, "waited"].map((name) => amount(seconds(own[name]))),
      h("td", {}, own.longest < 0 ? "none" : [
        own === first ? h("strong", {}, "longest: ") : null,
        link(waitWords(scene, clock, own.longest, here(own)), () => go(own.longest)),
      ])))));
  return [ranks, kinds];
}

/** A wait in words, of which `here` seconds are in the range. */
function waitWords(scene, clock, i, here) {
  const length = clock.end[i] - clock.start[i];
  const words = waited(scene, clock, i) || `waited ${seconds(length)}; the Trace does not say for whom`;
  return here < length - clock.quantum ? `${seconds(here)} of: ${words}` : words;
}

function head(names, last, words = 1) {
  return h("thead", {}, h("tr", {},
    names.map((name, i) => h("th", { scope: "col", class: i < words ? null : "dlv-amount" }, name)),
    [last].flat().map((name) => name && h("th", { scope: "col" }, name))));
}

/** The spans that lie in part between two moments, as a table, by start. */
export function spansTable(scene, clock, { from, to, matches, hidden, chosen, critical, go }) {
  const places = [];
  for (let i = 0; i < scene.count; i++) {
    if (clock.end[i] < from || clock.start[i] > to || hidden.has(scene.kindOf[i]) || (matches && !matches[i])) continue;
    places.push(i);
  }
  places.sort((a, b) => clock.start[a] - clock.start[b] || clock.end[b] - clock.end[a]);
  const unit = unitOf(clock.high - clock.low);
  const listed = places.slice(0, LISTED);
  const more = places.length > LISTED ? `; the first ${LISTED} are listed, zoom in for others` : "";
  return h("div", { class: "dlv-scroll", tabindex: "0", role: "region", "aria-label": "Table of the spans in view" },
    h("table", {},
      h("caption", {}, `${places.length.toLocaleString("en")} spans in view${more}`),
      head(["span", "where", "from", "took"], ["waited for", critical && "critical path"], 2),
      h("tbody", {}, listed.map((i) => h("tr", { "aria-selected": i === chosen ? "true" : null },
        h("th", { scope: "row" }, link(titleOf(scene, i), () => go(i))),
        h("td", {}, rowOf(scene, i)),
        amount(moment(clock.start[i], unit)),
        amount(seconds(clock.end[i] - clock.start[i])),
        h("td", {}, waited(scene, clock, i)),
        critical ? h("td", {}, clock.turn.has(i) ? "on it" : "") : null)))),
    scene.memory.length ? memoryTable(scene.memory) : null);
}

/** What each rank held: the strips over the rows, in numbers. */
function memoryTable(memory) {
  return h("table", {},
    h("caption", {}, "Memory held"),
    head(["rank", "most", "at the end"]),
    h("tbody", {}, memory.map((own) => h("tr", {}, h("th", { scope: "row" }, own.rank),
      amount(amountOf(own, own.held.reduce((most, one) => Math.max(most, one), 0))), amount(amountOf(own, own.held.at(-1)))))));
}
