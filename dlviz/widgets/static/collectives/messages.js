// The messages of the chosen algorithm, in a player of their own.
import { showMessages } from "../player/index.js";
import { within } from "../player/within.js";

/** @import { Collectives } from "./state.js" */

/** The player, made anew where the messages are others; a saved page holds those of every algorithm. What is returned
 * ends it.
 * @type {(own: Collectives, el: HTMLElement) => () => void} */
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
