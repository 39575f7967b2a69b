"""ConsistencyExplorer, and the strategies that it plays and runs (strategies.py)."""

from dlviz.widgets.consistency.explorer import ConsistencyExplorer

__all__ = ["ConsistencyExplorer"]
