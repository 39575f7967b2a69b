"""ScheduleExplorer, ScheduleLevels (levels.py), and the runs of both (pipelines.py, run.py)."""

from dlviz.widgets.schedules.explorer import ScheduleExplorer

__all__ = ["ScheduleExplorer"]
