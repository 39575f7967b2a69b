// What a front end asks of its kernel: changes one at a time, the newest of what came meanwhile next, a run behind them all.

// What says that a kernel is gone: its status, and the widgets' own events.
const GONE = ["restarting", "autorestarting", "terminating", "dead"];
const EVENTS = ["comm_live_update", "comm:close"];

/**
 * `answer()` is the number of the kernel's last answer, `failed()` whether that was an error; `gone()`
 * is called once no kernel answers any more: it was restarted or shut down, or it died.
 *
 * A run waits until every earlier change was answered, and is dropped where one was refused.
 */
export function asking(model, { answer, failed, gone }) {
  let asked = null; // the answer before what the kernel has been asked for
  let sent = {};
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
    /** Ends the run, or asks for none. */
    stop() {
      toRun = false;
      model.set("stops", model.get("stops") + 1);
      model.save_changes();
    },
    running: () => alive && (toRun || started || model.get("doing") !== ""),
    /** To be called at each answer. A run that waited for one that is an error is dropped. */
    answered() {
      if (answer() !== asked) [asked, sent, started] = [null, {}, false];
      send();
      if (toRun && asked == null && failed()) toRun = false;
    },
    /** The changes that have no answer yet. */
    pending: () => ({ ...sent, ...waiting }),
    /** Whether nothing is asked or waits. */
    settled: () => asked == null && !toRun,
    /** Listens no longer. */
    close,
  };
}
