"""ConvolutionExplorer, what a cut of a layer costs (cuts.py), and its runs (run.py)."""

from dlviz.widgets.convolution.explorer import ConvolutionExplorer

__all__ = ["ConvolutionExplorer"]
