"""MemoryExplorer, what a rank holds of each kind (parts.py), and its runs (run.py)."""

from dlviz.widgets.memory.explorer import MemoryExplorer

__all__ = ["MemoryExplorer"]
