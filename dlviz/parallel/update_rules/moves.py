"""What moves a rank's parameters in one update.

    g ← g min(1, c / |g|)        clip=c, |g| the joint norm of all gradients
    η ← η_t                      lr_schedule=
    w ← rule(w, g)               a rule of dlviz, or a torch optimizer

The norm is that of the whole model, also where ranks hold parts of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dlviz.parallel.update_rules.rule import Rule, Tensor

MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]
AnyRule = str | Rule | MakeOptimizer
Rates = Callable[[Any], Any]  # the number of an update -> its rate, or an optimizer -> a scheduler
AS_IN = "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"


class TorchRule:
    """A torch optimizer as a rule, made by a function of the parameters that it moves. One that
    looks at a tensor as a whole sees what this rank has of it."""

    state_tensors = 0  # unknown before the first step

    def __init__(self, make: MakeOptimizer):
        self._make = make
        self.optimizer: Any = None

    def bind(self, parameters: Sequence[Tensor]) -> None:
        """Make the optimizer. Raises ValueError unless it moves some of `parameters`, and needs no
        closure."""
        made: Any = self._make([*parameters])
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
        if clip is not None and not (isinstance(clip, int | float) and clip > 0):
            raise ValueError(f"clip={clip!r} leaves no gradient: use a norm above 0, or None.")
        self.rule, self.clip = rule, clip
        self.norm: Callable[[Sequence[Tensor | None]], float] = lambda gs: squares(gs) ** 0.5
        self._schedule = schedule
        self._scheduler: Any = None
        self._shadow: Any = None  # has the rate of a scheduler, where the rule is no optimizer
        self.sets_rates = False  # whether a function gives the rate of each update
        self._updates = 0

    @property
    def lr(self) -> float:
        """The rate of the next update."""
        if self._shadow is not None:
            return self._shadow.param_groups[0]["lr"]
        if not self.sets_rates:
            return self.rule.lr
        assert self._schedule is not None
        rate = self._schedule(self._updates)
        if not (isinstance(rate, int | float) and 0 <= rate < math.inf):
            raise ValueError(
                f"lr_schedule={rate!r} on update {self._updates} is no rate: return 0 or more."
            )
        return float(rate)

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
            self._bind_schedule(self._schedule)

    def clipped(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients, scaled where their joint norm is larger than `clip`, as by torch's
        clip_grad_norm_."""
        if self.clip is None:
            return gradients
        factor = min(1.0, self.clip / (self.norm(gradients) + 1e-6))
        return gradients if factor == 1 else [g if g is None else g * factor for g in gradients]

    def _bind_schedule(self, schedule: Any) -> None:
        needs = (
            "it needs a function of the update's number, from 0, that returns its rate, or one "
            "that makes a torch scheduler of an optimizer"
        )
        if not callable(schedule):
            raise ValueError(f"lr_schedule={schedule!r} is no function: {needs}.")
        try:
            first = schedule(0)
        except (TypeError, AttributeError) as error:  # torch's: 0 is no optimizer
            optimizer = getattr(self.rule, "optimizer", None)
            if optimizer is None:
                cell = torch.zeros(1, requires_grad=True)
                optimizer = self._shadow = torch.optim.SGD([cell], lr=self.rule.lr)
            try:
                self._scheduler = schedule(optimizer)
            except (TypeError, AttributeError):
                raise ValueError(f"lr_schedule= failed on update 0 ({error}): {needs}.") from error
            first = None
        known = isinstance(self._scheduler, LRScheduler) or isinstance(first, int | float)
        if not known or isinstance(self._scheduler, ReduceLROnPlateau):
            made = type(first if self._scheduler is None else self._scheduler).__name__
            raise ValueError(f"lr_schedule= gave a {made}: {needs}.")
        self.sets_rates = self._scheduler is None
        changed = self._shadow is not None and self._shadow.param_groups[0]["momentum"]
        if changed:
            raise ValueError(
                f"{type(self._scheduler).__name__} changes momentum beside the rate, and here it "
                f"is the rule's: give it cycle_momentum=False, or a torch optimizer as {AS_IN}."
            )

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Take one update by gradients that are clipped already."""
        if self.sets_rates or self._shadow is not None:
            self.rule.lr = self.lr
        self.rule.step(parameters, gradients)
        self._updates += 1
        if self._scheduler is not None:
            if self._shadow is not None:
                self._shadow.step()  # it has no gradient; torch wants an update before the rate's
            self._scheduler.step()


def squares(gradients: Sequence[Tensor | None]) -> float:
    """The squared joint norm."""
    there = [g.coalesce().values() if g.is_sparse else g for g in gradients if g is not None]
    wide = (g.detach().to(torch.promote_types(g.dtype, torch.float64)) for g in there)
    return sum(torch.linalg.vector_norm(g).item() ** 2 for g in wide)
