// What a front end asks of its kernel: messages with a number, which the answer bears.

/** @import { Model } from "./theme.js" */

/** @typedef {{ id: string, error?: string } & Record<string, any>} Answer `error` says why it was not done */

/** @typedef {(answer: Answer) => void} Heard */

/**
 * @typedef {object} Requests
 * @property {(kind: string, fields?: object, heard?: Heard) => void} send
 * @property {(kind: string, fields: object, heard: Heard) => void} latest sends it once the kernel has answered the one
 *   of its kind before; of those that wait the newest is sent, and an answer to an older one is dropped
 * @property {() => void} close hears no answer any longer
 */

/**
 * @typedef {object} Queue
 * @property {(values: Record<string, unknown>) => void} change of controls: one request at a time, then the newest
 *   values of what came meanwhile
 * @property {() => void} run runs once every earlier change was answered; dropped where the last was refused
 * @property {() => void} stop ends the run, or asks for none
 * @property {() => boolean} running
 * @property {Requests["latest"]} latest
 * @property {() => Record<string, unknown>} pending the changes that have no answer yet
 * @property {() => boolean} settled whether nothing is asked or waits
 * @property {() => void} close listens no longer
 */

// What says that a kernel is gone: its status, and the widgets' own events.
const GONE = ["restarting", "autorestarting", "terminating", "dead"];
const EVENTS = ["comm_live_update", "comm:close"];

/** The requests of one view. Other views of the same model have their own, and all hear every answer.
 * @type {(model: Model) => Requests} */
export function requests(model) {
  const view = Math.random().toString(36).slice(2);
  /** @type {Map<string, Heard>} */
  const unanswered = new Map();
  /** @type {Map<string, [fields: object, heard: Heard] | null>} */
  const next = new Map(); // of each kind that is asked for one at a time, and is under way
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

/** What the controls of a view ask. Of `own`, `sent` is called when a change was sent, `answered` when a change or a
 * run was answered and what it changes is in the model, `gone` once no kernel answers any more: it was restarted or
 * shut down, or it died.
 * @type {(model: Model, own: { sent: (values: Record<string, unknown>) => void, answered: () => void, gone: ()
 *   => void }) => Queue} */
export function asking(model, { sent, answered, gone }) {
  const { send, latest, close: hangUp } = requests(model);
  /** @type {Record<string, unknown> | null} */
  let asked = null;
  /** @type {Record<string, unknown> | null} */
  let waiting = null;
  let refused = false; // the last change
  let toRun = false;
  let starting = false; // a run was asked for and has not been answered
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

/** Has `gone` called once, when the kernel is gone, until what this gives is called.
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
