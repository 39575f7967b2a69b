"""Which dim of a tensor lies on which axis of a mesh of ranks.

A Distribution names for each dim the mesh axes that cut it. On a mesh of n=2, h=2 ranks:

    Distribution(N="n", H="h")           Distribution(N=("n", "h"))
      images 0 1    images 2 3             image 0   image 2
      rank 0 (top)  rank 2 (top)           rank 0    rank 2
      rank 1 (low)  rank 3 (low)           rank 1    rank 3   (images 1 and 3)

What a rank holds is its block. Blocks are those of `torch.tensor_split`, so they differ by one row
at most, and some are empty where there are more ranks than rows. Ranks that differ only along axes
that cut nothing hold the same block, and its whole gradient.

Source: N. Dryden, N. Maruyama et al., "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", IPDPS 2019, section III. In PyTorch: the placements of a
torch.distributed.tensor.DTensor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from dlviz.cluster import Comm, Mesh
from dlviz.parallel.convolution.boxes import Box, slices
from dlviz.sim.convolution import blocks

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
        found = rank_boxes(axis_lengths(mesh), tuple(shape), self)
        return slices(found[mesh.comm.rank if rank is None else rank])


@lru_cache(1024)
def rank_boxes(
    lengths: tuple[tuple[str, int], ...], shape: tuple[int, ...], distribution: Distribution
) -> list[Box]:
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
            ranges.append((lo, hi))
        found.append(tuple(ranges))
    return found


def axis_lengths(mesh: Mesh) -> tuple[tuple[str, int], ...]:
    """The axes of a mesh with their lengths."""
    return tuple((name, axis.size) for name, axis in vars(mesh).items())
