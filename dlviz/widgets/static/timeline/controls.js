// The toolbar, and the legend, in which kinds can be hidden.
import { turned } from "../shared/arrays.js";
import { h, write } from "../shared/dom.js";
import { ARROWS, IDLE } from "../shared/gantt/geometry.js";
import { crossedLine, sized, swatch } from "../shared/paint.js";
import { seconds } from "../shared/numbers.js";
import { button, opens, toggle } from "../shared/stage.js";
import { kindName } from "./words.js";

/** @import { Toggle } from "../shared/stage.js" */
/** @import { Timeline } from "./context.js" */
/** @import { Scene } from "./state.js" */

/** Puts the controls into the frame; `more` are the buttons of other parts, `steps` shows how long each step took.
 * @type {(own: Timeline, more: (HTMLElement | null)[], steps: HTMLElement | null) => void} */
export function controls(own, more, steps) {
  const { shown, scene, part, picture } = own;
  const { now } = shown;
  const leftOut = h("span", { class: "dlv-found" });
  const arrows = toggled(own, "arrows", "messages", "show all messages as arrows; the selection's show anyway (M)");
  const critical = toggled(own, "critical", "critical path", "show the critical path (P)");
  const { panels } = own.answers;
  const table = opens(toggled(own, "table", "table", "show a table of the spans in view (T)"), panels.table);
  const source = opens(toggled(own, "source", "source", "show the lines of source"), panels.source);
  let said = now.critical; // the first state is not read out
  shown.paints(["critical"], () => {
    if (now.critical === said) return;
    said = now.critical;
    own.frame.say(said ? own.clock().summary : "the critical path is not shown");
  });
  for (const name of /** @type {("table" | "source")[]} */ (["table", "source"])) {
    shown.paints([name], () => now[name] && own.answers.first(name));
  }
  const hasPath = scene.clocks.some((one) => one.critical.length);
  own.frame.controls(
    [
      button("−", "zoom out (S)", () => part.zoom(1 / 0.7)), button("+", "zoom in (W)", () => part.zoom(0.7)),
      button("fit", "fit all (0)", part.fitAll),
    ],
    steps ? [stepSelect(own), steps] : [],
    own.search.group,
    scene.messageCount ? [arrows, leftOut] : [],
    hasPath ? [critical] : [],
    scene.clocks.length > 1 ? [clocks(own)] : [],
    [table, ...(own.answers.sourced ? [source] : [])],
    [own.marks.button, ...more, button("SVG", "save what is in view as an SVG file", own.saveSvg)],
  );
  own.controls = {
    describe() {
      const list = picture.drawn();
      const left = now.arrows ? list?.messagesLeftOut ?? 0 : 0;
      write(leftOut, left ? `${left.toLocaleString("en")} in view: zoom in to see them (${ARROWS} at most)` : "");
      const count = `${scene.count} spans on ${scene.rows.length} rows, ${seconds(now.to - now.from)} in view`;
      picture.canvas.setAttribute("aria-label", `Timeline of ${count}. The table lists them.`);
    },
  };
}

/** A button that shows or hides a part.
 * @type {(timeline: Timeline, name: "arrows" | "critical" | "table" | "source", label: string, title: string) =>
 *   Toggle} */
function toggled({ shown }, name, label, title) {
  const own = toggle(label, title, shown.now[name], (on) => shown.show({ [name]: on }));
  shown.paints([name], () => own.setAttribute("aria-pressed", String(shown.now[name])));
  return own;
}

/** @type {(timeline: Timeline) => HTMLSelectElement} */
function stepSelect({ shown, scene, ranges }) {
  const steps = [...new Set(scene.span.step)].filter((step) => step >= 0).sort((a, b) => a - b);
  const own = h("select", {
    "aria-label": "step", onchange: () => ranges.chooseStep(own.value === "" ? null : Number(own.value)),
  }, h("option", { value: "" }, "all steps"), steps.map((step) => h("option", { value: step }, `step ${step}`)));
  shown.paints(["range"], () => void (own.value = String(shown.now.range?.step ?? "")));
  return own;
}

