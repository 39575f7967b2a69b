// The messages of one step of the shown run, in a player.
import { h, write } from "../shared/dom.js";
import { showMessages } from "../player/index.js";
import { within } from "../player/within.js";

/** @import { Tensor } from "./state.js" */

const NONE = "These sizes were not run: after a run the messages of a step appear here.";
const LAST = "The messages of the last step of the run, as its ranks sent them.";

/** The player, made at the first run; returns what ends it. @type {(own: Tensor, panel: HTMLElement) => () => void} */
export function messages({ model }, panel) {
  const about = h("p", { class: "dlv-about" });
  const el = h("div", { class: "dlv-player" });
  panel.append(about, el);
  /** @type {ReturnType<typeof within> | null} */
  let player = null;
  let stop = () => {};

  function changed() {
    const text = model.get("player");
    write(about, text ? LAST : NONE);
    el.hidden = !text;
    if (player) return player.show(text);
    if (!text) return;
    player = within(model, text);
    stop = showMessages({ model: player.model, el });
  }

  changed();
  model.on("change:player", changed);
  return () => {
    model.off("change:player", changed);
    stop();
  };
}
