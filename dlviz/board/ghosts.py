"""What may come next: each action at the earliest slot at which it is legal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlviz.board.grid import Placed
from dlviz.board.placement import Placement
from dlviz.schedules import overlap
from dlviz.schedules.rules import is_overlap


class Ghost(NamedTuple):
    """An action that may come next, where it could start first. `lead`: of those of its stage and
    kind it could be the first, with the lowest microbatch."""

    placed: Placed
    lead: bool


def ghosts_of(drawing: Placement) -> list[Ghost]:
    """All that may come next, at the earliest slot at which it is legal."""
    found = [
        Placed(action, drawing.pipeline.rank_of(action), slot)
        for action in drawing.left()
        if (slot := drawing.grid.earliest(action)) is not None
    ]
    leads: dict[tuple[int, str], Placed] = {}
    for placed in found:
        first = leads.setdefault((placed.action.stage, placed.action.kind), placed)
        if placed.slot < first.slot:
            leads[placed.action.stage, placed.action.kind] = placed
    in_front = {*leads.values()}
    both = _overlaps(drawing, [*leads.values()]) if drawing.pipeline.overlaps else ()
    return [*(Ghost(placed, placed in in_front) for placed in found), *both]


def _overlaps(drawing: Placement, leads: list[Placed]) -> Iterator[Ghost]:
    forwards = [placed for placed in leads if placed.action.kind == "F"]
    for one in forwards:
        for other in leads:
            both = overlap(one.action, other.action)
            if other.rank == one.rank and is_overlap(both):
                slot = drawing.grid.earliest(both)
                if slot is not None:
                    yield Ghost(Placed(both, one.rank, slot), True)
