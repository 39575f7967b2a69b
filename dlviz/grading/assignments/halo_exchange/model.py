"""A convolution over an image whose rows are cut over ranks, computed in one process.

    x (N, C, H, W), cut along H      y (N, F, H', W'), cut along H'; of a cut, rank r has block r

A rank needs the rows that the windows of its rows of y read. A program's result is linear in the
rows, so it is explained as a sum of parts, each so many times (`times`): the rank's own rows,
those of each other rank, those of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

Pair = tuple[int, int]  # the first row, and the one behind the last
SAMPLES, CHANNELS, FILTERS, WIDTH = 2, 2, 3, 6
BYTES = 8  # of a float64
ROW = BYTES * SAMPLES * CHANNELS * WIDTH  # bytes of a row of x
NEAR = 1e-9


def blocks(length: int, parts: int) -> list[Pair]:
    """The blocks that torch.tensor_split makes."""
    sizes = [len(part) for part in torch.empty(length).tensor_split(parts)]
    return [*pairwise(accumulate(sizes, initial=0))]


@dataclass(frozen=True)
class Geometry:
    """A kernel over an image of so many rows."""

    rows: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    @property
    def span(self) -> int:
        """The rows from the first to the last that a window reads."""
        return 1 + self.dilation * (self.kernel - 1)

    @property
    def rows_out(self) -> int:
        return 1 + (self.rows + 2 * self.padding - self.span) // self.stride

    def reads(self, lo: int, hi: int) -> Pair:
        """The input rows that output rows lo to hi - 1 read, unclipped."""
        begins = [i * self.stride - self.padding for i in (lo, hi - 1)]
        return begins[0], begins[1] + self.span

    def weight_like(self) -> list[int]:
        return [FILTERS, CHANNELS, self.kernel, self.kernel]


class Conv:
    """What a rank does alone: torch's convolution, without padding above and below."""

    def __init__(self, kernel: int, stride: int, dilation: int, padding: int):
        self.kernel, self.stride = kernel, stride
        self.dilation, self.padding = dilation, padding

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """y (N, F, rows, width) of x (N, C, rows, width) and the weight (F, C, K, K)."""
        beside = (0, self.padding)  # no zeros in the direction that is cut
        return torch.nn.functional.conv2d(x, weight, None, self.stride, beside, self.dilation)

    def backward(
        self, x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of x and of the weight, from that of y. Raises ValueError if these rows of
        x do not make those of y."""
        with torch.enable_grad():
            given = [each.detach().requires_grad_() for each in (x, weight)]
            y = self.forward(*given)
            if y.shape != dy.shape:
                rows = f"{x.shape[2]} rows of x make {y.shape[2]} of y"
                raise ValueError(f"backward: {rows}, and dy has {dy.shape[2]}.")
            dx, dw = torch.autograd.grad(y, given, dy)
        return dx, dw


# -- all ranks in one process ----------------------------------------------------------------------


def common(one: Pair, other: Pair) -> range:
    return range(max(one[0], other[0]), min(one[1], other[1]))


def window(image: torch.Tensor, need: Pair, only: Pair | None = None) -> torch.Tensor:
    """Those rows of an image (N, C, H, W), with zeros outside of it, or of its rows `only`."""
    found = image.new_zeros(*image.shape[:2], need[1] - need[0], image.shape[3])
    for row in common(need, only or (0, image.shape[2])):
        found[:, :, row - need[0]] = image[:, :, row]
    return found


def returned(g: torch.Tensor, need: Pair, own: Pair) -> torch.Tensor:
    """What the gradient of the rows that a rank needs says of the rows that another one has."""
    return window(g, (own[0] - need[0], own[1] - need[0]))


def times(seen: torch.Tensor, parts: Sequence[torch.Tensor]) -> list[float] | None:
    """How often each part is in a tensor that is their sum; None if it is no such sum. A part of
    zeros is in it once."""
    if any(seen.shape != part.shape for part in parts) or not seen.isfinite().all():
        return None
    live = [i for i, part in enumerate(parts) if part.any()]
    if not live:
        return [1.0] * len(parts) if not seen.any() else None
    columns = torch.stack([parts[i].flatten() for i in live], 1)
    found = torch.linalg.lstsq(columns, seen.reshape(-1, 1), driver="gelsd").solution
    if not near(columns @ found, seen.reshape(-1, 1)):
        return None
    counts = [1.0] * len(parts)
    for i, count in zip(live, found.flatten().tolist(), strict=True):
        counts[i] = round(count, 6)
    return counts


def near(seen: torch.Tensor, due: torch.Tensor) -> bool:
    return seen.shape == due.shape and torch.allclose(seen, due, rtol=0, atol=NEAR)
