"""A tensor moved from one distribution to another: the intersections of old and new blocks travel,
and nothing else.

             H over 2 ranks          N over 2 ranks
    rank 0   top of images 0, 1      image 0             top of image 1     0 -> 1
    rank 1   bottom of both          image 1             bottom of image 0  1 -> 0

Every rank finds all messages by itself. The gradient is redistributed back.

In PyTorch: the redistribute of a torch.distributed.tensor.DTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from dlviz.cluster import Mesh
from dlviz.parallel.convolution.boxes import Box, lengths, meet, part
from dlviz.parallel.convolution.distribution import Distribution, axis_lengths, rank_boxes


class Message(NamedTuple):
    """`box` of the whole tensor goes from one rank to another; or stays, on one that has it."""

    src: int
    dst: int
    box: Box


def redistribute(
    x: torch.Tensor,
    mesh: Mesh,
    src: Distribution,
    dst: Distribution,
    shape: Sequence[int] | None = None,
    layer: str = "",
) -> torch.Tensor:
    """This rank's block under `dst` of the tensor of which `x` is its block under `src`. All ranks
    of the mesh call it. `shape` is the whole tensor's; None: the ranks ask each other. `layer`
    names the spans. The gradient is redistributed back.

    Raises ValueError for an `x` that is not this rank's block.

    Cost: a rank sends the intersections of its block with the others' new blocks; between two
    cuts of one dim over p ranks (p-1)/p² of the tensor. Of a block that several ranks hold, each
    sends a share.
    """
    shape = _whole_shape(x, mesh, src) if shape is None else tuple(shape)
    old, new = (rank_boxes(axis_lengths(mesh), shape, each) for each in (src, dst))
    due = lengths(old[mesh.comm.rank])
    if tuple(x.shape) != due:
        raise ValueError(
            f"rank {mesh.comm.rank} has x of shape {tuple(x.shape)}, and its block of "
            f"{tuple(shape)} under {src} is {due}: give it that block, or the right shape=."
        )
    if old == new:
        return x
    return _Redistribute.apply(x, mesh, src, dst, shape, layer)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.how = how
        return _moved(x, *how, direction="forward")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        mesh, src, dst, *rest = ctx.how
        back = _moved(gradient, mesh, dst, src, *rest, direction="backward")
        return back, None, None, None, None, None


def _moved(
    x: torch.Tensor,
    mesh: Mesh,
    src: Distribution,
    dst: Distribution,
    shape: tuple[int, ...],
    layer: str,
    direction: str,
) -> torch.Tensor:
    comm, axes = mesh.comm, axis_lengths(mesh)
    old, new = (rank_boxes(axes, shape, each)[comm.rank] for each in (src, dst))
    y = x.new_empty(lengths(new))
    every = messages(axes, shape, src, dst)
    receives, sends = [], []
    about = {"nbytes": x.nbytes, "layer": layer, "direction": direction}
    with comm.span("collective", f"redistribute {layer}".strip(), **about):
        for src_rank, dst_rank, box in every:  # posted first, so that a message moves at once
            if dst_rank == comm.rank != src_rank:
                own = part(y, new, box)
                into = own if own.is_contiguous() else torch.empty_like(own)
                receives.append((comm.irecv(into, src_rank), into, own))
        for src_rank, dst_rank, box in every:
            if src_rank == comm.rank != dst_rank:
                sends.append(comm.isend(part(x, old, box).contiguous(), dst_rank))
            elif src_rank == dst_rank == comm.rank:
                part(y, new, box).copy_(part(x, old, box))
        for request, into, own in receives:
            request.wait()
            if into is not own:
                own.copy_(into)
        comm.wait_sent(sends)
    return y


@lru_cache(1024)
def messages(
    axes: tuple[tuple[str, int], ...],
    shape: tuple[int, ...],
    src: Distribution,
    dst: Distribution,
) -> list[Message]:
    """What goes from where to where on a mesh of these `axes`, with their lengths. A rank that has
    what it needs takes its own; those that do not share the ranks that do."""
    old, new = rank_boxes(axes, shape, src), rank_boxes(axes, shape, dst)
    holders: dict[Box, list[int]] = {}
    for rank, box in enumerate(old):
        holders.setdefault(box, []).append(rank)
    found = []
    for held, group in holders.items():
        others = 0
        for rank, box in enumerate(new):
            both = meet(held, box)
            if both is None:
                continue
            if rank in group:
                found.append(Message(rank, rank, both))
            else:
                found.append(Message(group[others % len(group)], rank, both))
                others += 1
    ranks = len(new)  # each sends to the next rank first: no port receives from all at once
    return sorted(found, key=lambda message: (message.dst - message.src) % ranks)


def _whole_shape(x: torch.Tensor, mesh: Mesh, src: Distribution) -> tuple[int, ...]:
    """Of the tensor of which each rank has a block, as the ranks' backend has it."""
    rows = torch.empty(mesh.comm.size, x.dim(), dtype=torch.int64)
    mesh.comm.all_gather(rows, torch.tensor(x.shape))
    grid = rows.view(*(axis.size for axis in vars(mesh).values()), x.dim())
    shape = []
    for dim, axes in enumerate(src.cuts(x.dim())):
        along = grid[..., dim]
        # The blocks along the axes that cut this dim, on ranks that are first on the others.
        shape.append(int(along[tuple(slice(None) if a in axes else 0 for a in vars(mesh))].sum()))
    return tuple(shape)
