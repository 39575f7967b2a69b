// The answers of a timeline: the selected span, the statistics of a range, and the table.
import { h } from "../shared/dom.js";
import { bytes, seconds } from "../shared/numbers.js";
import { inRange } from "./statistics.js";
import {
  amountOf, headLine, idleLines, kindName, lateness, messageLines, momentOf, numbersOf, placeOf, rowOf, titleOf, tookOf,
  waited, whyOf,
} from "./words.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Now, Range } from "./context.js" */
/** @import { Clock, Scene, Wait } from "./state.js" */
/** @import { OfRank, Statistics } from "./statistics.js" */
/** @import { Memory } from "../shared/gantt/rows.js" */

const LISTED = 300; // spans in the table
/** @type {(keyof OfRank)[]} */
const PARTS = ["compute", "update", "communication", "other", "hidden", "idle"];
/** @type {Record<string, string>} */
const NAMES = { hidden: "not drawn", waited: "waited on any lane" };

/** @type {(words: string, pressed: () => void) => HTMLButtonElement} */
function link(words, pressed) {
  return h("button", { type: "button", class: "dlv-link", onclick: pressed }, words);
}

/** @type {(value: string) => HTMLTableCellElement} */
function amount(value) {
  return h("td", { class: "dlv-amount" }, value);
}

/** All that is known of span i. `go(span)` selects another, `show(where)` a line of source; `shown` is the number of
 * the clock.
 * @type {(scene: Scene, shown: number, i: number, own: { go: (span: number) => void, show: (where: string) => void,
 *   sourced: (where: string) => boolean }) => HTMLElement[]} */
