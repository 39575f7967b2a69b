"""Convolutions cut along any dim: samples, rows and columns of the images, channels, filters.

train.py           a network trained with any cut of each layer: read it first
general.py         the network that is cut, and how the layers follow each other
layers.py          its layers, each on this rank's block; checks.py says which there are
spatial.py         rows and columns: convolutions and pools on blocks; halo.py moves their rims
channel_filter.py  channels and filters: what is gathered, and what is summed and scattered
segmented.py       a weight's gradient, summed by the ranks that hold the same block
cnn_hybrid.py      one weird trick: data parallel convolutions, dense layers cut over the ranks
distribution.py    which dim of a tensor lies on which mesh axis, and what moves between two cuts
"""

from dlviz.parallel.convolution.distribution import (
    Cut,
    Distribution,
    blocks,
    needed,
    redistribute,
)

__all__ = ["Cut", "Distribution", "blocks", "needed", "redistribute"]
