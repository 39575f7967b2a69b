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


class Matrices:
    """Where the `parts` of a vector lie in it, and in its codes. Raises ValueError for a matrix
    with fewer rows or columns than the rank of the product."""

    def __init__(self, parts: list[Part], rank: int):
        for rows, columns in parts:
            if columns and rank > min(rows, columns):
                raise ValueError(
                    f"rank={rank} is above {min(rows, columns)}, the most that a matrix of "
                    f"{rows} x {columns} can have: use that or less."
                )
        self.parts = parts
        self.sizes = [rows * max(columns, 1) for rows, columns in parts]
        self.whole = sum(self.sizes)  # more values than the vector has where a square is filled up
        self.first = [rows * rank if columns else rows for rows, columns in parts]
        self.second = [rank * columns for _, columns in parts if columns]


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
        self._layouts: dict[int, Matrices] = {}  # by the number of values
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
        own._layout(own.length)
        return own

    def _layout(self, n: int) -> Matrices:
        """The matrices and vectors of n values."""
        if n not in self._layouts:
            rows = math.isqrt(n - 1) + 1
            self._layouts[n] = Matrices(self._bucket or [(rows, -(-n // rows))], self.rank)
        return self._layouts[n]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "starts": [q.clone() for q in self._starts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._starts = [q.clone() for q in state["starts"]]

    def rounds(self, v: torch.Tensor, out: torch.Tensor) -> Iterator[torch.Tensor]:
        values = self._cut(v)
        first = self._firsts(values)
        yield first
        ps, second = self._seconds(values, first)
        if out is not v:  # P is the sum's, and Q this rank's; vectors are sent as they are
            own = [m if m.dim() < 2 else p for m, p in zip(values, ps, strict=True)]
            self.subtract(v, [_row(own), second])
        yield second
        _, self._starts = self._split([first, second], len(v))
        self.decode_to([_row(ps), second], out)

    def _encode(self, flat: torch.Tensor) -> Code:
        """The code of one rank's values alone."""
        values = self._cut(flat)
        ps, second = self._seconds(values, self._firsts(values))
        code = [_row(ps), second]
        _, self._starts = self._split(code, len(flat))
        return code

    def decode(self, code: Code, n: int) -> torch.Tensor:
        whole = torch.empty(self._layout(n).whole)
        self.decode_to(code, whole)
        return whole[:n]

    def decode_to(self, code: Code, out: torch.Tensor) -> None:
        if not self._in_place(out):
            return super().decode_to(code, out)
        for part, p, q in self._products(out, code):
            part.copy_(p) if q is None else torch.mm(p, q.T, out=part)

    def subtract(self, v: torch.Tensor, code: Code) -> None:
        if not self._in_place(v):
            return super().subtract(v, code)
        for part, p, q in self._products(v, code):
            part.sub_(p) if q is None else part.addmm_(p, q.T, alpha=-1)

    def nbytes(self, n: int) -> int:
        return 4 * (sum(self._layout(n).first) + sum(self._layout(n).second))

    # -- parts -----------------------------------------------------------------------------------
    def _in_place(self, row: torch.Tensor) -> bool:
        """Whether the parts are views of `row`."""
        return row.dtype == torch.float32 and len(row) == self._layout(len(row)).whole

    def _cut(self, v: torch.Tensor) -> list[torch.Tensor]:
        """The matrices and vectors that `v` holds; what it lacks in a square is 0."""
        layout = self._layout(len(v))
        if len(v) < layout.whole:
            v = torch.nn.functional.pad(v, (0, layout.whole - len(v)))
        pieces = zip(v.float().split(layout.sizes), layout.parts, strict=True)
        return [piece.view(part) if part[1] else piece for piece, part in pieces]

    def _split(self, code: Code, n: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Each P, or vector, of the first factors, and each Q of the second."""
        layout = self._layout(n)
        firsts = zip(code[0].split(layout.first), layout.parts, strict=True)
        ps = [p.view(-1, self.rank) if columns else p for p, (_, columns) in firsts]
        return ps, [q.view(-1, self.rank) for row in code[1:] for q in row.split(layout.second)]

    def _products(self, row: torch.Tensor, code: Code) -> Iterator[Any]:
        """Each part of `row`, and its P and Q in the code, or its values and None."""
        ps, qs = self._split(code, len(row))
        rest = iter(qs)
        for part, p in zip(self._cut(row), ps, strict=True):
            yield part, p, next(rest) if part.dim() > 1 else None

    def _firsts(self, values: list[torch.Tensor]) -> torch.Tensor:
        """M Q of each matrix, and the vectors."""
        matrices = [v for v in values if v.dim() > 1]
        if [len(q) for q in self._starts] != [m.shape[1] for m in matrices]:
            drawn = (self.rng.standard_normal((m.shape[1], self.rank), "f4") for m in matrices)
            self._starts = [torch.from_numpy(q) for q in drawn]
        starts = iter(self._starts)
        return _row([v @ next(starts) if v.dim() > 1 else v for v in values])

    def _seconds(
        self, values: list[torch.Tensor], first: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Each P, or vector, with orthonormal columns, and all Q = M^T P."""
        ps, _ = self._split([first], sum(v.numel() for v in values))
        ps = [_orthonormal(p) if p.dim() > 1 else p for p in ps]
        return ps, _row([m.T @ p for m, p in zip(values, ps, strict=True) if m.dim() > 1])


def _row(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


def _orthonormal(p: torch.Tensor) -> torch.Tensor:
    """The columns of `p` made orthonormal, those of zeros too, else Q would stay 0."""
    if p.shape[1] == 1 and (norm := p.norm()):
        return p / norm  # the same, several times as fast
    return torch.linalg.qr(p)[0]
