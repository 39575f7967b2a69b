// What is selected, shared by the widgets that show one Trace, wherever they stand on the page.

/**
 * A selection {span}, {message}, {where} or {} in the Trace's own row numbers.
 *
 * `choose(value)` selects here and in every other widget of the Trace; `changed(value, own)` is
 * called at each change, `own` where it was this widget's reader who chose.
 */
export function sharedSelection(trace, model, changed) {
  const channel = globalThis.BroadcastChannel && new BroadcastChannel(`dlviz-${trace}`);
  let now = "";

  function take(value, own) {
    const text = JSON.stringify(value);
    if (text === now) return false;
    now = text;
    changed(value, own);
    return true;
  }

  const fromModel = () => take(model.get("selection"), false);
  model.on("change:selection", fromModel);
  if (channel) channel.onmessage = ({ data }) => take(data, false);
  return {
    start: () => take(model.get("selection") ?? {}, false),
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
