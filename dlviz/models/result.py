"""What a training returns, whatever trains."""

from __future__ import annotations

import math
from typing import Any

import torch


class Result(dict[str, Any]):
    """What a `train` returns, by name or as attributes: `losses`, of each step before its update;
    `state`, the trained parameters and buffers on the CPU, by their names in the plain model;
    `steps`, how many were taken; `evaluations`, number of steps -> what `evaluate` returned; and
    what a strategy adds."""

    def __init__(
        self,
        losses: list[float],
        state: dict[str, torch.Tensor],
        evaluations: dict[int, Any],
        **more: Any,
    ):
        given = {"losses": losses, "state": state, "steps": len(losses), "evaluations": evaluations}
        super().__init__(given, **more)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this Result has {', '.join(self)}, and no {name}.") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        losses = self.losses or [math.nan]
        given = {name: repr(self[name]) for name in self}
        more = [
            f"{name}={text if len(text) < 60 else '...'}"
            for name, text in given.items()
            if name not in ("losses", "state", "steps")
        ]
        shown = f"loss {losses[0]:.4g} to {losses[-1]:.4g}", f"state of {len(self.state)} tensors"
        return f"<Result of {self.steps} steps: {', '.join([*shown, *more])}>"
