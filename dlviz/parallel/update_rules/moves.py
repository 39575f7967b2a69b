"""What moves a rank's parameters in one update.

    g ← g min(1, c / |g|)        clip=c, |g| the joint norm of all gradients
    η ← η_t                      lr_schedule=
    w ← rule(w, g)               a rule of dlviz, or a torch optimizer

The norm is that of the whole model, also where ranks hold parts of it. What clip and lr_schedule
are is in models/options.py.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dlviz.models.options import Rates, RateSchedule, check_clip, clipped, squares
from dlviz.parallel.update_rules.rule import Rule, Tensor

MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]
AnyRule = str | Rule | MakeOptimizer
AS_IN = "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"


class TorchRule:
    """A torch optimizer as a rule, made by a function of the parameters that it moves. One that
    looks at a tensor as a whole sees what this rank has of it."""

    state_tensors = 0  # unknown before the first step

    def __init__(self, make: MakeOptimizer):
        self.make = make
        self.optimizer: Any = None

    def bind(self, parameters: Sequence[Tensor]) -> None:
        """Make the optimizer. Raises ValueError unless it moves some of `parameters`, and needs no
        closure."""
        made: Any = self.make([*parameters])
        if not isinstance(made, torch.optim.Optimizer):
            raise ValueError(
                f"rule= gave a {type(made).__name__} where it needs a torch optimizer: give a "
                f"function as {AS_IN}."
            )
        own = {id(p) for p in parameters}
        if not own.issuperset(id(p) for group in made.param_groups for p in group["params"]):
            raise ValueError(
                "rule= gave an optimizer of other parameters than it was called with: let it move "
                f"those, as {AS_IN}."
            )
        closure = inspect.signature(made.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise ValueError(
                f"{type(made).__name__} computes gradients several times in one step, by a "
                "closure, and a strategy computes them once: use another optimizer."
            )
        self.optimizer = made

    @property
    def lr(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    @lr.setter
    def lr(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @property
    def nbytes(self) -> int:
        """What the optimizer's state takes."""
        state = [each for own in self.optimizer.state.values() for each in own.values()]
        return sum(each.nbytes for each in state if isinstance(each, torch.Tensor))

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Move `parameters`, in place, each against its gradient."""
        own = [p.grad for p in parameters]
        try:
            for p, g in zip(parameters, gradients, strict=True):
                p.grad = g
            self.optimizer.step()
        finally:
            for p, g in zip(parameters, own, strict=True):
                p.grad = g


class Moves:
    """What moves this rank's parameters: a rule, with what comes before it. `norm` of gradients is
    their joint norm, over the ranks where others hold some too. Raises ValueError for an invalid
    clip."""

    def __init__(self, rule: Any, clip: float | None = None, schedule: Rates | None = None):
        check_clip(clip)
        self.rule, self.clip = rule, clip
        self.norm: Callable[[Sequence[Tensor | None]], float] = lambda gs: squares(gs) ** 0.5
        self._schedule = schedule
        self.rates: RateSchedule | None = None  # once it is bound

    @property
    def lr(self) -> float:
        """The rate of the next update."""
        return self.rule.lr if self.rates is None else self.rates.rate

    @property
    def state_tensors(self) -> int:
        return getattr(self.rule, "state_tensors", 0)

    def bind(self, parameters: Sequence[Tensor]) -> None:
        """Make optimizer and scheduler, before the first update of `parameters`. A rank that moves
        none makes them too, so that all ranks refuse what is none."""
        parameters = parameters or [torch.zeros(1, requires_grad=True)]
        if isinstance(self.rule, TorchRule):
            self.rule.bind(parameters)
        if self._schedule is not None:
            optimizer = getattr(self.rule, "optimizer", None)
            self.rates = RateSchedule(self._schedule, getattr(self.rule, "lr", math.nan), optimizer)

    def clipped(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients, scaled where their joint norm is larger than `clip`."""
        if self.clip is None:
            return gradients
        return clipped(gradients, self.clip, self.norm(gradients))

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Take one update by gradients that are clipped already."""
        if self.rates is not None:
            rate = self.rates.rate
            if self.rates.is_own:
                self.rule.lr = rate
        self.rule.step(parameters, gradients)
        if self.rates is not None:
            self.rates.advance()
