// A bar for each stage of ZeRO, its kinds of memory end to end, the measured one below, and a rank's memory.
import { below, grid, pointIn, sized } from "../shared/chart.js";
import { h, s } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";
import { fills } from "../shared/paint.js";
import { roundStep, scaleLinear } from "../shared/scale.js";
import { tooltip } from "../shared/tooltip.js";

/** @import { Explorer } from "../shared/explorer.js" */
/** @import { Scale } from "../shared/scale.js" */
/** @import { Data } from "./index.js" */

/** A part of a bar. @typedef {{ kind: number, stage: number, x: number, y: number, width: number, height: number,
 *   words: string[] }} Part */

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 92, 8, 22]; // pixels around the bars
const [ROW, BAR, RAN] = [36, 18, 9]; // pixels: a stage, its bar, the measured one below it

/** @type {(own: Explorer<Data>) => HTMLElement} */
export function bars({ shown, choose, can }) {
  const { now } = shown;
  const svg = s("svg", { class: "dlv-costs", role: "img" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const tip = tooltip(plot);
  plot.append(tip.element);
  /** @type {Part[]} */
  let parts = [];
  /** @type {(y: number) => number} */
  const stageAt = (y) => Math.min(now.data.rows.length - 1, Math.max(0, Math.floor((y - TOP) / ROW)));
  svg.addEventListener("pointermove", (event) => {
    const [px, py] = pointIn(svg, event);
    const part = parts.find(({ x, y, width, height }) => px >= x && px <= x + width && py >= y && py <= y + height);
    if (part) tip.show(event, part.words);
    else tip.hide();
  });
  svg.addEventListener("pointerleave", tip.hide);
  svg.addEventListener("click", (event) => {
    if (can("stage")) choose({ stage: now.data.rows[stageAt(pointIn(svg, event)[1])].stage });
  });
  shown.paints(["data", "width", "colors"], () => {
    if (!plot.clientWidth) return;
    const { data } = now;
    const width = Math.max(260, plot.clientWidth);
    const height = TOP + ROW * data.rows.length + BOTTOM;
    const x = scaleOf(data, width);
    parts = partsOf(data, x);
    sized(svg, width, height);
    svg.replaceChildren(...drawn(data, parts, x, height - BOTTOM));
    svg.setAttribute("aria-label", `Bytes of a rank by stage. ${data.answer}`);
  });
  const title = h("h4", {}, "A rank's bytes by stage; broken line: its memory");
  return h("div", { class: "dlv-chart" }, title, plot);
}

/** @type {(data: Data, width: number) => Scale} */
function scaleOf({ rows, run }, width) {
  return scaleLinear([0, Math.max(...rows.map(({ total }) => total), run?.peak ?? 0)], [LEFT, width - RIGHT]);
}

/** The parts of all bars, in pixels; those of a run are below the bar of its stage.
 * @type {(data: Data, x: (value: number) => number) => Part[]} */
export function partsOf({ rows, kinds, controls, run }, x) {
  /** @type {(amounts: number[], stage: number, y: number, height: number, name: string) => Part[]} */
  const bar = (amounts, stage, y, height, name) => {
    let low = 0;
    return amounts.flatMap((amount, kind) => {
      const from = x(low);
      low += amount;
      const words = [`${name}: ${kinds[kind]}`, bytes(Math.round(amount))];
      return amount ? [{ kind, stage, x: from, y, width: x(low) - from, height, words }] : [];
    });
  };
  return rows.flatMap(({ stage, parts }, i) => [
    ...bar(parts, stage, TOP + i * ROW + 4, BAR, `stage ${stage}`),
    ...(run?.held && stage === controls.stage
      ? bar(run.together, stage, TOP + i * ROW + 5 + BAR, RAN, "measured at the peak") : []),
  ]);
}

/** @type {(data: Data, parts: Part[], x: Scale, bottom: number) => SVGElement[]} */
function drawn({ rows, styles, controls, run }, parts, x, bottom) {
  const [left, right] = x.range;
  const style = fills(styles);
  const step = roundStep(x.domain[1] / Math.max(1, Math.floor((right - left) / 80)));
  const marks = Array.from({ length: 1 + Math.floor(x.domain[1] / step + 1e-9) }, (_, i) =>
    ({ value: i * step, at: x(i * step) }));
  const limit = x(controls.memory);
  return [
    style.defs, grid({ left, right, top: TOP, bottom }, marks, []),
    ...below({ bottom }, marks, (value) => bytes(Math.round(value))),
    ...parts.map(({ kind, stage, x: from, y, width, height }) => s("rect", {
      "data-stage": stage, x: from, y, width, height, fill: style.of(kind), stroke: styles[kind].edge,
    })),
    ...(limit <= right ? [s("path", { class: "dlv-equal", d: `M${limit} ${TOP}V${bottom}` })] : []),
    ...rows.flatMap(({ stage, total }, i) => {
      const y = TOP + i * ROW + 4 + BAR / 2;
      const chosen = stage === controls.stage;
      return [
        s("text", { x: left - 6, y, class: `dlv-left${chosen ? " dlv-chosenmap" : ""}` }, `stage ${stage}`),
        s("text", { x: x(total) + 4, y, class: "dlv-start dlv-edge" }, bytes(Math.round(total))),
        ...(chosen && run?.peak ? [s("text", {
          x: x(run.peak) + 4, y: y + (BAR + RAN) / 2 + 1, class: "dlv-start dlv-edge",
        }, `${bytes(run.peak)} measured`)] : []),
      ];
    }),
  ];
}
