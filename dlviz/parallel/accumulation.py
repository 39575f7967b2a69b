"""Gradient accumulation: the gradients of several backward passes, averaged over all ranks once.

    no_sync   backward | backward | backward | backward + all-reduce      k = 4 passes

In plain torch k backward passes add up to the sum of k means. So they do here, whether each is
averaged over the ranks at once or all of them at the end, where with shard weights w_rj of rank r
in pass j

    g = k * sum_rj w_rj g_rj / sum_rj w_rj

Divide each loss by k, as with torch's no_sync, and g is the mean over all examples of all passes of
all ranks, however unequal the shards are. (torch's own is sum_rj g_rj / n: the same where all
shards weigh the same, an average of averages where they do not.)
"""

from __future__ import annotations

import torch
from torch import nn


class Accumulation:
    """The backward passes since gradients were last averaged, on this rank. Between them
    `p.grad` holds the sum of weight times gradient; what it held before the first of them is kept
    apart."""

    def __init__(self, parameters: list[nn.Parameter]):
        self._parameters = parameters
        self._held: dict[nn.Parameter, torch.Tensor] = {}
        self.forget()

    def forget(self) -> None:
        """The gradients have been averaged, or the program has cleared them."""
        self.passes, self.weight = 0, 0.0
        self._before: dict[nn.Parameter, torch.Tensor] = {}
        self._mark: torch.Tensor | None = None

    def begin(self, weight: float) -> None:
        """A backward pass begins whose gradients weigh `weight`."""
        there = {p: p.grad for p in self._parameters if p.grad is not None}
        held = {p: gradient for p, gradient in there.items() if gradient is not self._mark}
        if self.passes and not any(gradient.any() for gradient in there.values()):
            self.forget()  # by zero_grad
        if not self.weight:
            self._before, held = held, {}
        self._held, self._times = held, weight
        self.passes += 1
        self.weight += weight
        for p in self._parameters:
            p.grad = None

    def add(self, p: nn.Parameter) -> None:
        """`p` has this pass's gradient."""
        held = self._held.get(p)
        if not self._times:
            p.grad = held  # what has no weight may be NaN: the mean of nothing
        elif p.grad is not None:
            p.grad.mul_(self._times)
            if held is not None:
                p.grad.add_(held)

    def end(self) -> None:
        """The pass is over: what got no gradient in it holds that of the passes before."""
        for p in self._parameters:
            if p.grad is None:
                p.grad = self._held.get(p)

    def pause(self) -> None:
        """No all-reduce follows this pass. Where nothing weighs anything yet the gradients are what
        they were; a NaN among them, the mean of nothing, lets `begin` see a zero_grad."""
        if self.weight:
            return
        for p, before in self._before.items():
            p.grad = before
        if not any(before.any() for before in self._before.values()):
            first = self._parameters[0]
            first.grad = self._mark = torch.full_like(first, float("nan"))

    def finish(self) -> None:
        """`p.grad` holds the averages: add them to what was there before."""
        for p, before in self._before.items():
            p.grad = before if p.grad is None else p.grad.add_(before)
        self.forget()
