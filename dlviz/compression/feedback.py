"""Error feedback: what a code loses is added to the next vector.

    v = g + e            the gradient, and what has been lost so far
    e <- v - C(v)        what C's code of v does not stand for

Nothing is lost for good then: the codes of t steps add up to the gradients of t steps, less the
last e. That e stays bounded if C is a contraction, E|v - C(v)|^2 <= (1 - d)|v|^2 with d > 0: so of
top-k (d = k/n) and one_bit. QSGD with few levels is none. It loses more than it is given, and with
feedback e grows without end; it is unbiased, and needs none.

Sources: F. Seide et al., "1-Bit SGD", Interspeech 2014; S. P. Karimireddy et al., "Error Feedback
Fixes SignSGD and other Gradient Compression Schemes", ICML 2019.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch

from dlviz.compression.compressor import Compressor

GAUSSIAN = 512  # values on which a code's variance is measured
DRAWS = 20


class Feedback:
    """The residual e of one vector's codes by `compressor`; not `on`: always 0. Warns where it
    would grow without end."""

    def __init__(self, compressor: Compressor, on: bool = True):
        self.compressor, self.on = compressor, on
        self.residual: torch.Tensor | None = None
        if on:
            _warn(type(compressor), *compressor.options.items())

    def apply(self, flat: torch.Tensor) -> torch.Tensor:
        """v: `flat`, (n,), and what has been lost. Raises ValueError for another length."""
        if self.residual is None:
            return flat
        self._check(len(flat))
        return flat + self.residual.to(flat)

    def keep(self, v: torch.Tensor, decoded: torch.Tensor) -> None:
        """`decoded` is what the code of `v` stands for."""
        if self.on:
            self.residual = v - decoded.to(v)

    @property
    def norm(self) -> float:
        """Of the residual."""
        return 0.0 if self.residual is None else self.residual.norm().item()

    def state_dict(self) -> dict[str, torch.Tensor | None]:
        return {"residual": None if self.residual is None else self.residual.clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor | None]) -> None:
        """Go on with a saved residual; `apply` raises ValueError where it has another length."""
        found = state["residual"]
        if found is not None and self.residual is not None:
            self._check(len(found))
        self.residual = None if found is None else found.clone()

    def _check(self, n: int) -> None:
        if self.residual is not None and len(self.residual) != n:
            raise ValueError(
                f"a residual of {len(self.residual)} values does not fit a vector of {n}: it "
                "belongs to another model, or to other buckets."
            )


@lru_cache(maxsize=256)
def _warn(kind: type[Compressor], *options: tuple[str, Any]) -> None:
    by = kind(**dict(options))
    lost = 0.0 if by.linear else variance(by)
    if by.unbiased and lost > 1:
        warnings.warn(
            f"{by} loses {lost:.3g} times the square of what it is given: with feedback the loss "
            "grows from step to step. It is unbiased: use feedback=False, or more levels.",
            RuntimeWarning,
            stacklevel=4,
        )


def variance(compressor: Compressor, n: int = GAUSSIAN, draws: int = DRAWS) -> float:
    """E|v - C(v)|^2 / |v|^2 on `draws` Gaussian vectors of n values: 0 loses nothing, and below 1
    error feedback converges."""
    drawn, found = torch.Generator().manual_seed(0), []
    for _ in range(draws):
        v = torch.randn(n, generator=drawn)
        lost = v - compressor.decode(compressor.encode(v), n)
        found.append((lost.square().sum() / v.square().sum()).item())
    return sum(found) / len(found)
