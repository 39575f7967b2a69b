"""One bit a value and two means a block; error feedback; all ranks' exchange in one process.

    bits    uint8, 8 values a byte, a 1 for 0 and above             ceil(n/8) bytes
    means   float32, (blocks, 2): of the values below 0, of others  8 bytes a block

`rendered` makes the means of all ranks, or those that a known mistake would make: hints are
computed from that. Symbols: n values, p ranks, g a gradient, e a residual, v what is coded, d
what its code holds.

Seide et al., 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
Training of Speech DNNs, Interspeech 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Code = tuple[torch.Tensor, torch.Tensor]
Values = np.ndarray  # float64, (n,)
ORDERS = ("big", "little")  # of the bits in a byte


class Coder:
    """Correct codes for blocks of `per` values, whatever the student's own are."""

    def __init__(self, per: int, order: Any = "little"):
        self.per = per
        self._order = order

    def encode(self, v: torch.Tensor) -> Code:
        """Raises ValueError if `v` is no row of float64."""
        if v.ndim != 1 or v.dtype != torch.float64:
            shape = f"{tuple(v.shape)} of {str(v.dtype).removeprefix('torch.')}"
            raise ValueError(f"encode takes one row of float64 numbers, and v has shape {shape}")
        values = v.detach().numpy()
        bits = np.packbits(values >= 0, bitorder=self._order)
        return torch.from_numpy(bits), torch.from_numpy(means_of(values, self.per))

    def decode(self, bits: torch.Tensor, means: torch.Tensor, n: int) -> torch.Tensor:
        """The n values, in float64. Raises ValueError if this is no code of n values."""
        sizes = [each.numel() for each in (bits, means)]
        if sizes != [each.numel() for each in self.empty(n)]:
            found = f"{sizes[0]} bytes of bits and {sizes[1]} means"
            raise ValueError(f"decode got {found}, which is no code of {n} values")
        ones = np.unpackbits(bits.numpy(), count=n, bitorder=self._order)
        return torch.from_numpy(looked_up(ones, means.numpy().reshape(-1, 2), self.per))

    def empty(self, n: int) -> Code:
        """Two tensors into which the code of n values can be received."""
        return (
            torch.zeros(-(-n // 8), dtype=torch.uint8),
            torch.zeros(-(-n // self.per), 2, dtype=torch.float32),
        )


def means_of(values: Values, per: int) -> np.ndarray:
    """Of each block, in float32, (blocks, 2); 0 for a side without values."""
    starts = np.arange(0, len(values), per)
    sides = [values < 0, values >= 0]
    sums = [np.add.reduceat(np.where(side, values, 0.0), starts) for side in sides]
    counts = [np.add.reduceat(side.astype(float), starts) for side in sides]
    return (np.stack(sums, 1) / np.maximum(np.stack(counts, 1), 1)).astype(np.float32)


def looked_up(ones: np.ndarray, means: np.ndarray, per: int) -> Values:
    """The mean that each value's bit stands for."""
    return means[np.arange(len(ones)) // per, ones.astype(int)].astype(float)


def decoded(values: Values, per: int) -> Values:
    """What the code of the values holds."""
    return looked_up(values >= 0, means_of(values, per), per)


def code_bytes(n: int, per: int) -> int:
    return -(-n // 8) + 8 * -(-n // per)


# -- error feedback, and the mistakes in it --------------------------------------------------------


@dataclass(frozen=True)
class ResidualRule:
    """What is coded of a gradient and a residual, and the next residual of these, v and d."""

    hint: str
    v: Callable[..., Values] = lambda g, e: g + e
    after: Callable[..., Values] = lambda g, e, v, d: v - d


RIGHT = ResidualRule("")
WRONG = (
    ResidualRule(
        "no residual is ever used: each step codes the gradient alone. If the line that stores the "
        "residual begins with `residual =`, it gives a new tensor that name. Who holds the old "
        "one?",
        v=lambda g, e: g,
        after=lambda g, e, v, d: e,
    ),
    ResidualRule(
        "the residual is right, but what is coded is the gradient without it. What should the "
        "loss of one step be added to?",
        v=lambda g, e: g,
    ),
    ResidualRule(
        "the residual is added twice before the coding: how often was that part lost?",
        v=lambda g, e: g + 2 * e,
    ),
    ResidualRule(
        "the residual is fed back twice: v contains the old one already, so what replaces it is "
        "only the loss of v, and nothing is added to it.",
        after=lambda g, e, v, d: e + v - d,
    ),
    ResidualRule(
        "the new residual is the gradient minus what was decoded. Which values were coded, the "
        "gradient's or v?",
        after=lambda g, e, v, d: g - d,
    ),
    ResidualRule(
        "the residual has the wrong sign: is it what was lost, or what was sent too much?",
        after=lambda g, e, v, d: d - v,
    ),
)


# -- all ranks in one process ----------------------------------------------------------------------


@dataclass(frozen=True)
class TwoEnds:
    """Feedback at both ends, against what a rank's residual is computed (its "own" code,
    or the "sum" or "mean" that comes back; or it is "averaged" over the ranks), which ends have one
    residual for all buckets, whether the mean is coded, and the divisor: p to this power."""

    sent: ResidualRule = RIGHT
    owned: ResidualRule = RIGHT
    against: str = "own"
    shared: str = ""  # "sent", "owned" or "both"
    coded: bool = True
    power: int = 1


def rendered(
    given: Sequence[Sequence[np.ndarray]], per: int, how: TwoEnds | None = None
) -> list[list[Values]]:
    """The means, [step][bucket], of gradients [step][bucket] of shape (p, n)."""
    how = how or TwoEnds()
    p = len(given[0][0])
    residuals: dict[Any, np.ndarray] = {}
    return [
        [_averaged(own, bucket, p, per, how, residuals) for bucket, own in enumerate(step)]
        for step in given
    ]


def _averaged(
    g: np.ndarray, bucket: int, p: int, per: int, how: TwoEnds, residuals: dict[Any, np.ndarray]
) -> Values:
    def coded(values: Values) -> Values:
        return np.concatenate([decoded(chunk, per) for chunk in np.array_split(values, p)])

    rank_key, owner_key = (
        (end, 0 if how.shared in (end, "both") else bucket) for end in ("sent", "owned")
    )
    e = residuals.get(rank_key, np.zeros_like(g))
    v = how.sent.v(g, e)  # (p, n)
    d = np.stack([coded(each) for each in v])
    mean = d.sum(axis=0) / p**how.power
    owned = residuals.get(owner_key, np.zeros_like(mean))
    total = how.owned.v(mean, owned)
    result = coded(total) if how.coded else total
    residuals[owner_key] = how.owned.after(mean, owned, total, result)
    lost = {"sum": p * result, "mean": result}.get(how.against, d)
    after = how.sent.after(g, e, v, lost)
    residuals[rank_key] = after.mean(axis=0) + 0 * after if how.against == "averaged" else after
    return result
