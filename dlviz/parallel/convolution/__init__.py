"""Convolutions cut every way: samples, rows and columns of the images, channels, filters.

distribution.py    which dim of a tensor lies on which mesh axis, and redistribution between two
spatial.py         convolution and pooling on a rank's block of every image
halo.py            the pixels of others' blocks that it needs for that
"""

from dlviz.parallel.convolution.distribution import (
    Cut,
    Distribution,
    blocks,
    needed,
    redistribute,
)

__all__ = ["Cut", "Distribution", "blocks", "needed", "redistribute"]
