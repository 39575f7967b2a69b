"""Convolutions cut every way: samples, rows and columns of the images, channels, filters.

distribution.py    which dim of a tensor lies on which mesh axis, and redistribution between two
"""

from dlviz.parallel.convolution.distribution import (
    Cut,
    Distribution,
    blocks,
    needed,
    redistribute,
)

__all__ = ["Cut", "Distribution", "blocks", "needed", "redistribute"]
