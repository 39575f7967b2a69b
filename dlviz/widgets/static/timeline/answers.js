// The panels of answers: selection, statistics of the range, lines of source, table; the last one requested is first.
import { h, refill } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";
import { sourcePanel } from "../shared/source.js";
import { idlePanel, spanPanel, spansTable, statisticsPanel } from "./panels.js";
import { statistics } from "./statistics.js";

/** @import { Timeline } from "./context.js" */

const SELECT = "Click a bar, or press . to walk from span to span: its details appear here.";
const RANGE = "Drag over the picture, press R or choose a step: "
  + "the time of each rank and its longest wait appear here.";

/** The panels in one box; `add` adds one, `first` moves one to the top, `mark` marks a line of source.
 * @type {(own: Timeline) => Timeline["answers"]} */
export function answers(own) {
  const { shown, scene, clock } = own;
  const { now } = shown;
  /** @type {(name: string, more?: string) => HTMLDivElement} */
  const region = (name, more = "") => h("div", { class: `dlv-panel ${more}`, role: "region", "aria-label": name });
  const source = sourcePanel(scene.sources, (value) => own.selection.choose(value));
  /** @type {Record<string, HTMLElement>} */
  const panels = {
    details: region("selected span"), statistics: region("statistics of the range", "dlv-most"),
    source: region("source"), table: h("div", { class: "dlv-panel dlv-wide" }),
  };
  panels.source.append(source.panel);
  const element = h("div", {
    class: "dlv-panels dlv-answers", role: "group", "aria-label": "answers", tabindex: "0",
  }, Object.values(panels));
  /** @type {(span: number) => void} */
  const go = (span) => own.moves.go(span);

  /** @type {(name: string) => void} */
  function first(name) {
    for (const [other, panel] of Object.entries(panels)) panel.style.order = other === name ? "-1" : "0";
    element.scrollTop = 0;
  }

  /** @type {(panel: HTMLElement, ...children: HTMLElement[]) => void} */
  const fill = (panel, ...children) => refill(panel, children, own.frame.root);

  shown.paints(["span", "idle", "clock", "reply"], () => {
    const reply = now.reply ? [h("p", { class: "dlv-reply" }, now.reply)] : [];
    if (now.idle >= 0) return fill(panels.details, ...reply, ...idlePanel(now.scene, clock(), now.idle, go));
    if (now.span < 0) return fill(panels.details, ...reply, h("p", {}, scene.count ? SELECT : "Nothing was recorded."));
    /** @type {(where: string) => void} */
    const show = (where) => {
      shown.set({ source: true });
      source.mark(where);
    };
    fill(panels.details, ...reply, ...spanPanel(now.scene, now.clock, now.span, { go, show, sourced: source.has }));
  });
  shown.paints(["range", "order", "clock"], () => {
    fill(panels.statistics, ...rangePanel(own, go));
  });
  shown.paints(["source", "table"], () => {
    panels.source.hidden = !now.source;
    panels.table.hidden = !now.table;
    if (now.source && now.span >= 0) source.mark(scene.span.where[now.span]);
  });
  shown.paints(["table", "from", "to", "clock", "critical", "matches", "span", "hidden", "scene"], () => {
    if (now.table) fill(panels.table, spansTable(now.scene, clock(), { ...now, chosen: now.span, go }));
  });
  return {
    element, panels, first, mark: source.mark, sourced: !source.empty,
    add(name, panel) {
      panels[name] = panel;
      element.append(panel);
    },
  };
}

/** The statistics of the range, in the reader's order.
 * @type {(timeline: Timeline, go: (span: number) => void) => HTMLElement[]} */
function rangePanel({ shown, scene, clock }, go) {
  const { range, order } = shown.now;
  if (!range) return [h("p", {}, RANGE)];
  const { from, to, step } = range;
  const found = statistics(scene, clock(), range);
  /** Sorts the ranks by a column, descending; again: ascending. @type {(by: string) => void} */
  const sort = (by) => shown.set({ order: { by, down: order?.by === by ? !order.down : by !== "rank" } });
  return [
    h("h4", {}, `${step == null ? "Range" : `Step ${step}`}: ${seconds(to - from)}`),
    ...statisticsPanel(scene, clock(), range, found, { go, order, sort }),
  ];
}
