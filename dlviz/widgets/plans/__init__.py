"""PlanExplorer, and its runs (run.py)."""

from dlviz.widgets.plans.explorer import PlanExplorer

__all__ = ["PlanExplorer"]
