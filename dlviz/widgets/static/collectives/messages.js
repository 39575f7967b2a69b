// The messages of the chosen algorithm, in a player.
import { showMessages } from "../player/index.js";
import { within } from "../player/within.js";

/** @import { Collectives } from "./state.js" */

/** The player, rebuilt when the messages change; a saved page stores those of every algorithm. Returns what ends it.
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
