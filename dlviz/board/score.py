"""What a drawing comes to."""

from __future__ import annotations

from typing import NamedTuple

from dlviz.board.placement import Placement


class Score(NamedTuple):
    """What a drawing comes to: slots from the first start to the last end, their bubble ratio (idle
    / busy), the microbatches (of a stage) that each rank holds at most, and the idle slots that the
    rank with most of them has between its first action and its last."""

    slots: int
    ratio: float
    peak: tuple[int, ...]
    inside: int


def score_of(drawing: Placement) -> Score:
    """What the drawing, as far as it goes, comes to; only a legal one comes to anything."""
    first = min((placed.slot for placed in drawing.placed), default=0)
    work = sum(drawing.pipeline.slots(placed.action) for placed in drawing.placed)
    ratio = (drawing.end - first) * drawing.pipeline.ranks / work - 1 if work else 0.0
    peak = tuple(
        max((held for _, held in drawing.holding(rank)), default=0)
        for rank in range(drawing.pipeline.ranks)
    )
    rows = [row for row in drawing.grid.busy if row]
    inside = max(
        (row[-1][1] - row[0][0] - sum(end - start for start, end in row) for row in rows),
        default=0,
    )
    return Score(drawing.end - first, ratio, peak, inside)