/** @type {(timeline: Timeline) => HTMLSpanElement} */
function clocks({ shown, scene, setClock }) {
  const buttons = scene.clocks.map((one, number) =>
    h("button", { type: "button", onclick: () => setClock(number) }, one.axis));
  shown.paints(["clock"], () => {
    buttons.forEach((one, i) => one.setAttribute("aria-pressed", String(i === shown.now.clock)));
  });
  return h("span", { role: "group", "aria-label": "clock" }, buttons);
}

/** The kinds that take time by the shown clock; each can be hidden. @type {(own: Timeline) => HTMLElement} */
export function legend(own) {
  const { shown, scene, clock } = own;
  const { of: names } = scene.span.kinds;
  /** @type {[string, number][]} */
  const kinds = names.map((kind, number) => [kindName(kind), number]);
  const idle = names.includes("idle") ? "idle time" : "idle";
  if (scene.clocks.some((one) => one.idle.count)) kinds.push([idle, IDLE]);
  const entries = kinds.map(([name, kind]) => {
    const swatches = h("span", { class: "dlv-swatches" });
    const element = h("button", {
      type: "button", title: `show or hide ${name}`, "data-kind": kind,
      onclick: () => shown.set({ hidden: turned(shown.now.hidden, kind) }),
    }, swatches, ` ${name.slice(0, 40)}`);
    return { kind, swatches, element };
  });
  /** @type {string[]} */
  const besides = scene.beside?.spans.kind.of ?? [];
  const others = besides.filter((kind) => !names.includes(kind))
    .map((kind) => h("span", { class: "dlv-gaps" }, swatch(scene.look.kinds[kind] ?? scene.look.kinds[""]),
      ` ${kindName(kind)} (beside)`));
  const [gaps, wait] = [0, 1].map(() => h("span", { class: "dlv-swatches" }));
  const lost = h("canvas", { "aria-hidden": "true" });
  const waiting = h("span", { class: "dlv-gaps" }, wait, " waiting");
  const element = h("div", { class: "dlv-legend", role: "group", "aria-label": "kinds shown" },
    entries.map((entry) => entry.element), others, waiting,
    scene.short.map((symbols) => h("span", { class: "dlv-gaps" }, symbols)),
    scene.total > scene.count ? h("span", { class: "dlv-gaps" }, gaps, " not drawn") : null,
    [scene, scene.beside].some((/** @type {Scene | undefined} */ one) => one?.clocks.some(({ lost: at }) => at.length))
      ? h("span", { class: "dlv-gaps" }, lost, " rank lost") : null);

  shown.paints(["hidden"], () => {
    for (const one of entries) one.element.setAttribute("aria-pressed", String(!shown.now.hidden.has(one.kind)));
  });
  shown.paints(["clock", "look"], () => {
    if (!shown.now.look) return;
    const { colors, styles: { shades, idle, gaps: style } } = shown.now.look;
    const { start, end } = clock();
    const lasting = new Set([IDLE]);
    for (let i = 0; i < scene.count; i++) if (end[i] > start[i]) lasting.add(scene.kindOf[i]);
    for (const one of entries) {
      one.element.hidden = !lasting.has(one.kind);
      one.swatches.replaceChildren(...(one.kind === IDLE ? [idle] : shades[one.kind]).map(swatch));
    }
    waiting.hidden = !clock().waited.size || names.some((name, kind) => name === "wait" && lasting.has(kind));
    wait.replaceChildren(swatch(shown.now.look.styles.waiting));
    gaps.replaceChildren(swatch(style));
    crossedLine(sized(lost, 14, 12), { x: 7, top: 0, bottom: 12 }, colors.wrong, colors.paper);
  });
  return element;
}
