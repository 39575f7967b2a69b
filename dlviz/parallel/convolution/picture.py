"""A halo exchange to look at: each pixel's value says which pixel it is, and the buffer in which
the halo arrives is watched. `dlviz.widgets.MessagePlayer` shows the Trace as tiles of the image.

    run = dlviz.launch(exchange, ranks=4, args=((12, 12), (2, 2)))
    dlviz.widgets.MessagePlayer(run.trace)
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.parallel.convolution.boxes import Box
from dlviz.parallel.convolution.distribution import Cut
from dlviz.parallel.convolution.halo import with_halo
from dlviz.parallel.convolution.halo_exchange import Halo
from dlviz.parallel.convolution.windows import Window

NAME = "pixels"  # of the watched buffer


def exchange(
    comm: Comm,
    shape: tuple[int, int],
    grid: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    padding: int | None = None,
) -> torch.Tensor:
    """One exchange of the halos of an image of `shape` (rows, columns), cut over a `grid` of (down,
    across) ranks, before a convolution; by default `padding` keeps its size at stride 1. Returns
    this rank's tile, (h, w) with the halo: the numbers of its pixels, 0 where it is padded. Raises
    ValueError for a grid of another number of ranks."""
    mesh = comm.mesh(h=grid[0], w=grid[1])
    padding = dilation * (kernel - 1) // 2 if padding is None else padding
    cuts = [Cut(axis, length) for axis, length in zip((mesh.h, mesh.w), shape, strict=True)]
    rows, columns = (Window(*cut, kernel, stride, dilation, padding) for cut in cuts)
    (top, bottom), (left, right) = (cut.block for cut in cuts)
    x = pixels(*shape)[top:bottom, left:right]
    return with_halo(x[None, None].contiguous(), rows, columns, watch=watch)[0, 0]


def pixels(height: int, width: int) -> torch.Tensor:
    """An image (height, width) in which pixel (y, x) has the value 1 + y width + x."""
    return 1.0 + torch.arange(height * width, dtype=torch.float64).view(height, width)


def watch(tile: torch.Tensor, halo: Halo) -> None:
    """Watch the `tile` that the halo arrives in, unless the rank has no outputs."""
    if not all(end - begin for begin, end in halo.made):
        return
    shape = halo.windows[0].length, halo.windows[1].length
    watch_tile(halo.comm, tile, halo.held, halo.reads(halo.made), shape)


def watch_tile(
    comm: Comm, tile: torch.Tensor, own: Box, held: Box, shape: tuple[int, int], name: str = NAME
) -> None:
    """Watch a `tile` of an image of `shape`: of the rows and columns `held`, of which the rank owns
    those of `own`. One channel of one image."""
    fields = {
        what: f"[{top}:{bottom}, {left}:{right}] of {shape}"
        for what, ((top, bottom), (left, right)) in (("own", own), ("held", held))
    }
    with comm.span("phase", f"tile {name}", buffer=name, **fields):
        comm.watch(tile, name)
