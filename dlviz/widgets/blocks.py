"""Which block of each matrix a rank has, for the explorer of tensor parallelism to draw.

    forward   X          W   =   Y  -- all-reduce -->  Y        a rank's color fills its block;
    backward  dX        dW      dY                              what all have lies in sheets

A gradient lies below its matrix. Where a collective changes who has what, the matrix is drawn
before and after. Before a run the blocks follow from the form; those of a run are what its ranks
had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlviz.widgets.forms import FORMS, ITEMSIZE, WAYS, Values, sent

Block = tuple[int, int, int, int]  # rows from, to, columns from, to
Blocks = Mapping[str, list[Block]]  # of a matrix, by rank


@dataclass(frozen=True)
class Cell:
    """A matrix in the picture: `cut` is "rows", "columns", "whole" or "sum", which is a summand of
    the whole matrix on each rank; `sign` comes after it."""

    name: str
    cut: str
    sign: str = ""


def _row(*cells: str) -> tuple[Cell | None, ...]:
    """`"X rows ×"` as a cell; "" as none."""
    return tuple(Cell(*cell.split()) if cell else None for cell in cells)


# Of each form the matrices of the forward and, below each its gradient, those of the backward; a
# collective lies between two columns, and says in which direction it goes.
PICTURES: dict[str, tuple[tuple[Cell | None, ...], tuple[Cell | None, ...]]] = {
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
GRADIENTS = {
    False: {"dX": "dY·Wᵀ", "dW": "Xᵀ·dY"},
    True: {"dX": "dZ·W₁ᵀ", "dW₁": "Xᵀ·dZ", "dZ": "dY·W₂ᵀ", "dW₂": "GELU(Z)ᵀ·dY"},
}
DIMS = {"X": ("batch", "inputs"), "W": ("inputs", "outputs"), "Y": ("batch", "outputs")}
MLP_DIMS = {
    "X": ("batch", "inputs"), "W₁": ("inputs", "outputs"), "Z": ("batch", "outputs"),
    "W₂": ("outputs", "inputs"), "Y": ("batch", "inputs"),
}  # fmt: skip


def picture(values: Values, of_run: Blocks | None = None) -> list[list[dict[str, Any] | None]]:
    """The matrices of the forward and of the backward, in columns; the blocks of X, W and Y are
    those `of_run` where there is one, in place of the form's."""
    form, ranks = FORMS[values["form"]], values["ranks"]
    dims = MLP_DIMS if form.mlp else DIMS
    nbytes = dict(zip(WAYS, sent(**values), strict=True))
    share = len(dims) // 2 if form.data else 1  # calls of the collective
    rows = []
    for way, cells in zip(WAYS, PICTURES[values["form"]], strict=False):
        told: list[dict[str, Any] | None] = []
        for cell in cells:
            if cell is None:
                told.append(None)
                continue
            matrix = cell.name.removeprefix("d")
            shape = [values[dim] for dim in dims[matrix]]
            own = (of_run or {}).get(f"{matrix} {cell.cut}")
            step = "gradient sync" if form.data else way
            told.append(
                {
                    "name": cell.name,
                    "shape": shape,
                    "dims": dims[matrix],
                    "cut": cell.cut,
                    "sign": cell.sign if cell.sign in ("×", "=") else "",
                    "blocks": own or blocks(cell.cut, shape, ranks),
                    "made": "" if way == "forward" else GRADIENTS[form.mlp].get(cell.name, ""),
                    **(
                        {
                            "goes": 1 if cell.sign == "→" else -1,
                            "collective": form.collectives[WAYS.index(step)],
                            "bytes": nbytes[step] / share,
                        }
                        if cell.sign in ("→", "←")
                        else {}
                    ),
                }
            )
        rows.append(told)
    return rows


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
