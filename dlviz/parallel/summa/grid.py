"""What the ranks of a grid must agree on before they multiply, and the blocks of each.

They exchange the shapes of their blocks through the backend, without messages in the Trace. All
blocks together give the sizes of the whole matrices, and these the block that each rank should
have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from weakref import WeakKeyDictionary

import torch

from dlviz.cluster import CODES, DTYPES, Comm, Mesh, dtype_name, form_of
from dlviz.parallel.summa.blocks import MATRICES, SharedBlock, block, bounds, check_matrix, place
from dlviz.sim.matmul import check_grid

Sizes = dict[str, int]  # m, k and n of the whole product

# Making a grid's groups takes three collectives: once per grid, not once per product.
_meshes: WeakKeyDictionary[Comm, dict[tuple[int, ...], Mesh]] = WeakKeyDictionary()


@dataclass(frozen=True)
class GridProduct:
    """Y = X W on this rank: the blocks it works on."""

    comm: Comm
    x: SharedBlock
    w: SharedBlock
    y: SharedBlock

    @property
    def panels(self) -> list[tuple[int, int]]:
        """The widest ranges of k in which one rank owns X's columns and one rank W's rows."""
        return list(pairwise(sorted({*self.x.bounds, *self.w.bounds})))


def agreed(comm: Comm, x: torch.Tensor, w: torch.Tensor, grid: Sequence[int]) -> GridProduct:
    """The product of these blocks. All ranks of `comm` must call it; raises ValueError on every
    rank where the blocks do not belong to one product (see `multiply`)."""
    check_grid(grid)
    if prod(grid) != comm.size:
        raise ValueError(
            f"grid={tuple(grid)} has {prod(grid)} places for {comm.size} ranks: its product must "
            f"be {comm.size}."
        )
    check_matrix("x", x.shape)
    check_matrix("w", w.shape)
    for each in (x, w):
        form_of(each.shape, each.dtype)  # ValueError for a dtype that cannot be sent
    mine = [*grid, CODES[x.dtype], CODES[w.dtype], x.requires_grad, w.requires_grad]
    own = torch.tensor([*mine, *x.shape, *w.shape])  # (11,): grid 3, dtypes 2, needs 2, shapes 4
    table = own.new_empty(comm.size, len(own))
    comm.all_gather(table, own)  # every rank checks every row: all raise, or none
    _check_alike(table.tolist())
    sizes = _sizes(table[:, -4:].view(*grid, 4), grid)  # rank order: n runs fastest
    _check_blocks(table[:, -4:].tolist(), grid, sizes)
    meshes = _meshes.setdefault(comm, {})
    if tuple(grid) not in meshes:
        meshes[tuple(grid)] = comm.mesh(**dict(zip("mkn", grid, strict=True)))
    axes = vars(meshes[tuple(grid)])
    shared = {which: _shared(which, comm.rank, grid, sizes, axes) for which in MATRICES}
    return GridProduct(comm, **shared)


def _check_alike(rows: list[list[int]]) -> None:
    """Raise ValueError where a rank has another grid, dtype or need of gradients than rank 0."""

    def said(row: list[int]) -> str:
        grid, kinds, needs = (
            tuple(row[:3]),
            [dtype_name(DTYPES[code]) for code in row[3:5]],
            row[5:7],
        )
        grads = [name for name, need in zip("xw", needs, strict=True) if need]
        wanted = f"gradients of {' and '.join(grads)}" if grads else "no gradients"
        return f"grid={grid}, x of {kinds[0]}, w of {kinds[1]} and {wanted}"

    for rank, row in enumerate(rows):
        if row[:7] != rows[0][:7]:  # without the shapes: parts may differ by one
            raise ValueError(
                f"rank 0 and rank {rank} multiply differently: rank 0 has {said(rows[0])}; rank "
                f"{rank} has {said(row)}; give all ranks the same."
            )
    if rows[0][3] != rows[0][4]:
        kinds = [dtype_name(DTYPES[code]) for code in rows[0][3:5]]
        raise ValueError(
            f"x and w differ: x is of {kinds[0]} and w of {kinds[1]}; convert one to the other's "
            "dtype."
        )


def _sizes(shapes: torch.Tensor, grid: Sequence[int]) -> Sizes:
    """Sizes of the whole matrices, from the shapes of x and w on (pm, pk, pn, 4)."""
    xm, xk, wk, wn = shapes.unbind(-1)  # (pm, pk, pn) each
    # x's columns are cut over k and n, w's rows over m and k.
    sizes = {"m": xm[:, 0, 0].sum(), "k": xk[0].sum(), "n": wn[0, 0].sum()}
    inner = int(wk[:, :, 0].sum())
    if sizes["k"] != inner:
        raise ValueError(
            f"the blocks of x have k={int(sizes['k'])} columns together and those of w k={inner} "
            f"rows: cut both for grid={tuple(grid)}, with summa.block."
        )
    found = {name: int(size) for name, size in sizes.items()}
    check_grid(grid, **found)
    return found


def _check_blocks(rows: list[list[int]], grid: Sequence[int], sizes: Sizes) -> None:
    """Raise ValueError for a rank's x or w of another shape than its block of the whole."""
    for which, columns in (("x", slice(0, 2)), ("w", slice(2, 4))):
        # A shape without memory, cut by `block` as the real one.
        whole = torch.empty([sizes[dim] for dim in MATRICES[which][0]], device="meta")
        for rank, row in enumerate(rows):
            shape, due = tuple(row[columns]), tuple(block(whole, rank, grid, which).shape)
            if shape != due:
                raise ValueError(
                    f"rank {rank} has {which} of shape {shape}, and its block of the whole "
                    f"{tuple(whole.shape)} on grid={tuple(grid)} is {due}: cut it with "
                    f"summa.block(tensor, {rank}, {tuple(grid)}, {which!r})."
                )


def _shared(
    which: str, rank: int, grid: Sequence[int], sizes: Sizes, axes: dict[str, Comm]
) -> SharedBlock:
    """The rank's block of a matrix, and its bounds among the ranks that share it."""
    dims, axis, dim = MATRICES[which]
    parts, places = dict(zip("mkn", grid, strict=True)), place(rank, grid)
    ranges = []
    for name in dims:
        cuts = bounds(0, sizes[name], parts[name])
        ranges.append((cuts[places[name]], cuts[places[name] + 1]))
    start, stop = ranges[dim]
    return SharedBlock(
        which.upper(), axes[axis], dim, bounds(start, stop, parts[axis]), ranges[1 - dim]
    )
