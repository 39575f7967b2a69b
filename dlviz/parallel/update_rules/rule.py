"""The base of all update rules."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from dlviz.cluster import label

Tensor = torch.Tensor


class Rule(ABC):
    """Moves weights against their gradients. A subclass says how, for one tensor, in `move`."""

    state_tensors: ClassVar[int] = 0  # their number, each as large as the weights

    def __init_subclass__(cls) -> None:
        if "kept" in vars(cls):
            warnings.warn("a rule's kept is called state_tensors now.", DeprecationWarning, 2)
            cls.state_tensors = vars(cls)["kept"]

    def __init__(self, lr: float):
        if not lr >= 0:
            raise ValueError(f"lr={lr!r} is no rate: use 0 or more.")
        self.lr = lr
        self.memory: list[list[Any]] = []  # for each tensor its t and its state

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Move `parameters`, in place, each against its gradient; one without (None) stays.

        Every step takes the same tensors in the same order: the rule knows them by their place.
        Raises ValueError where numbers or shapes do not fit.
        """
        if not self.memory:
            self.memory = [
                [0, *map(torch.zeros_like, [w] * self.state_tensors)] for w in parameters
            ]
        if not len(parameters) == len(gradients) == len(self.memory):
            raise ValueError(
                f"{len(parameters)} parameters and {len(gradients)} gradients do not fit a rule of "
                f"{len(self.memory)}: give it the same list in every step, None for no gradient."
            )
        for place, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
            if g is not None and w.shape != g.shape:
                raise ValueError(
                    f"parameter {place} has shape {tuple(w.shape)} and its gradient "
                    f"{tuple(g.shape)}: they must be the same."
                )
        label("optimizer", *(tensor for _, *state in self.memory for tensor in state))
        for w, g, memory in zip(parameters, gradients, self.memory, strict=True):
            if g is not None:
                memory[0] += 1
                # A row's state changes without a gradient too.
                self.move(w, g.to_dense() if self.state_tensors and g.is_sparse else g, *memory)

    @abstractmethod
    def move(self, w: Tensor, g: Tensor, t: int, *state: Tensor) -> None:
        """Take step `t` of one tensor, counted from 1, and update its `state`."""

    def stable_rate(self, curvature: float) -> float:
        """The rate below which the rule converges on a quadratic of this `curvature`: the
        eigenvalues of its step lie inside the unit circle there (0 <= μ < 1).

        Raises ValueError for RMSProp and Adam, whose steps are scaled by earlier gradients.
        """
        raise ValueError(
            f"{type(self).__name__} has no stable rate for a curvature: its steps are scaled by "
            "earlier gradients, whatever the curvature."
        )
