// The program's lines behind the picture, with the selection's line marked.
import { h } from "./dom.js";

/** @typedef {[number: number, text: string, used: boolean]} SourceLine `used`: a span was recorded there */
/** @typedef {{ label: string, lines: SourceLine[] }} SourceFile */

/** The lines of a program's files. `choose` is called with "file:line" at a click; `mark` marks lines and shows the
 * first without scrolling the page.
 * @type {(files: Record<string, SourceFile>, choose: (line: { where: string }) => void) => { panel: HTMLElement,
 *   empty: boolean, has: (where: string) => boolean, mark: (places: string | string[]) => void }} */
export function sourcePanel(files, choose) {
  /** @type {Map<string, HTMLElement>} */
  const lines = new Map();
  const panel = h("div", { class: "dlv-source" });
  for (const [file, { label, lines: own }] of Object.entries(files)) {
    const list = h("ol", { "aria-label": `source: ${label}` });
    own.forEach(([number, text, used], i) => {
      if (i && number > own[i - 1][0] + 1) list.append(h("li", { class: "dlv-gap" }, "⋯"));
      const where = `${file}:${number}`;
      const name = `line ${number}: ${text.trim()}`;
      const code = h("code", {}, text || " ");
      const item = h("li", { value: String(number), "data-where": where },
        h("span", { class: "dlv-number" }, number),
        used ? h("button", { type: "button", "aria-label": name, onclick: () => choose({ where }) }, code) : code);
      lines.set(where, item);
      list.append(item);
    });
    panel.append(h("h4", {}, label), list);
  }
  /** @type {HTMLElement[]} */
  let marked = [];
  return {
    panel,
    empty: lines.size === 0,
    has: (where) => lines.has(where),
    mark(places) {
      for (const line of marked) line.removeAttribute("aria-current");
      marked = [...new Set([places].flat())].flatMap((where) => lines.get(where) ?? []);
      for (const line of marked) line.setAttribute("aria-current", "true");
      if (!marked.length) return;
      const [top, height] = [marked[0].offsetTop, panel.clientHeight]; // the panel is positioned: see dlviz.css
      if (top < panel.scrollTop || top > panel.scrollTop + height - 24) panel.scrollTop = top - height / 2;
    },
  };
}
