"""Which block of each matrix a rank has, for the explorer of tensor parallelism to draw.

    forward    X   ×   W   =   Y  -- all-reduce -->  Y      a gradient lies below its matrix
    backward  dX      dW                            dY

Where a collective changes who has what, the matrix is drawn before and after. Before a run the
blocks follow from the form; those of a run are what its ranks had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dlviz.sim.layer_cuts import FORMS, Form, Values, sent

Block = tuple[int, int, int, int]  # rows from, to, columns from, to
Blocks = Mapping[str, list[Block]]  # of each rank, by matrix
SIGNS = ("×", "=")
MOVES = {"→": 1, "←": -1}  # what a collective moves to the next column, and from there


@dataclass(frozen=True)
class Matrix:
    """A matrix in the picture: `cut` is "rows", "columns", "whole" or "sum", which is a summand of
    the whole matrix on each rank; `sign` is what comes after it."""

    name: str
    cut: str
    sign: str = ""


def _row(*cells: str) -> list[Matrix | None]:
    """`"X rows ×"` as a cell; "" as none."""
    return [Matrix(*cell.split()) if cell else None for cell in cells]


# For each form the matrices of the forward and, each below its own, the gradients of the backward.
PICTURES = {
    "data": (
        _row("X rows ×", "W whole =", "", "Y rows"),
        _row("dX rows", "dW sum →", "dW whole", "dY rows"),
    ),
    "partition_output": (
        _row("X rows →", "X whole ×", "W columns =", "Y columns"),
        _row("dX rows ←", "dX sum", "dW columns", "dY columns"),
    ),
    "partition_output_whole": (
        _row("", "X whole ×", "W columns =", "Y columns"),
        _row("dX whole ←", "dX sum", "dW columns", "dY columns"),
    ),
    "reduce_output": (
        _row("X columns ×", "W rows =", "Y sum →", "Y whole"),
        _row("dX columns", "dW rows", "", "dY whole"),
    ),
    "mlp_data": (
        _row("X rows ×", "W₁ whole =", "", "Z rows ×", "W₂ whole =", "", "Y rows"),
        _row("dX rows", "dW₁ sum →", "dW₁ whole", "dZ rows", "dW₂ sum →", "dW₂ whole", "dY rows"),
    ),
    "mlp": (
        _row("", "X whole ×", "W₁ columns =", "Z columns ×", "W₂ rows =", "Y sum →", "Y whole"),
        _row("dX whole ←", "dX sum", "dW₁ columns", "dZ columns", "dW₂ rows", "", "dY whole"),
    ),
}
DIMS = {
    False: {"X": ("batch", "inputs"), "W": ("inputs", "outputs"), "Y": ("batch", "outputs")},
    True: {
        "X": ("batch", "inputs"), "W₁": ("inputs", "outputs"), "Z": ("batch", "outputs"),
        "W₂": ("outputs", "inputs"), "Y": ("batch", "inputs"),
    },
}  # fmt: skip
MADE = {
    False: {"Y": "X W", "dX": "dY Wᵀ", "dW": "Xᵀ dY", "dY": "of the loss"},
    True: {
        "Z": "X W₁", "Y": "GELU(Z) W₂", "dX": "dZ W₁ᵀ", "dW₁": "Xᵀ dZ", "dZ": "GELU′(Z) ∘ dY W₂ᵀ",
        "dW₂": "GELU(Z)ᵀ dY", "dY": "of the loss",
    },
}  # fmt: skip


def picture(values: Values, of_run: Blocks | None = None) -> list[list[dict[str, Any] | None]]:
    """The matrices of the forward and of the backward, in columns. `of_run` has the blocks of a
    matrix as it is in a product, and of its gradient where that is cut alike."""
    return [
        [cell and _matrix(cell, direction, values, of_run or {}) for cell in cells]
        for direction, cells in enumerate(PICTURES[values["form"]])
    ]


def _matrix(cell: Matrix, direction: int, values: Values, of_run: Blocks) -> dict[str, Any]:
    form, (cells, gradients) = FORMS[values["form"]], PICTURES[values["form"]]
    matrix = cell.name.removeprefix("d")
    dims = DIMS[form.mlp][matrix]
    shape = [values[dim] for dim in dims]
    had = of_run.get(matrix) if cell.cut == in_products(cells)[matrix] else None
    summed = {other.name for other in [*cells, *gradients] if other and other.cut == "sum"}
    by_product = cell.cut == "sum" or cell.name not in summed  # else by a collective
    return {
        "name": cell.name,
        "made": MADE[form.mlp].get(cell.name, "") if by_product else "",
        "dims": dims,
        "shape": shape,
        "cut": cell.cut,
        "blocks": had or blocks(cell.cut, shape, values["ranks"]),
        "sign": cell.sign if cell.sign in SIGNS else "",
        **(_move(cell, form, direction, values) if cell.sign in MOVES else {}),
    }


def in_products(cells: list[Matrix | None]) -> dict[str, str]:
    """How each matrix of a forward is cut where it is a factor or the result of a product."""
    there = [cell for cell in cells if cell]
    after = [cell for before, cell in pairwise(there) if before.sign == "="]
    return {cell.name: cell.cut for cell in [*(c for c in there if c.sign in SIGNS), *after]}


def _move(cell: Matrix, form: Form, direction: int, values: Values) -> dict[str, Any]:
    """The collective between this column and the next; a data-parallel MLP has one a layer."""
    number = 2 if form.data else direction
    calls = 2 if form.data and form.mlp else 1
    return {
        "goes": MOVES[cell.sign],
        "collective": form.collectives[number],
        "bytes": sent(**values)[number] / calls,
    }


def blocks(cut: str, shape: list[int], ranks: int) -> list[Block]:
    """The block of each rank."""
    rows, columns = shape
    if cut == "rows":
        size = rows // ranks
        return [(rank * size, (rank + 1) * size, 0, columns) for rank in range(ranks)]
    if cut == "columns":
        size = columns // ranks
        return [(0, rows, rank * size, (rank + 1) * size) for rank in range(ranks)]
    return [(0, rows, 0, columns)] * ranks