export function spanPanel(scene, shown, i, { go, show, sourced }) {
  const clock = scene.clocks[shown];
  const { span } = scene;
  const moment = momentOf(clock, clock.end[i] - clock.start[i]);
  const times = scene.open.has(i)
    ? `never ended, from ${moment(clock.start[i])}`
    : `${tookOf(scene, clock, i)}, ${moment(clock.start[i])} to ${moment(clock.end[i])}`;
  /** @type {[string, Child][]} */
  const facts = [["where", rowOf(scene, i)], ["took", times]];
  if (scene.headOf.has(i)) facts.push(["shared", headLine(scene, clock, scene.headOf.get(i) ?? -1)]);
  const late = "wall clock minus device clock, at its end";
  if (scene.clocks.length > 1) facts.push(["late by", `${lateness(scene, i)} (${late})`]);
  if (numbersOf(scene, i)) facts.push(["part of", numbersOf(scene, i)]);
  const turn = clock.turn.get(i);
  if (turn != null) facts.push(["critical path", `on it, ${turn + 1} of ${clock.critical.length}`]);
  if (span.nbytes[i] >= 0) facts.push(["size", bytes(span.nbytes[i])]);
  if (span.fields[i]) facts.push(["recorded", span.fields[i]]);
  if (span.where[i]) {
    const place = placeOf(scene, span.where[i]);
    facts.push(["line", sourced(span.where[i]) ? link(place, () => show(span.where[i])) : place]);
  }
  if (span.flow[i] >= 0) facts.push(["carries", carried(scene, clock, i, go)]);
  const why = whyOf(scene, clock, i);
  if (why.links.length) facts.push([scene.open.has(i) ? "waits" : "waited", chainOf(why, go)]);
  return [
    h("h4", {}, titleOf(scene, i)),
    h("dl", { class: "dlv-facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
  ];
}

/** Idle time in lines, and a link to what its rank waited for.
 * @type {(scene: Scene, clock: Clock, i: number, go: (span: number) => void) => HTMLElement[]} */
export function idlePanel(scene, clock, i, go) {
  const cause = clock.idle.at[i];
  const lines = idleLines(scene, clock, i).map((line) => h("p", {}, line));
  return cause < 0 ? lines : [...lines, link(`show it: ${titleOf(scene, cause)}`, () => go(cause))];
}

/** A chain of waits as a list; each links to what it waited for.
 * @type {(own: { links: Wait[], left: number, more: string }, go: (span: number) => void) => HTMLOListElement} */
function chainOf({ links, left, more }, go) {
  const items = links.map(({ whom, doing, at }) =>
    h("li", {}, `for ${whom}; ${doing}`, at >= 0 ? [" (", link("show it", () => go(at)), ")"] : ""));
  if (left) items.splice(-1, 0, h("li", {}, `… ${left} more …`));
  return h("ol", {}, items, more ? h("li", {}, `… ${more}`) : null);
}

/** The message of span i in words, and a link to its other end.
 * @type {(scene: Scene, clock: Clock, i: number, go: (span: number) => void) => Child} */
function carried({ message, span, ...rest }, clock, i, go) {
  const flow = span.flow[i];
  const [head, ...lines] = messageLines({ message, span, ...rest }, clock, flow);
  /** @type {[string, number][]} */
  const ends = [["sender", message.sender[flow]], ["receiver", message.receiver[flow]]];
  const others = ends.filter(([, at]) => at >= 0 && at !== i)
    .map(([name, at]) => [" ", link(`go to the ${name}`, () => go(at))]);
  return [[head, ...lines].join(", "), others];
}

/** The statistics of a range: by rank, and by kind. `order` {by, down} sorts the ranks, null: by number; `sort(by)`
 * requests another order.
 * @type {(scene: Scene, clock: Clock, range: Range, found: Statistics, own: { go: (span: number) => void, sort: (by:
 *   string) => void, order: Now["order"] }) => HTMLElement[]} */
export function statisticsPanel(scene, clock, range, found, { go, sort, order }) {
  /** @type {(ofRank: OfRank) => number} */
  const here = ({ longest }) => (longest < 0 ? -1 : inRange(clock, range, longest));
  const most = found.ranks.reduce((best, own) => Math.max(best, here(own)), 0);
  const longest = found.ranks.find((own) => here(own) === most);
  const line = longest && h("p", { class: "dlv-longest" }, `Rank ${longest.rank} waited longest: `,
    link(waitWords(scene, clock, longest.longest, most), () => go(longest.longest)));
  const shown = { go, sort, order, here, longest };
  return [...(line ? [line] : []), ranksTable(scene, clock, found, shown), kindsTable(found)];
}

/** @type {(statistics: Statistics) => HTMLTableElement} */
function kindsTable({ kinds, drawn }) {
  return h("table", { class: "dlv-kinds" },
    h("caption", {}, `Kinds ${drawn ? "of the spans that are drawn" : "in this range"}, in whole spans`),
    head(["kind", "count", "total", "min", "mean", "max"]),
    h("tbody", {}, kinds.map((own) => h("tr", {},
      h("th", { scope: "row" }, kindName(own.kind)), amount(own.count.toLocaleString("en")),
      [own.total, own.min, own.mean, own.max].map((one) => amount(seconds(one)))))));
}

/** @type {(scene: Scene, clock: Clock, found: Statistics, shown: { go: (span: number) => void, sort: (by: string) =>
 *   void, order: Now["order"], here: (own: OfRank) => number, longest?: OfRank }) => HTMLElement} */
function ranksTable(scene, clock, { ranks }, { go, sort, order, here, longest }) {
  /** @type {(own: OfRank, name: keyof OfRank) => number} */
  const at = (own, name) => own[name] ?? NaN;
  /** @type {(keyof OfRank)[]} */
  const columns = [...PARTS.filter((name) => name === "idle" || ranks.some((own) => at(own, name) > 0)), "waited"];
  const slowest = slowestOf(ranks);
  /** @type {(own: OfRank) => number} */
  const key = (own) => at(own, /** @type {keyof OfRank} */ (order?.by));
  const sorted = order ? [...ranks].sort((a, b) => (key(a) - key(b)) * (order.down ? -1 : 1)) : ranks;
  /** @type {(name: string, words: string) => HTMLTableCellElement} */
  const sortable = (name, words) => h("th", {
    scope: "col", class: name === "rank" ? null : "dlv-amount",
    "aria-sort": order?.by === name ? (order.down ? "descending" : "ascending") : null,
  }, Object.assign(link(order?.by === name ? `${words} ${order.down ? "▾" : "▴"}` : words, () => sort(name)),
    { ariaLabel: words }));
  return h("table", { class: "dlv-ranks" },
    h("caption", { class: "dlv-spoken" }, "Where each rank's time went"),
    h("thead", {}, h("tr", {},
      sortable("rank", "rank"), columns.map((name) => sortable(name, NAMES[name] ?? name)),
      h("th", { scope: "col" }, "its longest wait"))),
    h("tbody", {}, sorted.map((own) => h("tr", {},
      h("th", { scope: "row" }, own.rank, own === slowest ? h("strong", {}, " slowest") : null),
      columns.map((name) => amount(seconds(at(own, name)))),
      h("td", {}, own.longest < 0 ? "none" : h(own === longest ? "strong" : "span", {},
        link(waitWords(scene, clock, own.longest, here(own)).split(";")[0], () => go(own.longest))))))),
    ranks.length > 1 ? h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "all"),
      columns.map((name) => amount(seconds(ranks.reduce((sum, own) => sum + at(own, name), 0)))), h("td", {}))) : null);
}

