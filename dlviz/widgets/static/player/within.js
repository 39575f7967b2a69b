// A model for a part of an explorer: with its own state, and otherwise the explorer's.

/** @import { Model } from "../shared/theme.js" */

/** A player's model within an explorer's, and a function that shows another state.
 * @type {(model: Model, state: string) => { model: Model, show: (text: string | undefined) => void }} */
export function within(model, state) {
  const listeners = new Set();
  /** @type {Model} */
  const own = {
    page: model.page,
    get: (name) => (name === "state" ? state : model.get(name)),
    set: (name, value) => model.set(name, value),
    save_changes: () => model.save_changes(),
    send: (content) => model.send(content),
    on: (name, call) => void (name === "change:state" ? listeners.add(call) : model.on(name, call)),
    off: (name, call) => void (name === "change:state" ? listeners.delete(call) : model.off(name, call)),
  };
  return {
    model: own,
    show(text) {
      if (!text || text === state) return;
      state = text;
      for (const call of listeners) call();
    },
  };
}
