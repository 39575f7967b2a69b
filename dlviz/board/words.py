"""A drawing in sentences: what a look at the whole of it says, and the advice for a next move."""

from __future__ import annotations

from typing import Any

from dlviz.board.drawing import Drawing
from dlviz.board.known import Known
from dlviz.board.moves import Move
from dlviz.schedules import TITLES

HOW = "Estimated by completing the schedule greedily; not proven optimal."


def verdict(drawing: Drawing, names: list[str], known: Known | None) -> str:
    """What a look at the whole drawing says: faults, what is missing or what it comes to.

    `names` are the known schedules whose order it has, `known` is the best of its size, or None.
    """
    done, faults = len(drawing.placed), drawing.faults
    if faults:
        return f"{broken(len(faults))} {faults[0].words} {faults[0].mend}"
    if not done:
        return f"Nothing is drawn yet. {_next(drawing)}"
    if not drawing.complete:
        missing = [*drawing.left()]
        way = {one for one in missing if one.kind != "B"}
        missing = [one for one in missing if one.kind != "B" or one._replace(kind="I") not in way]
        so_far = f" So far this is {' or '.join(names)}." if 0 < len(names) < 4 else ""
        return (
            f"{_actions(done)} drawn, no rule is broken, {len(missing)} to go. "
            f"{_next(drawing)}{so_far}"
        )
    return f"Complete and legal. {_compared(drawing, names, known)}".rstrip()


def broken(many: int) -> str:
    """How many rules are broken, in a sentence."""
    return "1 rule is broken." if many == 1 else f"{many} rules are broken."


def _compared(drawing: Drawing, names: list[str], known: Known | None) -> str:
    words = f"This is {' or '.join(names)}. " if names else ""
    if known is None:
        return words
    ours, best_known = drawing.score.slots, known.score.slots
    if ours == best_known:
        return f"{words}No known schedule is shorter."
    record = f"the best known schedule, {TITLES[known.name]} with {best_known} slots"
    return f"{words}The drawing is {'shorter' if ours < best_known else 'longer'} than {record}."


def advice(drawing: Drawing, found: list[Move], named: bool = True) -> dict[str, Any]:
    """The best of the next moves in words, and where it is; `named` says which schedule goes on
    like this."""
    if not found:
        words = "First mend the broken rule." if drawing.faults else "Every action is drawn."
        return {"words": words, "move": None}
    (action, rank, slot), end, way = found[0]
    words = f"A good move is {action} on rank {rank} at slot {slot}. "
    if end is None:
        words += "No way to complete the schedule was found. "
    else:
        like = f", continued like {TITLES[way]}" if named and way in TITLES else ""
        words += f"The schedule can then end at slot {end}{like}. "
    for (other, *_), later, _ in found[1:4]:
        cost = "has no known end" if later is None or end is None else _cost(later - end)
        words += f"{other} instead {cost}. "
    at = {"action": str(action), "rank": rank, "slot": slot}
    return {"words": words + HOW, "move": at}


def _cost(slots: int) -> str:
    if not slots:
        return "costs nothing"
    return f"costs {slots} slot{'s' * (slots > 1)}"


def _next(drawing: Drawing) -> str:
    ghost = min(drawing.ghosts, key=lambda one: one.placed.slot, default=None)
    if ghost is None:
        return "No action can come next."
    action, rank, slot = ghost.placed
    return f"{action} can come next, on rank {rank} at slot {slot}."


def _actions(many: int) -> str:
    return "1 action is" if many == 1 else f"{many} actions are"
