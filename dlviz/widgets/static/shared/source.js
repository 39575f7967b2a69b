// The program's lines that made what is shown, with the one of the selection marked.
import { h } from "./dom.js";

/** A list of source lines; `files` is {file: {label, lines: [[number, text], ...]}}. */
export function sourcePanel(files, choose) {
  const lines = new Map();
  const panel = h("div", { class: "dlv-source" });
  for (const [file, { label, lines: own }] of Object.entries(files)) {
    const list = h("ol", { "aria-label": `source: ${label}` });
    let previous = null;
    for (const [number, text, used] of own) {
      if (previous != null && number > previous + 1) list.append(h("li", { class: "dlv-gap" }, "⋯"));
      previous = number;
      const where = `${file}:${number}`;
      const code = h("code", {}, text || " ");
      const item = h(
        "li",
        { value: String(number), "data-where": where },
        h("span", { class: "dlv-number" }, number),
        used
          ? h(
              "button",
              { type: "button", "aria-label": `line ${number}: ${text.trim()}`, onclick: () => choose({ where }) },
              code,
            )
          : code,
      );
      lines.set(where, item);
      list.append(item);
    }
    panel.append(h("h4", {}, label), list);
  }
  let marked = [];
  return {
    panel,
    empty: lines.size === 0,
    has: (where) => lines.has(where),
    /** Marks a line, or several, and shows the first, without moving the page. */
    mark(places) {
      for (const line of marked) line.removeAttribute("aria-current");
      marked = [...new Set([places].flat())].map((where) => lines.get(where)).filter(Boolean);
      for (const line of marked) line.setAttribute("aria-current", "true");
      if (!marked.length) return;
      const [top, height] = [marked[0].offsetTop, panel.clientHeight]; // the panel is positioned: see dlviz.css
      if (top < panel.scrollTop || top > panel.scrollTop + height - 24) panel.scrollTop = top - height / 2;
    },
  };
}
