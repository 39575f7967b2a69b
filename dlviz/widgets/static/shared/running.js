// The button that runs and stops, and the line with the progress and outcome of a run.
import { h, write } from "./dom.js";
import { button } from "./stage.js";

/** @import { Queue } from "./rpc.js" */
/** @import { Model } from "./theme.js" */

/** The outcome of a run: why it failed, or its figures in sentences and what made it late.
 * @type {(run: { error?: string, stopped?: string, late?: string }, figures: () => string[]) => string} */
export function outcome({ error, stopped, late }, figures) {
  if (error) return `The run failed: ${error}`;
  return stopped ?? [...figures(), late].filter(Boolean).join(" ");
}

/** The button and the line. Call `draw` whenever the result of `queue`, `ready` or `idleWords` may have changed.
 * `ready` says whether a run can start, `idleWords` what to show while nothing runs; `changed` is called when a run
 * starts, progresses or ends.
 * @type {(model: Model, queue: Pick<Queue, "running" | "run" | "stop">, own: { ready: () => boolean, idleWords: ()
 *   => string, changed: () => void }) => { start: HTMLButtonElement, line: HTMLElement, press: () => void, draw: ()
 *   => void, stop: () => void }} */
export function runBar(model, queue, { ready, idleWords, changed }) {
  const start = button("▶ Run it", "run it on real ranks", press);
  const words = h("span");
  const passed = h("span", { "aria-hidden": "true" }); // hidden from screen readers: it changes every second
  const bar = h("progress", { "aria-label": "how far the run is" });
  const line = h("p", { class: "dlv-result", role: "status" }, words, passed, bar);
  start.hidden = Boolean(model.page); // a saved page never runs
  let since = 0;
  let ticking = 0;

  function press() {
    if (queue.running()) queue.stop();
    else if (ready()) queue.run();
    changed();
  }

  function tick() {
    write(passed, ` ${Math.round((Date.now() - since) / 1000)} s`);
  }

  function draw() {
    const running = queue.running();
    const doing = JSON.parse(model.get("doing") || "{}");
    if (running && !ticking) {
      since = Date.now();
      ticking = setInterval(tick, 1000);
    } else if (!running) {
      clearInterval(ticking);
      ticking = 0;
      write(passed, "");
    }
    write(start, running ? "■ Stop" : "▶ Run it");
    start.title = running ? "stop the run" : "run it on real ranks";
    start.setAttribute("aria-label", start.title);
    start.disabled = !(running || ready());
    write(words, running ? doing.says ?? "Starting the run …" : idleWords());
    bar.hidden = !running || doing.share == null;
    if (!bar.hidden) bar.value = doing.share;
    line.hidden = !words.textContent;
  }

  model.on("change:doing", changed);
  return {
    start, line, press, draw,
    stop() {
      clearInterval(ticking);
      model.off("change:doing", changed);
    },
  };
}
