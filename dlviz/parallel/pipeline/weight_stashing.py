"""Weight stashing: the versions of a stage's weights that microbatches in flight still need.

    rank 0 of 2   F0  F1      B0 u1  F2  B1 u2      F0 and F1 saw version 0, F2 sees version 1;
                                                    B1 uses version 0, though version 1 exists

A version is stored until the backward of the last of its microbatches: at most p-r on rank r.
Source: Narayanan et al., PipeDream, SOSP 2019, section 3.3.
"""

from __future__ import annotations

import torch
from torch import nn

from dlviz.parallel.pipeline.stage_backward import Forward

Weights = dict[str, torch.Tensor]


class Stash:
    """The weights of `stage`: `now` is the version for the next forward."""

    def __init__(self, stage: nn.Module):
        self.parameters = {
            name: parameter
            for name, parameter in stage.named_parameters()
            if parameter.requires_grad
        }
        self.nbytes = sum(parameter.nbytes for parameter in self.parameters.values())
        self.now = self._version()

    def _version(self) -> Weights:
        return {name: weights.data.requires_grad_() for name, weights in self.parameters.items()}

    def update(self, forward: Forward, optimizer: torch.optim.Optimizer) -> None:
        """Take a step with the gradients of `forward`, whose weights may be old, into new storage:
        the previous version is unchanged."""
        optimizer.zero_grad()  # the rank's other stages do not move
        assert forward.weights is not None  # it was given `now`
        for name, parameter in self.parameters.items():
            seen = forward.weights[name]
            parameter.grad, seen.grad = seen.grad, None
            parameter.data = parameter.data.clone()  # the step works in place
        optimizer.step()
        self.now = self._version()
