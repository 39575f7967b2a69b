"""MeshExplorer, and what it prices and runs (run.py)."""

from dlviz.widgets.mesh.explorer import MeshExplorer

__all__ = ["MeshExplorer"]
