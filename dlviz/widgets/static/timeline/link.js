// A view as a link: a saved page stores it in its address.
import { copied } from "../shared/file.js";
import { button } from "../shared/stage.js";

/** @import { Range, Timeline } from "./context.js" */

const START = "#view=";

/** On a saved page, a button that puts the view into the page's address; the page opens with the view of its
 * address. @type {(own: Timeline) => { button: HTMLElement | null, stop: () => void }} */
export function viewLink(own) {
  if (!own.model.page) return { button: null, stop() {} };
  const link = async () => {
    location.hash = START + encodeURIComponent(JSON.stringify(viewOf(own)));
    const done = await copied(location.href);
    own.frame.say(done ? "the link to this view is copied" : "the link to this view is in the page's address");
  };
  const read = () => location.hash.startsWith(START) && show(own, location.hash.slice(START.length));
  addEventListener("hashchange", read);
  queueMicrotask(read); // once the rest is built
  return {
    button: button("link", "copy a link to this view", link),
    stop: () => removeEventListener("hashchange", read),
  };
}

/** The view that a link stores; `span` is a row of the Trace.
 * @type {(timeline: Timeline) => { clock: string, from: number, to: number, critical: boolean, arrows: boolean,
 *   hidden: number[], span: number | null, range: Range | null, rows: { order: number[], hidden: number[], pinned:
 *   number[] }, marks: any }} */
function viewOf({ shown: { now }, scene, clock, model }) {
  return {
    clock: clock().name, from: now.from, to: now.to, critical: now.critical, arrows: now.arrows,
    hidden: [...now.hidden], span: now.span >= 0 ? scene.span.row[now.span] : null, range: now.range,
    rows: { order: now.rows.order, hidden: [...now.rows.hidden], pinned: [...now.rows.pinned] },
    marks: model.get("marks") ?? [],
  };
}

/** Shows the view of a link; any other address changes nothing. @type {(own: Timeline, text: string) => void} */
function show(own, text) {
  const { shown, scene, part, model } = own;
  try {
    const view = JSON.parse(decodeURIComponent(text));
    const { clock, from, to, critical, arrows, hidden, span, range, rows, marks } = view;
    own.setClock(Math.max(scene.clocks.findIndex(({ name }) => name === clock), 0));
    own.arrange({ order: rows.order, hidden: new Set(rows.hidden), pinned: new Set(rows.pinned) });
    model.set("marks", marks);
    own.selection.choose(span == null ? {} : { span });
    shown.set({ critical, arrows, range, hidden: new Set(hidden) });
    part.show(from, to);
  } catch {
    own.frame.say("The link to this view cannot be read.");
  }
}
