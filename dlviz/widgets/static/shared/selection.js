// The selection shared by all widgets of one Trace on the page.

/** @import { Model } from "./theme.js" */

/** The selection, as row numbers of the Trace; {} if nothing is selected.
 * @typedef {{ span?: number, message?: number, where?: string }} Selection */

/** The selection of a Trace, whose widgets share the name `trace`. `changed` is called at each change; `own`: made
 * in this widget. `start` takes the present selection; `choose` selects in all widgets of the Trace.
 * @type {(trace: string, model: Model, changed: (value: Selection, own: boolean) => void) => { start: () => void,
 *   choose: (value: Selection) => void, stop: () => void }} */
export function sharedSelection(trace, model, changed) {
  const channel = globalThis.BroadcastChannel && new BroadcastChannel(`dlviz-${trace}`);
  let now = "";

  /** @type {(value: Selection, own: boolean) => boolean} */
  function take(value, own) {
    const text = JSON.stringify(value);
    if (text === now) return false;
    now = text;
    changed(value, own);
    return true;
  }

  const fromModel = () => void take(model.get("selection"), false);
  model.on("change:selection", fromModel);
  if (channel) channel.onmessage = ({ data }) => take(data, false);
  return {
    start: () => void take(model.get("selection") ?? {}, false),
    choose(value) {
      if (!take(value, true)) return;
      channel?.postMessage(value);
      model.set("selection", value);
      model.save_changes();
    },
    stop() {
      channel?.close();
      model.off("change:selection", fromModel);
    },
  };
}
