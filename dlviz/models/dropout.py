"""Dropout whose mask depends on the place of a cell, not on the rank that holds it.

    cell (b, i, j) of a tensor      dropped, if hash(seed, site, step, b, i, j) < p

A mask from a random generator depends on how much was drawn before: the ranks that share a tensor
would not together draw the mask of a single process. Here each cell has its own hash, by its place
in the whole tensor. However the tensor is cut, by rows, tokens, heads or columns, the same cells
are dropped.

    whole   x . x x | . x x .        two ranks with two halves
    rank 0  x . x x                  its half begins at column 0
    rank 1            . x x .        its half begins at column 4: start={1: 4}

Source: the idea of a random number as a function of a counter is J. Salmon et al., "Parallel Random
Numbers: As Easy as 1, 2, 3", SC 2011; the hash is the finalizer of SplitMix64 (G. Steele et al.,
"Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). PyTorch's names: torch.nn.Dropout,
and torch.distributed.tensor's OffsetBasedRNGTracker, which gives DTensors masks of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

WHOLE: Mapping[int, int] = {}  # the start of a tensor that was not cut


def keep_mask(
    rate: float,
    shape: Sequence[int],
    seed: int,
    site: int,
    step: int,
    start: Mapping[int, int] = WHOLE,
) -> torch.Tensor:
    """The mask of the cells that dropout keeps, (*shape) of bool; each is dropped with probability
    `rate`. The tensor may be a part of a whole: `start` maps a dim to the place in the whole where
    the part begins, by default 0. `site` is the number of the dropout in its model.
    """
    cells = torch.zeros((), dtype=torch.int64)
    for number in (seed, site, step):
        cells = _mixed(cells + number)
    for dim, size in enumerate(shape):  # (B,), (B, n), (B, n, h): one hash per cell
        first = start.get(dim, 0)
        cells = _mixed(cells[..., None] + torch.arange(first, first + size))
    return cells >= int(rate * 2**64) - 2**63  # of numbers from -2^63 to 2^63 - 1


def _mixed(numbers: torch.Tensor) -> torch.Tensor:
    """Each int64 mapped to another, which looks random; no two to the same."""
    numbers = numbers + (0x9E3779B97F4A7C15 - 2**64)  # so that 0 does not stay 0
    numbers = (numbers ^ _down(numbers, 30)) * (0xBF58476D1CE4E5B9 - 2**64)  # modulo 2^64
    numbers = (numbers ^ _down(numbers, 27)) * (0x94D049BB133111EB - 2**64)
    return numbers ^ _down(numbers, 31)


def _down(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifted right, zeros from the left; torch's own shift repeats the sign."""
    return (numbers >> bits) & (2 ** (64 - bits) - 1)


class Dropout(nn.Module):
    """In training sets cells of a tensor to 0 with probability `rate`, and divides the others by
    1 - rate. `site` is its number in the model.

    `step` counts the forwards in training; set it for several forwards per step. `row` is the place
    of x's first row in the whole batch; set it for a part of the rows.
    """

    def __init__(self, rate: float, seed: int, site: int):
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(
                f"dropout={rate!r} is no share of the cells that leaves some: use 0 or more and "
                "less than 1."
            )
        self.rate, self.seed, self.site = rate, seed, site
        self.step = self.row = 0

    def forward(self, x: torch.Tensor, start: Mapping[int, int] = WHOLE) -> torch.Tensor:
        """`start`: where in the whole tensor the part x begins, by dim."""
        if not (self.training and self.rate):
            return x
        start = {0: self.row, **start}
        mask = keep_mask(self.rate, x.shape, self.seed, self.site, self.step, start).to(x.device)
        self.step += 1
        return x * mask / (1 - self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}, seed={self.seed}, site={self.site}"
