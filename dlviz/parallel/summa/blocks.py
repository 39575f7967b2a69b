"""Which rank of a grid owns what of a matrix, and how the panels of a shared block travel.

Parts are contiguous and differ by one row or column at most, as `torch.tensor_split` cuts them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import torch

from dlviz.cluster import Comm
from dlviz.collectives import tree
from dlviz.sim.matmul import check_grid

# Of each matrix: its dims, the axis whose ranks share a block, and which of the two dims they cut.
MATRICES = {"x": ("mk", "n", 1), "w": ("kn", "m", 0), "y": ("mn", "k", 1)}


def block(tensor: torch.Tensor, rank: int, grid: Sequence[int], which: str) -> torch.Tensor:
    """What `rank` of `grid`, (pm, pk, pn), owns of a whole matrix: `which` is "x" (m, k), "w"
    (k, n) or "y" (m, n).

    Raises ValueError for another `which`, a rank outside the grid, a tensor that is no matrix, and
    a grid longer than a dim."""
    if which not in MATRICES:
        raise ValueError(f"which={which!r} is no matrix of Y = X W: use 'x', 'w' or 'y'.")
    check_matrix(which, tensor.shape)
    dims, axis, shared = MATRICES[which]
    check_grid(grid, **dict(zip(dims, tensor.shape, strict=True)))
    if not 0 <= rank < prod(grid):
        raise ValueError(f"rank={rank!r} is not on grid={tuple(grid)}: use 0 to {prod(grid) - 1}.")
    parts, places = dict(zip("mkn", grid, strict=True)), place(rank, grid)
    for dim, name in enumerate(dims):
        tensor = tensor.tensor_split(parts[name], dim)[places[name]]
    return tensor.tensor_split(parts[axis], shared)[places[axis]].contiguous()


@dataclass(frozen=True)
class SharedBlock:
    """A block of a matrix, of which each rank of `axis` owns a part: along `dim`, from one of the
    `bounds` to the next. `across` is the block's range along the other dim."""

    name: str
    axis: Comm
    dim: int
    bounds: tuple[int, ...]
    across: tuple[int, int]

    @property
    def gradient(self) -> SharedBlock:
        """The same block of the matrix's gradient."""
        return replace(self, name=f"d{self.name}")

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The range of each rank's part, without empty ones."""
        return [(start, stop) for start, stop in pairwise(self.bounds) if start < stop]

    @property
    def own(self) -> tuple[int, int]:
        """The range of this rank's part."""
        return self.bounds[self.axis.rank], self.bounds[self.axis.rank + 1]

    def shape(self, start: int, stop: int) -> tuple[int, int]:
        """The shape of rows or columns `start` to `stop` of the block."""
        length = self.across[1] - self.across[0]
        return (length, stop - start) if self.dim else (stop - start, length)

    def panel(self, own: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Rows or columns `start` to `stop`, from the rank that owns them to all of the axis."""
        owner = self._owner(start)
        if self.axis.rank == owner:
            panel = own.narrow(self.dim, start - self.bounds[owner], stop - start).contiguous()
        else:
            panel = own.new_empty(self.shape(start, stop))
        if self.axis.size > 1:
            where = self.where(start, stop)
            with self.axis.span("collective", where, nbytes=panel.nbytes, panel=where):
                tree.broadcast(self.axis, panel, owner)
        return panel

    def whole(self, own: torch.Tensor) -> torch.Tensor:
        """The block, from all ranks of the axis to all of them."""
        return torch.cat([self.panel(own, *part) for part in self.parts], self.dim)

    def add_up(self, partial: torch.Tensor, start: int, own: torch.Tensor) -> None:
        """Sum the ranks' `partial`, rows or columns from `start` on, into `own` of the rank that
        owns them; `partial` is overwritten."""
        owner, stop = self._owner(start), start + partial.shape[self.dim]
        if self.axis.size > 1:
            with self.axis.span("collective", self.where(start, stop), nbytes=partial.nbytes):
                tree.reduce(self.axis, partial, owner)
        if self.axis.rank == owner:
            own.narrow(self.dim, start - self.bounds[owner], stop - start).copy_(partial)

    def added(self, partial: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum of the ranks' `partial` blocks."""
        own = partial.new_empty(self.shape(*self.own))
        for start, stop in self.parts:
            part = partial.narrow(self.dim, start - self.bounds[0], stop - start)
            self.add_up(part.contiguous(), start, own)
        return own

    def where(self, start: int, stop: int) -> str:
        """Rows or columns `start` to `stop` of the block in the whole matrix, in slice notation."""
        along, across = f"{start}:{stop}", "{}:{}".format(*self.across)
        return f"{self.name}[{across}, {along}]" if self.dim else f"{self.name}[{along}, {across}]"

    def _owner(self, start: int) -> int:
        return bisect_right(self.bounds, start) - 1


def place(rank: int, grid: Sequence[int]) -> dict[str, int]:
    """Where a rank is on each axis of the grid, the last one fastest."""
    _, pk, pn = grid
    return {"m": rank // (pk * pn), "k": rank // pn % pk, "n": rank % pn}


def bounds(start: int, stop: int, parts: int) -> tuple[int, ...]:
    """Where `torch.tensor_split` cuts `start` to `stop` into `parts`, both ends included."""
    each, more = divmod(stop - start, parts)
    return tuple(start + part * each + min(part, more) for part in range(parts + 1))


def check_matrix(which: str, shape: Sequence[int]) -> None:
    """Raise ValueError unless `shape` has two dims."""
    if len(shape) != 2:
        raise ValueError(
            f"{which} of shape {tuple(shape)} is no matrix: give it two dims, "
            f"{' and '.join(MATRICES[which][0])}; batch and tokens together are rows."
        )
