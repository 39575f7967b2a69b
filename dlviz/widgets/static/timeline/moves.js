// Moves from span to span: along a row, between rows, along a message, to the cause of a wait.
import { at, beside } from "../shared/gantt/rows.js";

/** @import { Moves, Timeline } from "./context.js" */

/** @type {(own: Timeline) => Moves} */
export function moves(own) {
  const { shown, part, picture, clock } = own;
  const { now } = shown;
  let centred = -1;

  function go(/** @type {number} */ span) {
    if (span < 0) return;
    own.selection.choose({ span: now.scene.span.row[span] });
    reveal(span);
  }

  function reveal(/** @type {number} */ span) {
    const [start, end] = [clock().start[span], clock().end[span]];
    if (end < now.from || start > now.to) {
      const half = Math.max((now.to - now.from) / 2, (end - start) * 0.6);
      part.show((start + end) / 2 - half, (start + end) / 2 + half);
    }
    const { row } = now.scene.slots[now.scene.slotOf[span]];
    const { top, bottom, hidden, pinned } = now.scene.rows[row];
    if (!hidden && !pinned) picture.reveal(top, bottom);
  }

  function say(/** @type {string} */ words) {
    shown.set({ reply: words });
    own.answers.first("details");
    own.frame.say(words);
  }

  return {
    go, reveal, say,
    click(target) {
      const { message, sender, receiver } = { message: target?.message, ...now.scene.message };
      if (message != null) {
        const end = (target?.end === "sender" ? sender : receiver)[message];
        return end >= 0 ? go(end) : own.selection.choose({ message: now.scene.message.row[message] });
      }
      if (target?.span != null) return go(target.span);
      own.selection.choose({});
      shown.set({ idle: target?.idle ?? -1 });
      if (target?.idle != null) own.answers.first("details");
    },
    walk(forward) {
      const { scene, span, from, to } = now;
      const first = scene.shown.find((row) => scene.slots.some((slot) => slot.row === row && !slot.once)) ?? 0;
      if (span < 0) go(at(scene, clock(), first, from + (to - from) * 0.01));
      else go(beside(scene, clock(), span, forward));
    },
    climb(by) {
      const { scene, span } = now;
      if (span < 0) return this.walk(true);
      const middle = (Math.max(clock().start[span], now.from) + Math.min(clock().end[span], now.to)) / 2;
      const own = scene.shown.indexOf(scene.slots[scene.slotOf[span]].row);
      for (let place = own + by; place >= 0 && place < scene.shown.length; place += by) {
        const there = at(scene, clock(), scene.shown[place], middle);
        if (there >= 0) return go(there);
      }
    },
    follow(end) {
      if (now.message < 0) return say(now.span < 0 ? "Nothing is selected." : "The selected span carries no message.");
      const span = now.scene.message[end][now.message];
      if (span < 0) return say(`The ${end}'s span is not in this picture.`);
      go(span);
    },
    goToCause() {
      const wait = clock().waits.get(now.span);
      if (wait && wait.at >= 0) return go(wait.at);
      say(now.span < 0 ? "Nothing is selected." : "The selected span waited for nobody.");
    },
    centre() {
      const { span, range } = now;
      if (span < 0) return range && part.fit(range.from, range.to);
      const [start, end] = [clock().start[span], clock().end[span]];
      if (centred === span) return part.fit(start, end);
      part.centre(start, end);
      centred = span;
    },
    back: () => part.back() || say("There is no earlier view."),
    forward: () => part.forward() || say("There is no later view."),
  };
}
