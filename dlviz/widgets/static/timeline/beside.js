// Another Trace below on the same axis, and what changed between the two.
import { h } from "../shared/dom.js";
import { IDLE } from "../shared/gantt/geometry.js";
import { gantt } from "../shared/gantt/index.js";
import { stylesOf } from "../shared/gantt/paint.js";
import { digits, seconds } from "../shared/numbers.js";
import { idlePanel, spanPanel } from "./panels.js";
import { readScene } from "./state.js";
import { linesOf } from "./words.js";

/** @import { Timeline } from "./context.js" */

/** The other Trace's rows, if there is one; hover and click work as in the first.
 * @type {(own: Timeline, room: (around: HTMLElement, above: number, wanted: number) => number) => HTMLElement |
 *   null} */
export function beside(own, room) {
  const { shown, part, scene: first } = own;
  if (!first.beside) return null;
  const { now } = shown;
  const scene = readScene({ ...first.beside, look: first.look }, 2);
  const clock = () => scene.clocks.find(({ name }) => name === own.clock().name) ?? scene.clocks[0];
  const panel = h("div", { class: "dlv-panel", role: "region", "aria-label": "selected span of the other Trace" });
  const changed = h("div", { class: "dlv-panel", role: "region", "aria-label": "what changed" });
  own.answers.add("other", panel);
  own.answers.add("changes", changed);
  changed.append(...changesPanel(first.changes ?? []));
  own.answers.first("changes");
  const chosen = { hover: -1, span: -1, idle: -1 };
  const styles = () => stylesOf(scene.span.kinds.of, scene.shades, first.look.kinds, own.look.colors);
  const [ownKinds, kinds] = [first, scene].map((one) => one.span.kinds.of);
  const hidden = () => new Set([...now.hidden].map((kind) => (kind === IDLE ? IDLE : kinds.indexOf(ownKinds[kind]))));

  /** @type {(span: number, idle?: number) => void} */
  const choose = (span, idle = -1) => {
    Object.assign(chosen, { span, idle });
    const links = { go: choose, show: () => {}, sourced: () => false };
    const place = scene.clocks.indexOf(clock());
    const waits = idle >= 0 ? idlePanel(scene, clock(), idle, choose) : [];
    const facts = span >= 0 ? spanPanel(scene, place, span, links) : waits;
    panel.replaceChildren(...(facts.length ? [h("h4", {}, "In the other Trace"), ...facts] : []));
    if (facts.length) own.answers.first("other");
    shown.stale("look");
  };
  const picture = gantt({
    root: own.frame.root, part, room,
    describe: (target, time) => linesOf(scene, clock(), target, time),
    picture: () => ({
      rows: scene, times: clock(), view: { ...now, ...chosen, hidden: hidden(), message: -1, matches: null },
      look: { ...own.look, styles: styles() },
      chosen: { row: -1, message: -1, idle: chosen.idle }, under: true,
    }),
    pointed(target) {
      if ((target?.span ?? -1) === chosen.hover) return;
      chosen.hover = target?.span ?? -1;
      shown.stale("look");
    },
    clicked: (target) => choose(target?.span ?? -1, target?.idle),
  });
  shown.paints(["look"], picture.restyle);
  shown.paints(["from", "to", "clock", "hidden", "arrows", "critical", "look", "table", "source"], () => {
    if (now.look) picture.draw();
  });
  shown.paints(["from", "to"], picture.still);
  const [line, ...more] = scene.lines;
  const lines = more.map((words) => h("p", {}, words));
  return h("div", {}, h("h4", { class: "dlv-sidename" }, `beside: ${line}`), lines, picture.plot);
}

/** What takes longer or shorter, the largest change first.
 * @type {(changes: { what: string, before: number, after: number }[]) => HTMLTableElement[]} */
function changesPanel(changes) {
  /** @type {(own: { what: string, before: number, after: number }) => string} */
  const share = ({ before, after }) => {
    const percent = digits(Math.abs(100 * (after / before - 1)));
    return before ? `${after < before ? "−" : "+"}${percent} %` : "new";
  };
  /** @type {(text: string) => HTMLTableCellElement} */
  const cell = (text) => h("td", { class: "dlv-amount" }, text);
  return [h("table", {},
    h("caption", {}, "What changed, in seconds of a mean rank"),
    h("thead", {}, h("tr", {}, h("td", {}), ["here", "beside", "change"].map((name) =>
      h("th", { scope: "col", class: "dlv-amount" }, name)))),
    h("tbody", {}, changes.map((one) => h("tr", {}, h("th", { scope: "row" }, one.what),
      cell(seconds(one.before)), cell(seconds(one.after)), cell(share(one))))))];
}
