// The selected action or gap, and moves to another.
import { sharedSelection } from "../shared/selection.js";
import { causeOf, actionLines, holeLines } from "./words.js";
import { nameOf, neighbour, receivers, spanOf } from "./geometry.js";
import { NOTHING, isWhole, lastOf, ranOf } from "./kernel.js";

/** @import { Choosing, Chosen, Explorer } from "./context.js" */
/** @import { Side } from "./state.js" */

/** @type {(own: Explorer) => Choosing} */
export function choosing(own) {
  const { shown, part, model } = own;
  const { now } = shown;
  /** @type {any} */
  let selection = null;

  /** Shares the selection with other widgets of the shown Trace. */
  function follows() {
    if (selection?.trace === now.data.trace) return;
    const first = selection == null;
    selection?.stop();
    const shared = sharedSelection(now.data.trace, model, ({ span }) => {
      const { chosen } = now;
      if (span === undefined ? chosen.side === 1 : span === chosen.span && chosen.side === 0) return;
      put(span != null && span < now.sides[0].count ? { side: 0, span } : {});
    });
    selection = { trace: now.data.trace, ...shared };
    if (first) selection.start();
    else share();
  }

  function share() {
    const { side, span } = now.chosen;
    selection.choose(side === 0 && span >= 0 ? { span } : {});
  }

  /** @type {(next: Partial<Chosen>) => void} */
  function put(next) {
    const chosen = { ...NOTHING, ...next };
    if (chosen.span >= 0) chosen.name = nameOf(now.sides[chosen.side], chosen.span);
    shown.set({ chosen });
    if (chosen.span >= 0) reveal(now.sides[chosen.side], chosen.span);
    shown.flush();
    if (chosen.side >= 0) own.frame.say(lines().join(". "));
  }

  /** @type {Choosing["select"]} */
  function select(next, onBoard = false) {
    put(next);
    const side = now.sides[now.chosen.side];
    const drawn = side?.name === "drawn" && now.chosen.span >= 0;
    if (!onBoard) own.board.choose(drawn ? actionOf(side, now.chosen.span) : null);
    share();
  }

  /** @type {(side: Side, span: number) => void} */
  function reveal({ start, end }, span) {
    if (!isWhole(now) && (end[span] < now.from || start[span] > now.to)) part.centre(start[span], end[span]);
  }

  function lines() {
    const { side: place, span, hole } = now.chosen;
    const side = now.sides[place];
    return span >= 0 ? actionLines(side, span, place === 0 ? ranOf(now) : null) : holeLines(side, side.holes[hole]);
  }

  return {
    select, follows, lines,
    fromBoard(action) {
      const side = now.sides.findIndex(({ name, error }) => name === "drawn" && !error);
      const name = action && `${action.stage}${action.kind}${action.microbatch}`;
      const span = name && side >= 0 ? spanOf(now.sides[side], name) : -1;
      select(span >= 0 ? { side, span } : {}, true);
    },
    ...moves(own, select),
    clear() {
      if (now.chosen.side < 0 && isWhole(now)) return false;
      shown.set({ from: 0, to: lastOf(now) });
      select({});
      return true;
    },
    stop: () => selection?.stop(),
  };
}

/** Moves from one action to another.
 * @type {(explorer: Explorer, select: Choosing["select"]) => Pick<Choosing, "moved" | "follow" | "other">} */
function moves({ shown: { now }, frame }, select) {
  return {
    moved(event, along, by) {
      const slide = /** @type {HTMLInputElement} */ (event.target);
      if (slide.matches?.("input[type=range]")) {
        if (along > 0 || by < 0) slide.stepUp();
        else slide.stepDown();
        slide.dispatchEvent(new Event("input"));
        return;
      }
      const { chosen } = now;
      const place = Math.max(chosen.side, 0);
      const side = now.sides[place];
      if (side.error || !side.count) return;
      const next = chosen.hole >= 0 ? Math.max(side.holes[chosen.hole].next, 0) : 0;
      select({ side: place, span: chosen.span < 0 ? next : neighbour(side, chosen.span, along, by) });
    },
    follow(back) {
      const { side: place, span } = now.chosen;
      if (span < 0) return frame.say("Nothing is selected.");
      const to = back ? causeOf(now.sides[place], span) : receivers(now.sides[place], span)[0] ?? -1;
      if (to >= 0) select({ side: place, span: to });
      else frame.say(back ? "It receives nothing from another stage." : "No other stage receives from it.");
    },
    other() {
      const to = 1 - Math.max(now.chosen.side, 0);
      if (!now.sides[to] || now.sides[to].error) return;
      select({ side: to, span: Math.max(spanOf(now.sides[to], now.chosen.name), 0) });
    },
  };
}

/** @type {(side: Side, i: number) => { stage: number, kind: string, microbatch: number }} */
function actionOf(side, i) {
  return { stage: side.stage[i], kind: side.kind[i], microbatch: side.microbatch[i] };
}
