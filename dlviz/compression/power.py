"""PowerSGD: a gradient matrix as a product of two thin ones, by one step of power iteration.

    M (rows, columns) ~ P Q^T      P (rows, rank) = orthogonalise(M Q),   Q (columns, rank) = M^T P

Both steps are linear in M: all-reduced, P and Q are those of the sum over ranks, whose code is thus
as large as one rank's. Q is the next step's start (a warm start), so over steps it follows the
strongest directions. P P^T M is a projection, a contraction, and is used with error feedback.

    rank r:   P_r = M_r Q,  all-reduce P, orthogonalise,  Q_r = M_r^T P,  all-reduce Q,  P Q^T

Source: T. Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", NeurIPS 2019, algorithm 1. In PyTorch: `powerSGD_hook`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dlviz.compression.compressor import Code, Compressor
from dlviz.counts import check_counts

Part = tuple[int, int]  # rows and columns; of what is sent as it is, its size and 0


class Power(Compressor):
    """Products of `rank`. Of a bucket each weight is a matrix (rows, the rest), and its vectors are
    sent as they are; a vector alone is taken as one nearly square matrix of ceil(sqrt n) rows."""

    name = "power"
    linear = True
    codes = 2

    def __init__(self, rank: int = 1, seed: int = 0):
        check_counts(rank=rank)
        super().__init__(rank=rank, seed=seed)
        self.rank = rank
        self._bucket: list[Part] = []
        self._starts: list[torch.Tensor] = []  # the last Q of each part, (columns, rank)

    def for_bucket(self, shapes: Sequence[Sequence[int]], rank: int, index: int) -> Power:
        """As of every compressor, but all ranks start from the same Q. Raises ValueError for a
        matrix with fewer rows or columns than the rank of the product."""
        own = super().for_bucket(shapes, 0, index)
        assert isinstance(own, Power) and own.length is not None
        if any(len(shape) > 1 for shape in shapes):
            own._bucket = [
                (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (math.prod(shape), 0)
                for shape in shapes
            ]
        own._parts(own.length)
        return own

    def _parts(self, n: int) -> list[Part]:
        """The matrices and vectors of n values."""
        rows = math.isqrt(n - 1) + 1
        parts = self._bucket or [(rows, -(-n // rows))]
        for rows, columns in parts:
            if columns and self.rank > min(rows, columns):
                raise ValueError(
                    f"rank={self.rank} is above {min(rows, columns)}, the most that a matrix of "
                    f"{rows} x {columns} can have: use that or less."
                )
        return parts

    def rounds(self, flat: torch.Tensor) -> Iterator[Any]:
        n, values = flat.numel(), self._cut(self.checked(flat).float())
        sent = self._multiplied(values)
        first = _row(sent)
        yield first
        ps = self._orthogonal(first, n)
        second = _row([m.T @ p for m, p in zip(values, ps, strict=True) if m.dim() > 1])
        own = [_row([v if v.dim() < 2 else p for v, p in zip(values, ps, strict=True)])]
        own.append(second.clone())
        yield second
        self._starts = [q.clone() for q in self._split(second, n, 1)]
        yield self.decode([_row(ps), second], n), self.decode(own, n)

    def _encode(self, flat: torch.Tensor) -> Code:
        """The code of one rank's values alone."""
        values = self._cut(flat)
        ps = self._orthogonal(_row(self._multiplied(values)), flat.numel())
        second = _row([m.T @ p for m, p in zip(values, ps, strict=True) if m.dim() > 1])
        self._starts = self._split(second.clone(), flat.numel(), 1)
        return [_row(ps), second]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        ps, qs = (self._split(row, n, which) for which, row in enumerate(code))
        return _row([p @ q.T if p.dim() > 1 else p for p, q in zip(ps, qs, strict=True)])[:n]

    def nbytes(self, n: int) -> int:
        parts = self._parts(n)
        return 4 * sum(self.rank * (rows + columns) if columns else rows for rows, columns in parts)

    # -- parts -----------------------------------------------------------------------------------
    def _cut(self, v: torch.Tensor) -> list[torch.Tensor]:
        """The matrices and vectors that `v` holds; what it lacks in a square is 0."""
        parts = self._parts(len(v))
        sizes = [rows * max(columns, 1) for rows, columns in parts]
        v = torch.nn.functional.pad(v, (0, sum(sizes) - len(v)))
        pieces = zip(v.split(sizes), parts, strict=True)
        return [piece.view(part) if part[1] else piece for piece, part in pieces]

    def _multiplied(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """M Q of each matrix, and the vectors."""
        shapes = [v.shape[1] if v.dim() > 1 else 0 for v in values]
        if [len(q) for q in self._starts] != shapes:
            drawn = (self.rng.standard_normal((rows, self.rank), "f4") for rows in shapes)
            self._starts = [torch.from_numpy(q) for q in drawn]
        pairs = zip(values, self._starts, strict=True)
        return [v @ q if v.dim() > 1 else v for v, q in pairs]

    def _orthogonal(self, first: torch.Tensor, n: int) -> list[torch.Tensor]:
        """Each P with orthonormal columns, and the vectors."""
        return [torch.linalg.qr(p)[0] if p.dim() > 1 else p for p in self._split(first, n, 0)]

    def _split(self, row: torch.Tensor, n: int, which: int) -> list[torch.Tensor]:
        """The factors in a code: each P, or vector, of the first one, each Q of the second."""
        parts = self._parts(n)
        sizes = [self.rank * part[which] if part[1] else (part[0], 0)[which] for part in parts]
        pieces = zip(row.split(sizes), parts, strict=True)
        return [p.view(-1, self.rank) if part[1] or which else p for p, part in pieces]


def _row(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])
