// What a front end asks of its kernel: changes one at a time, the newest of what came meanwhile next, a run behind them all.

/**
 * `answer()` is the number of the kernel's last answer, `failed()` whether that was an error.
 *
 * `waiting` are the changes that have not been sent. A run waits until every earlier change was
 * answered, and is dropped where one was refused.
 */
export function asking(model, { answer, failed }) {
  let asked = null; // the answer before what the kernel has been asked for
  let toRun = false;
  const queue = {
    waiting: {},
    change(name, value) {
      queue.waiting[name] = value;
      send();
    },
    run() {
      toRun = true;
      send();
    },
    /** To be called at each answer; false where a run that waited was dropped. */
    answered() {
      if (answer() !== asked) asked = null;
      send();
      const dropped = toRun && asked == null && failed();
      if (dropped) toRun = false;
      return !dropped;
    },
    /** Whether nothing is asked or waits. */
    settled: () => asked == null && !toRun,
  };

  function send() {
    if (asked != null) return;
    const news = Object.entries(queue.waiting).filter(([name, value]) => model.get(name) !== value);
    queue.waiting = {};
    if (!news.length && !(toRun && !failed())) return;
    asked = answer();
    for (const [name, value] of news) model.set(name, value);
    if (!news.length) {
      toRun = false;
      model.set("runs", model.get("runs") + 1);
    }
    model.save_changes();
  }
  return queue;
}
