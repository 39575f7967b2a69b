"""CompressionExplorer, what each method costs (methods.py), and its runs (run.py)."""

from dlviz.widgets.compression.explorer import CompressionExplorer

__all__ = ["CompressionExplorer"]
