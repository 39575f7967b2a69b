"""CollectiveExplorer, and the all-reduces that it prices, plays and runs (all_reduce.py)."""

from dlviz.widgets.collectives.explorer import CollectiveExplorer

__all__ = ["CollectiveExplorer"]
