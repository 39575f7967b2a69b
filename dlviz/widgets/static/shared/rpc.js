// What a front end asks of its kernel: changes one at a time, the newest of what came meanwhile next, a run behind all.

/** @import { Model } from "./theme.js" */

/**
 * @typedef {object} Queue
 * @property {(name: string, value: unknown) => void} change
 * @property {() => void} run runs once every earlier change was answered; dropped where one was refused
 * @property {() => void} stop ends the run, or asks for none
 * @property {() => boolean} running
 * @property {() => void} answered to be called at each answer
 * @property {() => Record<string, unknown>} pending the changes that have no answer yet
 * @property {() => boolean} settled whether nothing is asked or waits
 * @property {() => void} close listens no longer
 */

// What says that a kernel is gone: its status, and the widgets' own events.
const GONE = ["restarting", "autorestarting", "terminating", "dead"];
const EVENTS = ["comm_live_update", "comm:close"];

/**
 * @param {Model} model
 * @param {object} own
 * @param {() => number} own.answer the number of the kernel's last answer
 * @param {() => boolean} own.failed whether that was an error
 * @param {() => void} own.gone is called once no kernel answers any more: it was restarted or shut down, or it died
 * @returns {Queue}
 */
export function asking(model, { answer, failed, gone }) {
  /** @type {number | null} */
  let asked = null; // the answer before what the kernel has been asked for
  /** @type {Record<string, unknown>} */
  let sent = {};
  /** @type {Record<string, unknown>} */
  let waiting = {};
  let toRun = false;
  let started = false; // a run was asked for and has not been answered
  let alive = true;
  const kernel = model.widget_manager?.kernel;

  function send() {
    if (asked != null) return;
    const news = Object.entries(waiting).filter(([name, value]) => model.get(name) !== value);
    waiting = {};
    if (!news.length && !(toRun && !failed())) return;
    asked = answer();
    sent = Object.fromEntries(news);
    for (const [name, value] of news) model.set(name, value);
    if (!news.length) {
      toRun = false;
      started = true;
      model.set("runs", model.get("runs") + 1);
    }
    model.save_changes();
  }

  function dead() {
    alive = false;
    close();
    gone();
  }

  function changed(_, status) {
    if (GONE.includes(status)) dead();
  }

  function close() {
    for (const event of EVENTS) model.off(event, dead);
    kernel?.statusChanged.disconnect(changed);
    kernel?.disposed.disconnect(dead);
  }

  for (const event of EVENTS) model.on(event, dead);
  kernel?.statusChanged.connect(changed);
  kernel?.disposed.connect(dead);

  return {
    change(name, value) {
      waiting[name] = value;
      send();
    },
    run() {
      toRun = true;
      send();
    },
    stop() {
      toRun = false;
      model.set("stops", model.get("stops") + 1);
      model.save_changes();
    },
    running: () => alive && (toRun || started || model.get("doing") !== ""),
    answered() {
      if (answer() !== asked) [asked, sent, started] = [null, {}, false];
      send();
      if (toRun && asked == null && failed()) toRun = false;
    },
    pending: () => ({ ...sent, ...waiting }),
    settled: () => asked == null && !toRun,
    close,
  };
}
