"""What is known of a drawing: which schedule of the zoo it is, and the best of them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dlviz.board.drawing import Drawing, laid_out
from dlviz.board.pipeline import Pipeline
from dlviz.board.score import Score
from dlviz.schedules import NAMES, Action, Schedule, make


class Known(NamedTuple):
    """A schedule of the zoo on a pipeline."""

    name: str
    schedule: Schedule
    score: Score

    def fits(self, pipeline: Pipeline) -> bool:
        """Whether it keeps the limit of `pipeline` and is made of what is offered there."""
        actions = [one for row in self.schedule.actions for one in row]
        if pipeline.limit is not None and max(self.score.peak) > pipeline.limit:
            return False
        offered = {half.kind for one in actions for half in one.halves} <= {*pipeline.kinds}
        return offered and (pipeline.overlaps or not any(one.parts for one in actions))

    def begins(self, rows: list[list[Action]]) -> bool:
        """Whether each of its rows begins with what is drawn of that rank."""
        pairs = zip(self.schedule.actions, rows, strict=True)
        return all(row[: len(drawn)] == drawn for row, drawn in pairs)


@lru_cache(maxsize=32)
def zoo(pipeline: Pipeline) -> tuple[Known, ...]:
    """The schedules of the zoo whose stages live where those of `pipeline` do, fastest first; of
    equally fast ones that which holds fewest microbatches.

    Those of training where there are backwards, else those without.
    """
    found = []
    for name in NAMES:
        chunks = pipeline.stages // pipeline.ranks
        try:
            schedule = make(name, pipeline.ranks, pipeline.microbatches, chunks)
        except ValueError:
            continue  # it is not defined for this size
        forward_only = all(one.kind == "F" for row in schedule.actions for one in row)
        if schedule.stage_rank == pipeline.stage_rank and forward_only == (
            pipeline.backward == "none"
        ):
            found.append(Known(name, schedule, laid_out(schedule, pipeline).score))
    return tuple(sorted(found, key=lambda one: (one.score.slots, max(one.score.peak))))


def best(pipeline: Pipeline) -> Known | None:
    """The fastest of the zoo that flushes and fits; None where there is none."""
    candidates = (one for one in zoo(pipeline) if one.fits(pipeline) and one.schedule.flushes)
    return next(candidates, None)


def beats(drawing: Drawing) -> bool:
    """Whether `drawing` is whole, legal and faster than the best of the zoo."""
    known = best(drawing.pipeline)
    legal = drawing.complete and not drawing.faults
    return legal and known is not None and drawing.score.slots < known.score.slots


def recognised(drawing: Drawing) -> list[str]:
    """The names of the zoo whose order `drawing` has: the whole of it where the drawing is
    complete, so far where it is not. None where there is a fault or nothing is drawn."""
    if drawing.faults or not drawing.placed:
        return []
    rows = drawing.rows()
    return [one.name for one in zoo(drawing.pipeline) if one.begins(rows)]
