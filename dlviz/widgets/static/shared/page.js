// Opens a front end on a saved page, with a model that nobody else changes.

/** @import { Model } from "./theme.js" */

/** Renders `frontEnd` in `el` with the traits in `text`, which is JSON; returns what `render` returns.
 * @type {(frontEnd: { render: (given: { model: Model, el: HTMLElement }) => unknown }, el: HTMLElement, text:
 *   string) => unknown} */
function open(frontEnd, el, text) {
  const traits = JSON.parse(text);
  const listeners = new Map();
  /** @type {Model} */
  const model = {
    page: true,
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] === value) return;
      traits[name] = value;
      for (const call of listeners.get(`change:${name}`) ?? []) call();
    },
    on: (name, call) => void listeners.set(name, (listeners.get(name) ?? new Set()).add(call)),
    off: (name, call) => void listeners.get(name)?.delete(call),
    save_changes() {},
    send() {},
  };
  el.replaceChildren();
  return frontEnd.render({ model, el });
}

export default open;
