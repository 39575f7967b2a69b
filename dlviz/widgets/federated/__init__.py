"""FederatedExplorer, what it predicts (prediction.py) and runs (run.py, recorded.py)."""

from dlviz.widgets.federated.explorer import FederatedExplorer

__all__ = ["FederatedExplorer"]
