// What a rank sends each way by each form, and what was measured.
import { h } from "../shared/dom.js";
import { digits, seconds } from "../shared/numbers.js";
import { titleOf } from "./state.js";
import { exact } from "./words.js";

/** @import { Price, Tensor, Data } from "./state.js" */

/**
 * @param {Tensor} own
 * @returns {HTMLElement}
 */
export function bytesTable({ shown, choose }) {
  const box = h("div", { class: "dlv-scroll" });
  shown.paints(["data"], () => box.replaceChildren(tableOf(shown.now.data, (form) => choose({ form }))));
  return box;
}

/** @type {(data: Data, choose: (form: string) => void) => HTMLElement} */
function tableOf(data, choose) {
  const { prices, ways, run, controls } = data;
  const heads = ["a rank sends, in bytes", ...ways, "in a step", "× the least", "a step takes"];
  return h("table", { class: "dlv-prices dlv-ways" },
    h("thead", {}, h("tr", {}, heads.map((text, i) => h("th", { scope: "col", class: i && "dlv-amount" }, text)))),
    h("tbody", {}, prices.flatMap((price) => {
      const own = price.form === controls.form;
      return [predicted(data, price, choose), ...(own && run?.ways ? [measured(run)] : [])];
    })));
}

function predicted(data, /** @type {Price} */ price, choose) {
  const least = Math.min(...data.prices.map(({ bytes }) => bytes));
  const times = price.bytes === least ? "1 ◆" : digits(price.bytes / least);
  return h("tr", { "aria-selected": String(price.form === data.controls.form), "data-form": price.form },
    h("th", { scope: "row" }, h("span", { class: "dlv-hue", style: `background: ${data.hues[price.form]}` }),
      h("button", { type: "button", class: "dlv-link", onclick: () => choose(price.form) }, titleOf(data, price.form))),
    price.ways.map((many, i) => h("td", { class: "dlv-amount" },
      price.letters[i] === "0" ? "0" : [lettersOf(price.letters[i]), ` ${exact(many)}`])),
    [exact(price.bytes), least ? times : "", seconds(price.seconds)].map((text) =>
      h("td", { class: "dlv-amount" }, text)));
}

/** Elements in letters, as the lecture's table counts them; its summary drops the factor. */
function lettersOf(letters) {
  const summary = letters.replace(/^\d+·/, "");
  return h("span", { class: "dlv-letters", title: `elements; in the lecture's summary ${summary}` }, letters);
}

function measured(run) {
  return h("tr", { class: "dlv-ran" }, h("th", { scope: "row" }, "measured"),
    [...run.ways.map(exact), exact(run.bytes), "", seconds(run.seconds)].map((text) =>
      h("td", { class: "dlv-amount" }, text)));
}
