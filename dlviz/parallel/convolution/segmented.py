"""Segmented all-reduce: a weight's gradient is summed by the ranks that hold the same block alone.

On a mesh of n=4 x f=2 ranks each holds half of the filters, and dw of its own samples. Those whose
filters are the same are a group; all groups reduce at the same time, each its own block:

              f=0    f=1             group of f=0     group of f=1
    n=0      rank 0  rank 1          0  2  4  6       1  3  5  7
    n=1      rank 2  rank 3             dw[:F/2]         dw[F/2:]
    n=2      rank 4  rank 5
    n=3      rank 6  rank 7          a rank sends 2 (4-1)/4 |w|/2 = 0.75 |w|

An all-reduce of the whole dw over all eight ranks, each of which adds zeros for the filters of
others, gives the same sums: a rank sends 2 (8-1)/8 |w| = 1.75 |w|.

Source: N. Dryden, N. Maruyama et al., "Channel and filter parallelism for large-scale CNN
training", SC 2019, section 3.2. In PyTorch: the all-reduce of a DTensor's Partial gradient over the
mesh dims on which the parameter is Replicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm, Mesh, alone, grid_of
from dlviz.parallel.tensor.conjugate import reduced


def group(mesh: Mesh, axes: Sequence[str]) -> Comm:
    """The ranks that differ from this one only along `axes` of the mesh, in the mesh's order: those
    that hold the same block of what the other axes cut. All ranks of the mesh call it. Raises
    ValueError for an axis that the mesh lacks."""
    axes = (axes,) if isinstance(axes, str) else axes
    for axis in axes:
        if axis not in vars(mesh):
            raise ValueError(f"axes={tuple(axes)}: {mesh} has no axis {axis!r}. Name its own.")
    along = [axis for name, axis in vars(mesh).items() if name in axes]
    if prod(axis.size for axis in along) == mesh.comm.size:
        return mesh.comm
    return reduce(grid_of, along) if along else alone(mesh.comm)


def summed(group: Comm, *parameters: torch.Tensor, layer: str = "") -> tuple[torch.Tensor, ...]:
    """The `parameters` themselves; their gradients are the sums of those of the `group`, in which
    all hold the same values. `layer` names the span.

    Cost: backward one ring all-reduce, 2(n-1)/n of the parameters' bytes, n ranks in the group.
    """
    return _Summed.apply(group, layer, *parameters) if group.size > 1 else parameters


class _Summed(Function):
    @staticmethod
    def forward(ctx: Any, group: Comm, layer: str, *parameters: torch.Tensor) -> Any:
        ctx.how = group, "ring", layer
        return tuple(each.view_as(each) for each in parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        total = torch.cat([each.flatten() for each in gradients])  # together: half the messages
        total = reduced(total, *ctx.how, direction="backward")
        parts = total.split([each.numel() for each in gradients])
        return None, None, *(p.view_as(g) for p, g in zip(parts, gradients, strict=True))
