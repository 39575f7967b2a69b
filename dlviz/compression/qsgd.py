"""QSGD: each value rounded, at random, to one of few levels of its bucket's norm.

    s levels, |v| the Euclidean norm of a bucket:   |v_i| / |v| * s = level + rest
    rounded up with probability `rest`, so that the mean of what is sent is v_i

    s = 1, |v| = 5      v_i = 3: 5 in 3 of 5 draws, else 0

Unbiased, whatever the number of levels; the price is variance, at most min(n/s^2, sqrt(n)/s) |v|^2.
With few levels that is more than |v|^2, and error feedback, which needs a code that loses less than
it is given, diverges.

Source: D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017; the code of few levels is its section 3.2.
"""

from __future__ import annotations

import math

import torch

from dlviz.compression import elias
from dlviz.compression.bits import pack_rows, rows_of_bytes, unpack_rows
from dlviz.compression.compressor import Random, bucketed, rows_of, values_of
from dlviz.compression.packing import Code
from dlviz.counts import check_counts


class QSGD(Random):
    """Sign and level in `bits` bits, s = 2^(bits-1) - 1 levels of the norm of each bucket of `per`
    values; or, with `elias`, gaps, signs and levels of those that are not 0 in Elias' integers.

    Cost: ceil(k bits / 8) + 4 bytes for a bucket of k; with `elias` at most that with 2 bits and
    those of s a value.
    """

    name = "qsgd"
    unbiased = True

    def __init__(self, bits: int = 4, per: int = 512, elias: bool = False, seed: int = 0):
        check_bits(bits)
        check_counts(per=per)
        super().__init__(seed=seed, bits=bits, per=per, elias=elias)
        self.fixed = not elias
        self.levels = 2 ** (bits - 1) - 1

    def encode(self, flat: torch.Tensor) -> Code:
        bits, per = self.options["bits"], self.options["per"]
        norms, packed, signed = [], [], []
        for rows in rows_of(values_of(flat), per):
            norm, level = rounded(rows, self.levels, self._draws)  # (buckets, 1), (buckets, k)
            norms.append(norm.flatten())
            if self.options["elias"]:
                signed.append(torch.where(rows < 0, -level, level).flatten())
            else:
                packed.append(pack_rows(with_sign(rows, level, bits), bits).flatten())
        if self.options["elias"]:
            packed = [elias.encode(torch.cat(signed) if signed else torch.empty(0))]
        none = torch.empty(0)
        return [torch.cat([none, *norms]), torch.cat([none.to(torch.uint8), *packed])]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        norms, packed = code
        bits, per = self.options["bits"], self.options["per"]
        if self.options["elias"]:
            levels = rows_of(elias.decode(packed, n), per)
        else:
            levels, width = [], math.ceil(per * bits / 8)
            for rows in rows_of_bytes(packed, n, per, width):
                k = per if n >= per and not levels else n % per
                levels.append(signed_levels(unpack_rows(rows, k, bits), bits))
        found = []
        for rows in levels:
            own, norms = norms[: len(rows), None], norms[len(rows) :]
            found.append((rows.float() * (own / self.levels)).flatten())
        return torch.cat([torch.empty(0), *found])

    def nbytes(self, n: int) -> int:
        each: int = self.options["bits"]
        if self.options["elias"]:
            each = 2 + elias.bits_of(self.levels)  # a gap of 1, the sign, the level
        return bucketed(n, self.options["per"], lambda k: 4 + math.ceil(k * each / 8))


def check_bits(bits: int) -> None:
    """Raise ValueError unless a sign and a level fit into `bits`."""
    check_counts(2, bits=bits)
    if bits > 8:
        raise ValueError(f"bits={bits!r} has to be a whole number from 2 to 8.")


def rounded(
    rows: torch.Tensor, levels: int, draws: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of each row, (rows, 1), and each value's level, (rows, k), rounded at random."""
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).float()
    share = rows.abs().mul_(levels / norm.clamp(min=torch.finfo(torch.float32).tiny))
    share += torch.rand(rows.shape, generator=draws)
    return norm, share.floor_().clamp_(max=levels)


def with_sign(rows: torch.Tensor, level: torch.Tensor, bits: int) -> torch.Tensor:
    """Sign, then level, in `bits` bits."""
    return level.to(torch.uint8) | ((rows < 0).to(torch.uint8) << (bits - 1))


def signed_levels(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """The levels with their signs."""
    sign, level = numbers >> (bits - 1), numbers & (2 ** (bits - 1) - 1)
    return torch.where(sign > 0, -level, level)
