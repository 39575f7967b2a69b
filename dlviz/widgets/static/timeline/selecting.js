// The selection, shared with the other widgets of the Trace.
import { sharedSelection } from "../shared/selection.js";
import { spanLines } from "./words.js";

/** @import { Timeline } from "./context.js" */
/** @import { Scene } from "./state.js" */
/** @import { Selection } from "../shared/selection.js" */

/** Shares the selection and shows it. @type {(own: Timeline) => Timeline["selection"]} */
export function selecting(own) {
  const { shown, scene, clock, model } = own;
  const { now } = shown;
  return sharedSelection(scene.trace, model, (value, mine) => {
    if (value.where != null) {
      const matches = Uint8Array.from(scene.span.where, (where) => Number(where === value.where));
      own.search.found(matches);
      const first = matches.indexOf(1);
      if (first >= 0 && !mine) own.moves.reveal(first);
    } else if (now.query === "") own.search.found(null);
    shown.set({ ...chosenBy(scene, value), idle: -1, reply: "" });
    if (now.span >= 0) {
      own.moves.reveal(now.span);
      own.answers.first("details");
      own.frame.say(spanLines(scene, clock(), now.span).join(", "));
    }
    own.answers.mark(value.where ?? (now.span >= 0 ? scene.span.where[now.span] : ""));
  });
}

/** The indices of a selection's span and message.
 * @type {(scene: Scene, value: Selection) => { message: number, span: number }} */
function chosenBy({ rowOf, messageOf, span: { flow }, message: { receiver, sender } }, value) {
  if (value.message != null) {
    const message = messageOf.get(value.message) ?? -1;
    const ends = message < 0 ? [] : [receiver[message], sender[message]];
    return { message, span: ends.find((end) => end >= 0) ?? -1 };
  }
  const span = value.span == null ? -1 : rowOf.get(value.span) ?? -1;
  return { span, message: span >= 0 ? flow[span] : -1 };
}
