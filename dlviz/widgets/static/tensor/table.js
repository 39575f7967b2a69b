// What a rank sends in each direction and form, and the measurement.
import { h } from "../shared/dom.js";
import { digits, exact, seconds } from "../shared/numbers.js";
import { table } from "../shared/table.js";
import { titleOf } from "./state.js";

/** @import { Row } from "../shared/table.js" */
/** @import { Data, Price, Tensor } from "./state.js" */

/** @type {(own: Tensor) => HTMLElement} */
export function bytesTable(own) {
  return table(own, ["data"], () => {
    const { data } = own.shown.now;
    const { prices, directions, run, controls } = data;
    const measured = run?.directions && [...run.directions.map(exact), exact(run.bytes), "", seconds(run.seconds)];
    const ran = measured ? [{ kind: "dlv-ran", name: "measured", cells: measured }] : [];
    return {
      heads: ["a rank sends, in bytes", ...directions, "in a step", "× the least", "a step takes"],
      rows: prices.flatMap((price) =>
        [predicted(own, data, price), ...(price.form === controls.form ? ran : [])]),
    };
  });
}

/** @type {(own: Tensor, data: Data, price: Price) => Row} */
function predicted({ choose }, data, { form, directions, elements, bytes, seconds: took }) {
  const least = Math.min(...data.prices.map((one) => one.bytes));
  const times = bytes === least ? "1 ◆" : digits(bytes / least);
  return {
    name: titleOf(data, form), press: () => choose({ form }), hue: data.hues[form], data: { "data-form": form },
    chosen: form === data.controls.form,
    cells: [...directions.map((many, i) => (elements[i] === "0" ? "0" : [elementsOf(elements[i]), ` ${exact(many)}`])),
      exact(bytes), least ? times : "", seconds(took)],
  };
}

/** A number of elements as a formula, as in the lecture's table; its summary drops the factor.
 * @type {(elements: string) => HTMLElement} */
function elementsOf(elements) {
  const summary = elements.replace(/^\d+·/, "");
  return h("span", { class: "dlv-elements", title: `elements; in the lecture's summary ${summary}` }, elements);
}
