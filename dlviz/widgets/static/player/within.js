// The player as a part of an explorer: a model with its own state, and otherwise the explorer's.
import { showMessages } from "./index.js";

/** @import { Model } from "../shared/theme.js" */

/** A player in `el` of the messages in the explorer's "player", made with the first. `changed` is called with whether
 * there are any; `show` shows others.
 * @type {(model: Model, el: HTMLElement, changed?: (any: boolean) => void) => { show: (text?: string) => void, stop:
 *   () => void }} */
export function within(model, el, changed) {
  const listeners = new Set();
  let state = "";
  /** @type {(() => void) | null} */
  let end = null;
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
  /** @type {(text?: string) => void} */
  function show(text) {
    if (!text || text === state) return;
    state = text;
    if (end) listeners.forEach((call) => call());
    else end = showMessages({ model: own, el });
  }
  function heard() {
    const text = model.get("player");
    changed?.(Boolean(text));
    show(text);
  }

  heard();
  model.on("change:player", heard);
  return {
    show,
    stop() {
      model.off("change:player", heard);
      end?.();
    },
  };
}
