"""Convolutions cut along any dim: samples, rows and columns of the images, channels, filters.

train.py           a network trained with any cut of each layer: read it first
general.py         the network that is cut, and how the layers follow each other; cut_layer.py,
                   layers.py, other_layers.py: its layers; checks.py says which there are
distribution.py    which dim of a tensor lies on which mesh axis; redistribution.py: what moves
                   between two of them
spatial.py         rows and columns: convolutions and pools on blocks. halo.py: the interior is
                   computed while the rim travels, by halo_exchange.py; windows.py: what is read
channel_filter.py  channels and filters: what is gathered, and what is summed and scattered;
                   channel_blocks.py: of which blocks
segmented.py       a weight's gradient, summed by the ranks that hold the same block
cnn_hybrid.py      one weird trick: data parallel convolutions, dense layers cut over the ranks
                   (dense_blocks.py), to which rows cross (crossings.py)
picture.py         a halo exchange to look at
"""

from dlviz.parallel.convolution.distribution import Cut, Distribution
from dlviz.parallel.convolution.redistribution import redistribute
from dlviz.sim.convolution import blocks, needed

__all__ = ["Cut", "Distribution", "blocks", "needed", "redistribute"]
