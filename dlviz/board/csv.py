"""A drawing from the text of a schedule."""

from __future__ import annotations

from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import Schedule, parse
from dlviz.schedules.schedule import rows_of


def from_csv(text: str, pipeline: Pipeline) -> Drawing:
    """The drawing of a compute-only CSV at the earliest times.

    Rows of actions that `pipeline` has, some of them empty perhaps, are drawn on it; other rows on
    a pipeline of their own. Raises ScheduleError for what is no schedule or cannot go on.
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
