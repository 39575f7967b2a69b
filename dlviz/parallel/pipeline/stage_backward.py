"""A microbatch's forward through a stage, and its backward.

    x ----> layer 1 ----> layer 2 ----> output        F
    dx <--- layer 1 <---- layer 2 <---- gradient      B   and the weights' gradients

The output of a previous stage on another rank arrives as a message, without a graph: the input
becomes a leaf, and that rank waits for its gradient. In PyTorch: torch.distributed.pipelining's
stage_backward.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


class Forward:
    """The forward of one microbatch, run when it is made.

    `output` is the stage's output, `root` where the backward begins: the output, or its loss.
    `wanted`: the previous stage waits for the gradient of the input. `weights` replace the stage's
    parameters, by name.
    """

    def __init__(
        self,
        stage: nn.Module,
        x: torch.Tensor,
        wanted: bool,
        weights: dict[str, torch.Tensor] | None = None,
    ):
        self.weights = weights
        self.wanted = wanted
        self.leaf: torch.Tensor | None = None
        if differentiable(x.dtype) and self.needs_leaf():
            self.leaf = x.detach().requires_grad_()
            x = self.leaf.clone()  # the stage may work in place
        with self.watching(stage):
            if weights is None:
                self.output = stage(x)
            else:
                # The module's own parameters may be of a newer version by the backward.
                self.output = torch.func.functional_call(stage, dict(weights), (x,))
        self.root: torch.Tensor = self.output

    def needs_leaf(self) -> bool:
        """Whether the graph has to reach back to the input."""
        return self.wanted

    def watching(self, stage: nn.Module) -> AbstractContextManager[object]:
        """The context in which the stage runs."""
        return nullcontext()

    def backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """B: add to the weights' gradients, given that of the root; returns that of the input,
        where it is wanted."""
        if self.root.requires_grad:  # not where nothing in the stage is trained
            torch.autograd.backward(self.root, gradient)
        return self.of_input(None if self.leaf is None else self.leaf.grad)

    def of_input(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """The previous stage's gradient: zeros where the output does not depend on the input."""
        if not self.wanted or self.leaf is None:
            return None
        return torch.zeros_like(self.leaf) if gradient is None else gradient


def differentiable(dtype: torch.dtype) -> bool:
    """Whether a tensor of that dtype can have a gradient."""
    return dtype.is_floating_point or dtype.is_complex
