"""TensorExplorer, what its picture shows (picture.py), and its runs (run.py)."""

from dlviz.widgets.tensor.explorer import TensorExplorer

__all__ = ["TensorExplorer"]
