// The duration of each step as a small chart; a click chooses the step.
import { h, s } from "../shared/dom.js";
import { seconds } from "../shared/numbers.js";

/** @import { Timeline } from "./context.js" */

const [HEIGHT, WIDTH, MOST_WIDE] = [22, 24, 240]; // pixels: of the chart; of a step and of all of them at most
const MOST = 500; // steps: with more, a bar would be narrower than a pixel

/** The duration of each step; null if there is at most one. @type {(own: Timeline) => HTMLElement | null} */
export function stepChart({ shown, scene, ranges }) {
  const steps = [...new Set(scene.span.step)].filter((step) => step >= 0).sort((a, b) => a - b).slice(0, MOST);
  if (steps.length < 2) return null;
  const size = { width: Math.min(WIDTH * steps.length, MOST_WIDE), height: HEIGHT };
  const chart = s("svg", { viewBox: `0 0 ${steps.length} 1`, preserveAspectRatio: "none", ...size, role: "img" });

  shown.paints(["clock"], () => {
    const lengths = steps.map((step) => {
      const { from, to } = ranges.windowOf(step);
      return to - from;
    });
    const most = Math.max(...lengths);
    const [slowest, fastest] = [lengths.indexOf(most), lengths.indexOf(Math.min(...lengths))];
    chart.replaceChildren(...steps.map((step, i) => s("g", { "data-step": step },
      s("title", {}, `step ${step}: ${seconds(lengths[i])}`),
      s("rect", { class: "dlv-steproom", x: i, y: 0, width: 1, height: 1 }),
      s("rect", { x: i + 0.08, y: 1 - lengths[i] / most, width: 0.84, height: lengths[i] / most }))));
    const words = `step ${steps[slowest]} took longest, ${seconds(most)}; `
      + `step ${steps[fastest]} ${seconds(lengths[fastest])}`;
    chart.setAttribute("aria-label", `Time of each of ${steps.length} steps: ${words}. Click to choose one.`);
  });
  shown.paints(["range", "clock"], () => {
    for (const one of chart.querySelectorAll("[data-step]")) {
      one.classList.toggle("dlv-own", Number(one.getAttribute("data-step")) === shown.now.range?.step);
    }
  });
  chart.addEventListener("click", (event) => {
    const step = /** @type {Element} */ (event.target).closest("[data-step]")?.getAttribute("data-step");
    if (step != null) ranges.chooseStep(Number(step));
  });
  return h("span", { class: "dlv-steptimes" }, chart);
}
