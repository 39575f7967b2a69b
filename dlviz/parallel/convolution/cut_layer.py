"""What all layers of a net that is cut have in common."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from dlviz.cluster import Mesh
from dlviz.parallel.convolution.checks import Shape
from dlviz.parallel.convolution.distribution import Block, Cut, Distribution
from dlviz.parallel.convolution.windows import grid


class HeldBlock(NamedTuple):
    """Which block of a whole parameter or buffer a rank has. `copies`: how many ranks have it;
    `first`: this is the first of them."""

    block: Block
    shape: Shape
    copies: int
    first: bool

    @classmethod
    def of(cls, mesh: Mesh, axes: Sequence[str], block: Block, whole: torch.Tensor) -> HeldBlock:
        """The block of a tensor that is cut over `axes`."""
        others = [axis for name, axis in vars(mesh).items() if name not in axes]
        first = all(axis.rank == 0 for axis in others)
        return cls(block, tuple(whole.shape), prod(axis.size for axis in others), first)


class CutLayer(nn.Module):
    """A layer of a net that is cut. Called with this rank's block of its input and the shape of the
    whole input, it gives this rank's block of its output. It takes its input under the distribution
    `takes` and leaves its output under `gives`; `held` says which blocks its parameters and buffers
    are."""

    def __init__(
        self,
        mesh: Mesh,
        takes: Distribution,
        gives: Distribution,
        name: str,
        *more: Any,
    ):
        super().__init__(*more)
        for each in (takes, gives):
            each.check(vars(mesh))
        self.mesh, self.takes, self.gives, self.name = mesh, takes, gives, name
        if len(takes.H) == len(takes.W) == 1:  # now, as making it takes a collective
            grid(getattr(mesh, takes.H[0]), getattr(mesh, takes.W[0]))
        self.held: dict[str, HeldBlock] = {}

    def outputs(self, shape: Shape) -> Shape:
        """The shape of the whole output, of a whole input of `shape`. Raises ValueError for an
        input that does not fit."""
        return shape

    def cuts(self, shape: Shape) -> dict[str, Cut | None]:
        """The Cuts of rows and columns of an input of `shape`; None where they are whole."""
        found = {}
        for name, axes, length in zip(
            ("height", "width"), (self.takes.H, self.takes.W), shape[2:], strict=True
        ):
            found[name] = Cut(getattr(self.mesh, axes[0]), length) if axes else None
        return found
