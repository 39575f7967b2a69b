"""The arguments that every training takes, whatever trains.

g ← g min(1, c / |g|)        clip=c, |g| the joint norm of all gradients
η ← η_t                      lr_schedule=, by the number of the update or the round
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dlviz.counts import check_counts

Tensor = torch.Tensor
Rates = Callable[[Any], Any]  # the number of an update -> its rate, or an optimizer -> a scheduler


class TrainingOptions(TypedDict, total=False):
    """Keyword arguments of every `train`. In federated training a step is a round, and `clip` is
    for each of a client's updates.

    clip            the largest joint norm of all gradients of an update: larger ones are scaled
                    down, as by torch.nn.utils.clip_grad_norm_
    lr_schedule     the rate of each update, of each round in federated training: a function of its
                    number, from 0, or one that makes a torch scheduler of an optimizer:
                    `lambda o: torch.optim.lr_scheduler.StepLR(o, 10)`
    evaluate        called with the model as trained so far, a copy in evaluation mode, on the first
                    rank that computes (the server in federated training), after every
                    `evaluate_every` steps (1 by default); what it returns is in `evaluations`, by
                    the number of steps
    callback        called on every rank after each of its steps, with the step's number, the loss
                    of the rank's part of the batch (nan without one), and its model or part; on the
                    server of federated training with the round's loss and its new model
    """

    clip: float | None
    lr_schedule: Rates | None
    evaluate: Callable[[nn.Module], Any] | None
    evaluate_every: int
    callback: Callable[[int, float, nn.Module], Any] | None


def check_options(options: Mapping[str, Any], known: type = TrainingOptions) -> None:
    """Raise TypeError for a name that `known` has not, and ValueError for an invalid value."""
    if unknown := [name for name in options if name not in known.__annotations__]:
        raise TypeError(
            f"train() got an unexpected keyword argument {unknown[0]!r}: it has "
            f"{', '.join(known.__annotations__)}, and what its docstring says."
        )
    check_clip(options.get("clip"))
    for name in ("evaluate", "callback"):
        if options.get(name) is not None and not callable(options.get(name)):
            raise ValueError(f"{name}={options.get(name)!r} is no function.")
    check_counts(evaluate_every=options.get("evaluate_every", 1))
    if not isinstance(options.get("sharded", False), bool):
        raise ValueError(f"sharded={options.get('sharded')!r}: use True or False.")


def check_clip(clip: float | None) -> None:
    """Raise ValueError for a norm that leaves no gradient."""
    if clip is not None and not (isinstance(clip, int | float) and clip > 0):
        raise ValueError(f"clip={clip!r} leaves no gradient: use a norm above 0, or None.")


def squares(gradients: Sequence[Tensor | None]) -> float:
    """The squared joint norm."""
    there = [g.coalesce().values() if g.is_sparse else g for g in gradients if g is not None]
    wide = (g.detach().to(torch.promote_types(g.dtype, torch.float64)) for g in there)
    return sum(torch.linalg.vector_norm(g).item() ** 2 for g in wide)


def clipped(
    gradients: Sequence[Tensor | None], clip: float | None, norm: float
) -> Sequence[Tensor | None]:
    """The gradients, scaled where their joint `norm` is larger than `clip`, as by torch's
    clip_grad_norm_."""
    factor = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
    return gradients if factor == 1 else [g if g is None else g * factor for g in gradients]


class RateSchedule:
    """The rate of one update (or of whatever else has a number from 0: `of`) after the other, by
    `lr_schedule`: its own function of the number, or a torch scheduler of `optimizer`, by default
    of one that begins at `lr`. Raises ValueError for what is neither, and for an invalid rate.
    """

    def __init__(self, schedule: Any, lr: float, optimizer: Any = None, of: str = "update"):
        self._schedule, self._of, self._number = schedule, of, 0
        self._optimizer = optimizer
        self._scheduler: Any = None
        needs = (
            f"it needs a function of the {of}'s number, from 0, that returns its rate, or one that "
            "makes a torch scheduler of an optimizer"
        )
        if not callable(schedule):
            raise ValueError(f"lr_schedule={schedule!r} is no function: {needs}.")
        self.is_own = optimizer is None  # whether a rule has to be given each rate
        try:
            first = schedule(0)
        except (TypeError, AttributeError) as error:  # torch's: 0 is no optimizer
            if optimizer is None:
                cell = torch.zeros(1, requires_grad=True)
                self._optimizer = torch.optim.SGD([cell], lr=lr)
            try:
                first = self._scheduler = schedule(self._optimizer)
            except (TypeError, AttributeError):
                raise ValueError(f"lr_schedule= failed on {of} 0 ({error}): {needs}.") from error
        is_known = isinstance(first, LRScheduler | int | float)
        if not is_known or isinstance(first, ReduceLROnPlateau):
            raise ValueError(f"lr_schedule= gave a {type(first).__name__}: {needs}.")
        self.is_function = self._scheduler is None
        self.is_own = self.is_own or self.is_function
        if self._scheduler and self.is_own and self._optimizer.param_groups[0]["momentum"]:
            raise ValueError(
                f"{type(first).__name__} changes momentum beside the rate, and here it is the "
                "rule's: give it cycle_momentum=False, or a torch optimizer as rule."
            )
        self._check(first if self.is_function else self.rate)

    @property
    def rate(self) -> float:
        """Of the next update; where an optimizer has several, of its first group."""
        if self.is_function:
            return self._check(self._schedule(self._number))
        return [self._check(float(group["lr"])) for group in self._optimizer.param_groups][0]

    def advance(self) -> None:
        """The update is done."""
        self._number += 1
        if self._scheduler is not None:
            if self.is_own:
                self._optimizer.step()  # without a gradient: torch wants an update before a rate's
            self._scheduler.step()

    def refuse_beside(self, lr: float | None) -> None:
        """Raise ValueError where `lr` was given too, and has no effect."""
        if lr is not None and self.is_function:
            raise ValueError(
                f"lr={lr!r} has no effect beside lr_schedule=, which gives each {self._of}'s rate: "
                "leave one of them out."
            )

    def _check(self, rate: Any) -> float:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not (is_number and 0 <= rate < math.inf):
            raise ValueError(
                f"lr_schedule={rate!r} on {self._of} {self._number} is no rate: return 0 or more."
            )
        return float(rate)
