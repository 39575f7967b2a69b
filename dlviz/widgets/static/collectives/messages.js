// The messages of the chosen algorithm, in a player of their own.
import { showMessages } from "../player/index.js";

/** @import { Model } from "../shared/theme.js" */
/** @import { Collectives } from "./state.js" */

/**
 * The player, made anew where the messages are others; a saved page holds those of every algorithm.
 * @param {Collectives} own
 * @param {HTMLElement} el
 * @returns {() => void} what ends it
 */
export function messages({ model, shown }, el) {
  const { now } = shown;
  el.classList.add("dlv-player");
  const player = within(model, model.get("player"));
  const changed = () => player.show(model.get("player"));
  const stop = showMessages({ model: player.model, el });
  model.on("change:player", changed);
  shown.paints(["controls"], () => player.show(model.get("players")?.[now.controls.algorithm]));
  return () => {
    model.off("change:player", changed);
    stop();
  };
}

/** A model of a part of the explorer: the state is its own, all else the explorer's. */
function within(model, state) {
  const listeners = new Set();
  /** @type {Model} */
  const own = {
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
