"""Which dim of a tensor lies on which axis of a mesh of ranks, and what moves from one to another.

A Distribution names for each dim the mesh axes that cut it. On a mesh of n=2, h=2 ranks:

    Distribution(N="n", H="h")           Distribution(N=("n", "h"))
      images 0 1    images 2 3             image 0   image 2
      rank 0 (top)  rank 2 (top)           rank 0    rank 2
      rank 1 (low)  rank 3 (low)           rank 1    rank 3   (images 1 and 3)

What a rank holds is its block. Blocks are those of `torch.tensor_split`, so they differ by one row
at most, and some are empty where there are more ranks than rows. Ranks that differ only along axes
that cut nothing hold the same block, and its whole gradient.

`redistribute` sends the intersections of old and new blocks, and nothing else.

Source: N. Dryden, N. Maruyama et al., "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", IPDPS 2019, section III. In PyTorch: the placements of a
torch.distributed.tensor.DTensor, and its redistribute.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm, Mesh
from dlviz.sim.convolution import blocks, needed

__all__ = ["Cut", "Distribution", "Message", "blocks", "messages", "needed", "redistribute"]

Block = tuple[slice, ...]  # of each dim


class Cut(NamedTuple):
    """A dim of `length` rows, cut over the ranks of `comm`."""

    comm: Comm
    length: int

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The rows of each rank."""
        return blocks(self.length, self.comm.size)

    @property
    def block(self) -> tuple[int, int]:
        """The rows of this rank."""
        return self.blocks[self.comm.rank]


@dataclass(frozen=True)
class Distribution:
    """The mesh axes that cut each dim: samples, channels, filters, height, width. A dim takes an
    axis, a tuple of axes of which the first cuts first, or None.

    That of a layer names axes for F, its filters, as well, and has the distributions of its input
    `x`, its weight `w` and its output `y`. That of a tensor is of (N, C, H, W) or the first of
    these; with F and without N of (F, C, H, W), a weight, or the first of these.

    Raises ValueError for an axis that cuts twice."""

    N: Any = None
    C: Any = None
    H: Any = None
    W: Any = None
    F: Any = None

    def __post_init__(self) -> None:
        for field in fields(self):
            axes = getattr(self, field.name)
            axes = (axes,) if isinstance(axes, str) else tuple(axes or ())
            object.__setattr__(self, field.name, axes)
        for axis in self.axes:
            if self.axes.count(axis) > 1:
                dims = [field.name for field in fields(self) if axis in getattr(self, field.name)]
                raise ValueError(
                    f"{self} cuts {' and '.join(dims)} over the axis {axis!r}, which then cuts "
                    "twice: a rank would hold the diagonal only. Give each dim its own axes."
                )

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        shown = [f"{dim}={axes[0] if len(axes) == 1 else axes!r}" for dim, axes in given if axes]
        return f"Distribution({', '.join(shown)})"

    @property
    def axes(self) -> tuple[str, ...]:
        """All mesh axes that cut a dim."""
        return (*self.N, *self.C, *self.H, *self.W, *self.F)

    @property
    def x(self) -> Distribution:
        """Of the layer's input: each rank of F holds a part of the channels of its rank of C."""
        return replace(self, C=(*self.C, *self.F), F=())

    @property
    def w(self) -> Distribution:
        """Of the layer's weight."""
        return Distribution(F=self.F, C=self.C)

    @property
    def y(self) -> Distribution:
        """Of the layer's output, whose channels are filters. The cut of y is the cut of the next x
        only if C and F change places there."""
        return replace(self, C=(*self.F, *self.C), F=())

    def check(self, axes: Collection[str]) -> None:
        """Raise ValueError for an axis that is not among a mesh's `axes`."""
        for axis in self.axes:
            if axis not in axes:
                raise ValueError(
                    f"{self} cuts over the axis {axis!r}, which the mesh lacks: it has "
                    f"{', '.join(axes)}."
                )

    def cuts(self, dims: int) -> tuple[tuple[str, ...], ...]:
        """The axes of each dim of a tensor of so many. Raises ValueError where another is cut."""
        if self.F and self.N:
            raise ValueError(
                f"{self} is that of a layer: take .x, .w or .y of it, for a tensor has samples or "
                "filters."
            )
        cuts = (self.F or self.N, self.C, self.H, self.W)
        if any(cuts[dims:]) or dims > len(cuts):
            raise ValueError(f"{self} does not fit a tensor of {dims} dims, of (N, C, H, W).")
        return cuts[:dims]

    def block(self, mesh: Mesh, shape: Sequence[int], rank: int | None = None) -> Block:
        """The slices of a tensor of `shape` that `rank` of the mesh (None: this one) holds. Raises
        ValueError for an axis that the mesh lacks."""
        found = _blocks(_lengths(mesh), tuple(shape), self)
        return found[mesh.comm.rank if rank is None else rank]


