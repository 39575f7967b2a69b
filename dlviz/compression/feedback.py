"""Error feedback: what a code loses is added to the next vector, so nothing is lost, only late.

    v = g + e        e <- v - C(v)        sum of C(v) over t steps = sum of g - the last e

It needs a contraction, E|v - C(v)|^2 <= (1 - delta) |v|^2 with delta > 0: true of top-k
(delta = k/n), one bit and PowerSGD. Where the variance is above |v|^2, as of QSGD with few levels,
e grows from step to step, and training diverges.

Sources: F. Seide et al., "1-Bit Stochastic Gradient Descent ...", Interspeech 2014; S. P.
Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML
2019.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from dlviz.compression.coding import stored_variance
from dlviz.compression.compressor import Code, Compressor


class Feedback:
    """What the codes of one vector, of one bucket on one rank, have lost so far. With `on` False
    nothing is added. Warns where feedback would make the residual grow."""

    def __init__(self, compressor: Compressor, on: bool = True):
        self.compressor, self.on = compressor, on
        self.residual: torch.Tensor | None = None
        if on and not compressor.linear:
            lost = stored_variance(type(compressor), tuple(compressor.options.items()))
            if lost > 1:
                warnings.warn(
                    f"{compressor} loses {lost:.3g} |v|² on Gaussian values: with error feedback, "
                    "which needs less than 1, its residual grows. Use feedback=False, or more bits "
                    "or smaller buckets.",
                    stacklevel=2,
                )

    def apply(self, flat: torch.Tensor) -> torch.Tensor:
        """v = flat + e, (n,), in the residual's memory; `flat` itself if not on. Raises ValueError
        for another n than before."""
        if not self.on:
            return flat
        if self.residual is None:
            self.residual = torch.zeros_like(flat)
        if len(self.residual) != len(flat):
            raise ValueError(
                f"a residual of {len(self.residual)} values cannot be added to {len(flat)}: it is "
                "of another model or another cut into buckets."
            )
        self.residual += flat
        return self.residual

    def keep(self, code: Code) -> None:
        """e <- v - what the code of v stands for."""
        if self.residual is not None:
            self.compressor.subtract(self.residual, code)

    @property
    def norm(self) -> float:
        """|e|, 0 before the first step."""
        return 0.0 if self.residual is None else float(self.residual.norm())

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "length": self.compressor.length}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a saved residual. Raises ValueError for one of another length."""
        saved, own = (state["length"], state["residual"]), (self.compressor.length, self.residual)
        lengths = [(a, b) for a, b in ((saved[0], own[0]),) if a is not None and b is not None]
        if saved[1] is not None and own[1] is not None:
            lengths.append((len(saved[1]), len(own[1])))
        for theirs, ours in lengths:
            if theirs != ours:
                raise ValueError(
                    f"the saved residual is of {theirs} values and this one of {ours}: it is of "
                    "another model or another cut into buckets."
                )
        self.residual = None if saved[1] is None else saved[1].clone()
