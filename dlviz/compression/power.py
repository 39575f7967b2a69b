"""PowerSGD: each gradient matrix as the product of two thin ones, found by a step of the power
method; sums of factors are factors of the sum, so both are all-reduced.

    M (a, b), Q (b, r) of the step before:     P = M Q        all-reduced, made orthonormal
                                               Q = M^T P      all-reduced
    code of M: P Q^T, of r (a + b) numbers in place of a b

A rank's own code is P Q_own^T, the part of its matrix that lies in P's columns: what it lost is the
rest. Vectors, and matrices that factors would not make smaller, are summed as they are.

Source: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression
for Distributed Optimization", NeurIPS 2019. In PyTorch: powerSGD_hook.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dlviz.compression.compressor import Compressor, values_of
from dlviz.compression.packing import Code
from dlviz.counts import check_counts

Shape = tuple[int, int]


class Power(Compressor):
    """Factors of rank `rank` of each matrix of a bucket; of a plain vector as one nearly square
    matrix of ceil(sqrt n) rows, filled up with zeros.

    Cost: two all-reduces, together of 4 rank (a + b) bytes a matrix.
    """

    name = "power"
    linear = True
    codes = 2

    def __init__(self, rank: int = 1):
        check_counts(rank=rank)
        super().__init__(rank=rank)
        self._shapes: list[Sequence[int]] | None = None
        self._q: dict[int, torch.Tensor] = {}  # of each matrix, from the step before

    def for_bucket(self, shapes: Sequence[Sequence[int]], rank: int, number: int) -> Power:
        own = Power(self.options["rank"])
        own._shapes = [tuple(shape) for shape in shapes]
        return own

    def encode(self, flat: torch.Tensor) -> Code:
        rounds = self.rounds(flat)
        return [next(rounds), next(rounds)]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        matrices, _ = self._cut(torch.empty(n))
        left, right = code
        bases = [_orthonormal(p) for p in self._factors(left, matrices, 0)]
        vectors = left[len(left) - self._rest(n, matrices) :]
        rights = self._factors(right, matrices, 1)
        return self._joined(n, matrices, bases, rights, vectors)

    def nbytes(self, n: int) -> int:
        matrices, _ = self._cut(torch.empty(n))
        thin = sum(self.options["rank"] * (a + b) for _, a, b in matrices)
        return 4 * (thin + self._rest(n, matrices))

    def rounds(self, flat: torch.Tensor) -> Iterator[Any]:
        row = values_of(flat)
        n = len(row)
        matrices, vectors = self._cut(row)
        ms = [self._matrix(row, each) for each in matrices]
        ps = [m @ self._start(i, m) for i, m in enumerate(ms)]
        left = torch.cat([*(p.flatten() for p in ps), vectors])
        yield left
        bases = [_orthonormal(p) for p in self._factors(left, matrices, 0)]
        own = [m.T @ p for m, p in zip(ms, bases, strict=True)]
        right = torch.cat([torch.empty(0), *(q.flatten() for q in own)])
        yield right
        rights = self._factors(right, matrices, 1)
        self._q = dict(enumerate(q.clone() for q in rights))
        summed = left[len(left) - len(vectors) :]
        total = self._joined(n, matrices, bases, rights, summed)
        yield total, self._joined(n, matrices, bases, own, vectors)

    def _start(self, number: int, m: torch.Tensor) -> torch.Tensor:
        """The Q of the step before; at first random columns, the same on all ranks."""
        before = self._q.get(number)
        if before is None or len(before) != m.shape[1]:
            draws = torch.Generator().manual_seed(number)
            before = torch.randn(m.shape[1], self.options["rank"], generator=draws)
        return before

    def _cut(self, row: torch.Tensor) -> tuple[list[tuple[int, int, int]], torch.Tensor]:
        """(offset, a, b) of each matrix that factors make smaller, and all other values."""
        n, rank = len(row), self.options["rank"]
        if self._shapes is None:
            a = max(1, math.isqrt(n - 1) + 1) if n else 1
            b = -(-n // a)
            if n and rank > b:
                raise ValueError(f"rank={rank} is above {b}, of {n} values in {a} x {b}.")
            return ([(0, a, b)] if n else []), row[:0]
        matrices, others, at = [], [row[:0]], 0
        for shape in self._shapes:
            size = math.prod(shape)
            a = shape[0] if shape else 1
            b = size // a if a else 0
            if len(shape) > 1 and rank <= min(a, b) and rank * (a + b) < a * b:
                matrices.append((at, a, b))
            else:
                others.append(row[at : at + size])
            at += size
        if at != n:
            raise ValueError(f"{n} values do not fill a bucket of {at}: use another for them.")
        return matrices, torch.cat(others)

    def _matrix(self, row: torch.Tensor, matrix: tuple[int, int, int]) -> torch.Tensor:
        at, a, b = matrix
        values = row[at : at + a * b]
        return torch.nn.functional.pad(values, (0, a * b - len(values))).view(a, b)

    def _rest(self, n: int, matrices: list[tuple[int, int, int]]) -> int:
        """How many values are in no matrix."""
        return max(0, n - sum(a * b for _, a, b in matrices))

    def _factors(self, row: torch.Tensor, matrices: Any, side: int) -> list[torch.Tensor]:
        """The factors of all matrices: (a, rank) of `side` 0, (b, rank) of 1."""
        rank = self.options["rank"]
        lengths = [rank * matrix[1 + side] for matrix in matrices]
        parts = row[: sum(lengths)].split(lengths) if lengths else []
        return [part.view(-1, rank) for part in parts]

    def _joined(
        self, n: int, matrices: Any, left: list[Any], right: list[Any], vectors: torch.Tensor
    ) -> torch.Tensor:
        """The values for which factors and vectors stand."""
        row, at, taken = torch.empty(n), 0, 0
        for (begin, a, b), p, q in zip(matrices, left, right, strict=True):
            row[at:begin] = vectors[taken : taken + begin - at]
            taken += begin - at
            at = min(n, begin + a * b)
            row[begin:at] = (p @ q.T).flatten()[: at - begin]
        row[at:] = vectors[taken:]
        return row


def _orthonormal(p: torch.Tensor) -> torch.Tensor:
    """Columns of length 1, at right angles, that span those of `p`, (a, r)."""
    return torch.linalg.qr(p).Q
