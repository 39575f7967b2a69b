"""PlacementExplorer, and what it shows of a placement and of the methods (found.py)."""

from dlviz.widgets.placement.explorer import PlacementExplorer

__all__ = ["PlacementExplorer"]
