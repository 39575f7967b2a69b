"""What all compressors share: a vector of values to a code, the list of tensors that is really
sent, and back.

    v (n,) float32  --encode-->  [bits (uint8), norms (float32), ...]  --decode-->  (n,) float32
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from dlviz.compression.packing import Code


class Compressor:
    """Made by `compression.make`; `options` as given there.

    unbiased    the mean of what a code stands for is the vector
    linear      codes may be added on the way: the sum of codes stands for the sum
    fixed       `nbytes(n)` is exact; else the most, as a code's size depends on its values
    codes       of a linear one: how many tensors are summed, one after the other
    """

    name = ""
    unbiased = linear = False
    fixed = True
    codes = 1

    def __init__(self, **options: Any):
        self.options = options

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options.items())})"

    def encode(self, flat: torch.Tensor) -> Code:
        """The code of `flat`, (n,) of floating point. Raises ValueError for other values, NaN and
        Inf."""
        raise NotImplementedError

    def decode(self, code: Code, n: int) -> torch.Tensor:
        """What a code of n values stands for: (n,) float32."""
        raise NotImplementedError

    def nbytes(self, n: int) -> int:
        """Bytes of the code of n values."""
        raise NotImplementedError

    def for_bucket(self, shapes: Sequence[Sequence[int]], rank: int, number: int) -> Compressor:
        """One of its own for bucket `number` of a rank, whose parameters have these shapes."""
        return copy.deepcopy(self)

    def rounds(self, flat: torch.Tensor) -> Iterator[Any]:
        """Of a linear one: yields `codes` tensors, each to be summed in place over the ranks, then
        the sum of all ranks' vectors and what this rank's code stands for in it."""
        (code,) = self.encode(flat)
        own = self.decode([code], len(flat))
        yield code
        yield self.decode([code], len(flat)), own


class Random(Compressor):
    """A compressor that draws: each rank and bucket from a generator of its own, since errors that
    are alike would not average out."""

    def __init__(self, seed: int = 0, **options: Any):
        super().__init__(seed=seed, **options)
        self._draws = _generator(seed, 0, 0)

    def for_bucket(self, shapes: Sequence[Sequence[int]], rank: int, number: int) -> Compressor:
        own = copy.copy(self)
        own._draws = _generator(self.options["seed"], 1 + rank, number)
        return own


def _generator(*seeds: int) -> torch.Generator:
    state = np.random.SeedSequence(seeds).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)


def values_of(flat: torch.Tensor) -> torch.Tensor:
    """The values as a row of float32 on the CPU. Raises ValueError for whole numbers, NaN and
    Inf."""
    if not flat.is_floating_point() or flat.dim() != 1:
        raise ValueError(
            f"a tensor of {flat.dtype} and shape {tuple(flat.shape)} has no code: give a vector of "
            "floating point."
        )
    row = flat.detach().to("cpu", torch.float32).contiguous()
    if not row.sum().isfinite() and not row.isfinite().all():
        raise ValueError("a vector with NaN or Inf in float32 has no code: scale or clip it.")
    return row


def rows_of(row: torch.Tensor, per: int) -> list[torch.Tensor]:
    """The values bucket by bucket: (full buckets, per), and (1, rest) where one is ragged."""
    full = len(row) // per * per
    found = [row[:full].view(-1, per), row[full:].view(1, -1)]
    return [rows for rows in found if rows.numel()]


def bucketed(n: int, per: int, nbytes: Any) -> int:
    """Bytes of full buckets of `per` values, and of the ragged last one."""
    full, rest = divmod(n, per)
    return full * nbytes(per) + (nbytes(rest) if rest else 0)
