// Requests of a front end to its kernel: numbered messages; an answer has the number of its request.

/** @import { Model } from "./theme.js" */

/** @typedef {{ id: string, error?: string } & Record<string, any>} Answer `error` says why it was refused */

/** @typedef {(answer: Answer) => void} Heard */

/** `latest`: sends it once the previous one of its kind is answered; of several waiting the newest is sent, and answers
 * to older ones are dropped; `close`: stops listening to answers.
 * @typedef {{ send: (kind: string, fields?: object, heard?: Heard) => void, latest: (kind: string, fields: object,
 *   heard: Heard) => void, close: () => void }} Requests */

/**
 * @typedef {object} Queue
 * @property {(values: Record<string, unknown>) => void} change controls: one request at a time, then the newest values
 *   set meanwhile
 * @property {() => void} run runs once every earlier change is answered; dropped if the last was refused
 * @property {() => void} stop ends the run, or drops the request for one
 * @property {() => boolean} running
 * @property {Requests["latest"]} latest
 * @property {() => Record<string, unknown>} pending the unanswered changes
 * @property {() => boolean} settled whether no request is open or waiting
 * @property {() => void} close stops listening
 */

// How a dead kernel is noticed: its status, and the widgets' events.
const GONE = ["restarting", "autorestarting", "terminating", "dead"];
const EVENTS = ["comm_live_update", "comm:close"];

/** The requests of one view. Each view of a model has its own, and all receive every answer.
 * @type {(model: Model) => Requests} */
export function requests(model) {
  const view = Math.random().toString(36).slice(2);
  /** @type {Map<string, Heard>} */
  const unanswered = new Map();
  /** @type {Map<string, [fields: object, heard: Heard] | null>} */
  const next = new Map(); // the waiting request of each kind that allows one at a time
  let count = 0;

  /** @type {Heard} */
  function hear(answer) {
    const heard = unanswered.get(answer.id);
    unanswered.delete(answer.id);
    heard?.(answer);
  }

  /** @type {Requests["send"]} */
  function send(kind, fields = {}, heard = () => {}) {
    count += 1;
    unanswered.set(`${view}-${count}`, heard);
    model.send({ id: `${view}-${count}`, kind, ...fields });
  }

  /** @type {Requests["latest"]} */
  function latest(kind, fields, heard) {
    if (next.has(kind)) return void next.set(kind, [fields, heard]);
    next.set(kind, null);
    send(kind, fields, (answer) => {
      const newer = next.get(kind);
      next.delete(kind);
      if (newer) latest(kind, ...newer);
      else heard(answer);
    });
  }

  model.on("msg:custom", hear);
  return { send, latest, close: () => model.off("msg:custom", hear) };
}

/** The requests of a view's controls. `sent` is called after a change is sent, `answered` when a change or a run is
 * answered and its effects are in the model, `gone` once the kernel is restarted, shut down or dead.
 * @type {(model: Model, own: { sent: (values: Record<string, unknown>) => void, answered: () => void, gone: () =>
 *   void }) => Queue} */
export function asking(model, { sent, answered, gone }) {
  const { send, latest, close: hangUp } = requests(model);
  /** @type {Record<string, unknown> | null} */
  let asked = null;
  /** @type {Record<string, unknown> | null} */
  let waiting = null;
  let refused = false; // the last change
  let toRun = false;
  let starting = false; // a run was requested and is not answered yet
  let alive = true;

  function next() {
    if (asked || starting) return;
    if (waiting) {
      [asked, waiting] = [waiting, null];
      send("change", { values: asked }, changed);
      sent(asked);
    } else if (toRun) {
      toRun = false;
      starting = !refused;
      if (starting) send("run", {}, started);
    }
  }

  /** @type {Heard} */
  function changed({ error }) {
    refused = error != null;
    asked = null;
    next();
    answered();
  }

  function started() {
    starting = false;
    next();
    answered();
  }

  const unwatch = watched(model, () => {
    alive = false;
    hangUp();
    gone();
  });

  return {
    change(values) {
      waiting = { ...waiting, ...values };
      next();
    },
    run() {
      toRun = true;
      next();
    },
    stop() {
      toRun = false;
      send("stop");
    },
    running: () => alive && (toRun || starting || model.get("doing") !== ""),
    latest,
    pending: () => ({ ...asked, ...waiting }),
    settled: () => !asked && !starting && !toRun,
    close() {
      unwatch();
      hangUp();
    },
  };
}

/** Calls `gone` once, when the kernel is gone; the returned function ends that.
 * @type {(model: Model, gone: () => void) => () => void} */
function watched(model, gone) {
  const kernel = model.widget_manager?.kernel;

  function dead() {
    stop();
    gone();
  }

  /** @type {(from: unknown, status: string) => void} */
  function changed(_, status) {
    if (GONE.includes(status)) dead();
  }

  function stop() {
    for (const event of EVENTS) model.off(event, dead);
    kernel?.statusChanged.disconnect(changed);
    kernel?.disposed.disconnect(dead);
  }

  for (const event of EVENTS) model.on(event, dead);
  kernel?.statusChanged.connect(changed);
  kernel?.disposed.connect(dead);
  return stop;
}