/** The rank that worked clearly longer than the others; or undefined.
 * @type {(ranks: OfRank[]) => OfRank | undefined} */
function slowestOf(ranks) {
  /** @type {(own: OfRank) => number} */
  const worked = ({ compute, update }) => compute + update;
  const [first, second] = [...ranks].sort((a, b) => worked(b) - worked(a));
  return second && worked(first) > 1.02 * worked(second) ? first : undefined;
}

/** A wait in words; `here` seconds of it are in the range.
 * @type {(scene: Scene, clock: Clock, i: number, here: number) => string} */
function waitWords(scene, clock, i, here) {
  const length = clock.end[i] - clock.start[i];
  const words = waited(scene, clock, i).replace(/^waited /, "");
  const whole = words || `${seconds(length)}; the Trace does not say for whom`;
  return here < length - clock.quantum ? `${seconds(here)} of ${whole}` : whole;
}

/** @type {(names: string[], last?: string[], words?: number) => HTMLTableSectionElement} */
function head(names, last = [], words = 1) {
  return h("thead", {}, h("tr", {},
    names.map((name, i) => h("th", { scope: "col", class: i < words ? null : "dlv-amount" }, name)),
    last.map((name) => h("th", { scope: "col" }, name))));
}

/** The spans that overlap an interval, as a table, by start.
 * @type {(scene: Scene, clock: Clock, shown: { from: number, to: number, matches: Uint8Array | null, hidden:
 *   Set<number>, chosen: number, critical: boolean, go: (span: number) => void }) => HTMLElement} */
export function spansTable(scene, clock, { from, to, matches, hidden, chosen, critical, go }) {
  const places = [];
  for (let i = 0; i < scene.count; i++) {
    if (clock.end[i] < from || clock.start[i] > to || hidden.has(scene.kindOf[i]) || (matches && !matches[i])) continue;
    places.push(i);
  }
  places.sort((a, b) => clock.start[a] - clock.start[b] || clock.end[b] - clock.end[a]);
  const listed = places.slice(0, LISTED);
  const lengths = listed.map((i) => clock.end[i] - clock.start[i]).filter((length) => length > 0);
  const moment = momentOf(clock, Math.min(...lengths));
  const more = places.length > LISTED ? `; the first ${LISTED} are listed, zoom in for others` : "";
  const [drawn, all] = [scene.count, scene.total].map((count) => count.toLocaleString("en"));
  const cut = scene.total > scene.count ? ` of the ${drawn} that are drawn (${all} in all)` : "";
  return h("div", { class: "dlv-scroll", tabindex: "0", role: "region", "aria-label": "Table of the spans in view" },
    h("table", {},
      h("caption", {}, `${places.length.toLocaleString("en")} spans in view${cut}${more}`),
      head(["span", "where", "from", "took"], ["waited for", ...(critical ? ["critical path"] : [])], 2),
      h("tbody", {}, listed.map((i) => h("tr", { "aria-selected": i === chosen ? "true" : null },
        h("th", { scope: "row" }, link(titleOf(scene, i), () => go(i))),
        h("td", {}, rowOf(scene, i)),
        amount(moment(clock.start[i])),
        amount(tookOf(scene, clock, i)),
        h("td", {}, waited(scene, clock, i)),
        critical ? h("td", {}, clock.turn.has(i) ? "on it" : "") : null)))),
    scene.memory.length ? memoryTable(scene.memory) : null);
}

/** The memory of each rank in numbers: the strips over the rows. @type {(memory: Memory[]) => HTMLTableElement} */
function memoryTable(memory) {
  return h("table", {},
    h("caption", {}, "Memory held"),
    head(["rank", "most", "at the end"]),
    h("tbody", {}, memory.map((own) => h("tr", {},
      h("th", { scope: "row" }, own.rank),
      amount(amountOf(own, own.held.reduce((most, one) => Math.max(most, one), 0))),
      amount(amountOf(own, own.held[own.held.length - 1]))))));
}
