// A table of amounts, with a chosen row and measured rows.
import { h, refill, s } from "./dom.js";

/** @import { Child } from "./dom.js" */
/** @import { Explorer } from "./explorer.js" */

/** A row: `name` is a button if `press` is given, after a swatch or a sample of a line; `kind` is a class.
 * @typedef {{ name: Child, press?: () => void, label?: string, cells: Child[], chosen?: boolean, kind?: string,
 *   hue?: string, line?: { color: string, dash?: string | null }, data?: Record<string, string> }} Row */

/** The contents of a table; `words` are the indices of columns without amounts, `kind` is its class.
 * @typedef {{ heads: string[], rows: Row[], foot?: Row[], caption?: string, words?: number[], kind?: string }} Table */

/** A table, rewritten when one of `names` changes.
 * @type {(own: Explorer<any, any>, names: string[], describe: () => Table, kind?: string) => HTMLElement} */
export function table({ shown }, names, describe, kind = "dlv-scroll") {
  const box = h("div", { class: kind });
  shown.paints(names, () => refill(box, [tableOf(describe())]));
  return box;
}

/** @type {(table: Table) => HTMLElement} */
export function tableOf({ heads, rows, foot, caption, words = [0], kind = "dlv-prices dlv-amounts" }) {
  const head = (/** @type {string} */ text, /** @type {number} */ i) =>
    h("th", { scope: "col", class: !words.includes(i) && "dlv-amount" }, text);
  const row = (/** @type {Row} */ one) => rowOf(one, heads.length, words);
  return h("table", { class: kind }, caption ? h("caption", {}, caption) : null,
    h("thead", {}, h("tr", {}, heads.map(head))), h("tbody", {}, rows.map(row)),
    foot ? h("tfoot", {}, foot.map(row)) : null);
}

/** A row; its name spans the columns without cells. @type {(row: Row, columns: number, words: number[]) => Child} */
function rowOf({ name, press, label, cells, chosen, kind, hue, line, data = {} }, columns, words) {
  const first = columns - cells.length;
  const button = { type: "button", class: "dlv-link", onclick: press, "aria-label": label };
  const said = press ? h("button", button, name) : name;
  const sample = line && s("svg", { width: 34, height: 10, "aria-hidden": "true" },
    s("path", { class: "dlv-cost", d: "M1 5H33", stroke: line.color, "stroke-dasharray": line.dash }));
  return h("tr", { ...data, class: kind, "aria-selected": chosen == null ? null : String(chosen) },
    h("th", { scope: "row", colspan: first > 1 ? first : null },
      hue ? h("span", { class: "dlv-hue", style: `background: ${hue}` }) : null,
      sample ? h("span", { class: "dlv-run" }, sample, said) : said),
    cells.map((cell, i) => (cell instanceof HTMLTableCellElement ? cell
      : h("td", { class: !words.includes(i + first) && "dlv-amount" }, cell))));
}
