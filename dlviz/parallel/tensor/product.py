"""The block of y = x Wᵀ that this rank computes, and where it lies in the whole y.

    column-parallel ("partition output")     row-parallel ("reduce output")
    x (B, k)   W (n/t, k)   y (B, n/t)       x (B, k/t)   W (n, k/t)   y (B, n), a partial sum

Each product is a span of kind "phase", whose fields `layer`, `x`, `w` and `y` say which cells of
the whole matrices the rank holds, "[0:64, 512:1024] of (64, 2048)", and of how many partial sums
its y is one. `dlviz.analysis.products` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from dlviz.cluster import Comm

Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


class Entered(NamedTuple):
    """The whole input of column-parallel layers, and the function that multiplies it."""

    whole: torch.Tensor
    linear: Linear = nn.functional.linear


class Product(nn.Module):
    """This rank's part of one product; `cut` is the dim of W (n, k), 0 or 1, along which it is cut
    over the ranks of `comm`."""

    def __init__(self, comm: Comm, cut: int):
        super().__init__()
        self.comm = comm
        self.cut = cut
        self.layer = ""  # its name
        self._places: dict[tuple[int, ...], dict[str, str]] = {}  # by the shape of x

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        linear: Linear = nn.functional.linear,
    ) -> torch.Tensor:
        if x.shape not in self._places:
            self._places[x.shape] = self._place(x, weight)
        with self.comm.span("phase", f"product {self.layer}".strip(), **self._places[x.shape]):
            return linear(x, weight, bias)

    def _place(self, x: torch.Tensor, weight: torch.Tensor) -> dict[str, str]:
        """The fields of the span. Raises ValueError for an x that does not fit."""
        comm, (*rows, width), (outputs, inputs) = self.comm, x.shape, weight.shape
        if width != inputs:
            share = f"this rank's part of {inputs * comm.size}" if self.cut else "all there are"
            raise ValueError(
                f"rank {comm.members[comm.rank]} gave {self.layer or 'a layer'} an input of "
                f"{width} columns: it takes {inputs}, {share}."
            )
        last, partial = len(rows), f", summand {comm.rank + 1} of {comm.size}"
        return {
            "layer": self.layer,
            "x": self._cells((*rows, inputs), last if self.cut else None),
            "w": self._cells((outputs, inputs), self.cut),
            "y": self._cells((*rows, outputs), None) + partial
            if self.cut
            else self._cells((*rows, outputs), last),
        }

    def _cells(self, part: Sequence[int], cut: int | None) -> str:
        """This rank's cells of a tensor that is cut along dim `cut`."""
        start = [self.comm.rank * size if dim == cut else 0 for dim, size in enumerate(part)]
        whole = [self.comm.size * size if dim == cut else size for dim, size in enumerate(part)]
        cells = ", ".join(f"{a}:{a + size}" for a, size in zip(start, part, strict=True))
        return f"[{cells}] of ({', '.join(map(str, whole))})"
