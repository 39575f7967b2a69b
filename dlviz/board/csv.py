"""A drawing from the text of a schedule."""

from __future__ import annotations

from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import Schedule, parse
from dlviz.schedules.schedule import rows_of


def from_csv(text: str, pipeline: Pipeline) -> Drawing:
    """The drawing of a compute-only CSV at the earliest times.

    Rows with actions of `pipeline`, possibly empty, are drawn on it; other rows on their own
    pipeline. Raises ScheduleError for an invalid schedule or one that deadlocks.
    """
    given = rows_of(text)
    given += [[]] * (pipeline.ranks - len(given))
    try:
        rows = [[parse(cell) for cell in cells] for cells in given]
        fits = len(rows) == pipeline.ranks
        for rank, row in enumerate(rows if fits else []):
            for action in row:
                pipeline.check(action, rank, 0)
                fits &= all(pipeline.stage_rank[half.stage] == rank for half in action.halves)
    except ValueError:
        fits = False
    if fits:
        schedule = Schedule(rows, pipeline.stage_rank)
        return laid_out(schedule, pipeline.offering(schedule))
    return drawn(Schedule.from_csv(text), pipeline.costs, pipeline.limit)