class Message(NamedTuple):
    """`block`, in the whole tensor, goes from one rank to another; or stays, on one that has it."""

    src: int
    dst: int
    block: Block


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
    due = _shape(src.block(mesh, shape))
    if tuple(x.shape) != due:
        raise ValueError(
            f"rank {mesh.comm.rank} has x of shape {tuple(x.shape)}, and its block of "
            f"{tuple(shape)} under {src} is {due}: give it that block, or the right shape=."
        )
    if _blocks(_lengths(mesh), shape, src) == _blocks(_lengths(mesh), shape, dst):
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
    comm = mesh.comm
    old, new = src.block(mesh, shape), dst.block(mesh, shape)
    y = x.new_empty(_shape(new))
    mine = messages(_lengths(mesh), shape, src, dst)
    receives, sends = [], []
    about = {"nbytes": x.nbytes, "layer": layer, "direction": direction}
    with comm.span("collective", f"redistribute {layer}".strip(), **about):
        for src_rank, dst_rank, block in mine:  # posted first, so that a message moves at once
            if dst_rank == comm.rank != src_rank:
                part = _part(y, new, block)
                into = part if part.is_contiguous() else torch.empty_like(part)
                receives.append((comm.irecv(into, src_rank), into, part))
        for src_rank, dst_rank, block in mine:
            if src_rank == comm.rank != dst_rank:
                sends.append(comm.isend(_part(x, old, block).contiguous(), dst_rank))
            elif src_rank == dst_rank == comm.rank:
                _part(y, new, block).copy_(_part(x, old, block))
        for request, into, part in receives:
            request.wait()
            if into is not part:
                part.copy_(into)
        comm.wait_sent(sends)
    return y


@lru_cache(1024)
def messages(
    lengths: tuple[tuple[str, int], ...],
    shape: tuple[int, ...],
    src: Distribution,
    dst: Distribution,
) -> list[Message]:
    """What goes from where to where on a mesh of axes with these `lengths`. A rank that holds what
    it needs takes its own; those that do not share the ranks that do."""
    old, new = _blocks(lengths, shape, src), _blocks(lengths, shape, dst)
    holders: dict[tuple, list[int]] = {}
    for rank, block in enumerate(old):
        holders.setdefault(_ends(block), []).append(rank)
    found = []
    for group in holders.values():
        others = 0
        for rank, block in enumerate(new):
            both = _intersection(old[group[0]], block)
            if both is None:
                continue
            if rank in group:
                found.append(Message(rank, rank, both))
            else:
                found.append(Message(group[others % len(group)], rank, both))
                others += 1
    ranks = len(new)  # each sends to the next rank first: no port receives from all at once
    return sorted(found, key=lambda message: (message.dst - message.src) % ranks)


@lru_cache(1024)
def _blocks(
    lengths: tuple[tuple[str, int], ...], shape: tuple[int, ...], distribution: Distribution
) -> list[Block]:
    """The block of each rank."""
    sizes = dict(lengths)
    distribution.check(sizes)
    cuts, found = distribution.cuts(len(shape)), []
    for rank in range(prod(sizes.values())):
        places = {}
        for axis in reversed(sizes):  # the last one fastest
            rank, places[axis] = divmod(rank, sizes[axis])
        ranges = []
        for length, axes in zip(shape, cuts, strict=True):
            lo, hi = 0, length
            for axis in axes:
                lo, hi = (lo + end for end in blocks(hi - lo, sizes[axis])[places[axis]])
            ranges.append(slice(lo, hi))
        found.append(tuple(ranges))
    return found


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


def _lengths(mesh: Mesh) -> tuple[tuple[str, int], ...]:
    return tuple((name, axis.size) for name, axis in vars(mesh).items())


def _ends(block: Block) -> tuple:
    return tuple((each.start, each.stop) for each in block)


def _shape(block: Block) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in block)


def _intersection(one: Block, other: Block) -> Block | None:
    """What two blocks share; None where that is empty."""
    both = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )
    return both if all(each.start < each.stop for each in both) else None


def _part(tensor: torch.Tensor, held: Block, block: Block) -> torch.Tensor:
    """`block` of the whole, in the `tensor` of a rank that holds `held`."""
    return tensor[
        tuple(slice(b.start - h.start, b.stop - h.start) for b, h in zip(block, held, strict=True))
    ]
