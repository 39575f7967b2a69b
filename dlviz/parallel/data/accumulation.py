"""Gradient accumulation: gradients of several backward passes, averaged once over all ranks.

    no_sync   backward | backward | backward | backward + all-reduce      k = 4 passes

In plain torch k backward passes add up to the sum of k means. So they do here, whether each pass is
averaged over the ranks immediately or all at the end. With the shard weight w_rj of rank r in pass
j,

    g = k * sum_rj w_rj g_rj / sum_rj w_rj

Divide each loss by k, as with torch's no_sync, and g is the mean over all examples of all passes of
all ranks, however unequal the shards are. (torch's own is sum_rj g_rj / n: the same where all
shards weigh the same, an average of averages where they do not.)

Until then `.grad` of rank r is what plain torch leaves there, sum_j g_rj, which may be clipped,
logged or stepped with. As sum_j w_j g_j = w_1 sum_j g_j + sum_j (w_j - w_1) g_j, only passes whose
weight differs from the first pass's need extra memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import torch
from torch import nn

from dlviz.parallel.data.buckets import Bucket
from dlviz.parallel.step.hooks import dense


class Accumulation:
    """This rank's backward `passes` since its gradients were last averaged or cleared, and their
    total `weight`. A first pass that is averaged itself, onto no gradients, is `alone`."""

    def __init__(self):
        self._held: dict[nn.Parameter, torch.Tensor] = {}
        self._ready: set[nn.Parameter] = set()  # have the gradient of the current pass
        self.forget()

    def forget(self) -> None:
        """The gradients have been averaged, or the program has cleared them."""
        self.passes, self.weight = 0, 0.0
        self._weighed = 0  # passes of weight above 0
        self._first = 0.0  # w_1
        # For each parameter with a gradient of these passes: Σ (w_j - w_1) g_j, None where all
        # weigh w_1; and its .grad from before them.
        self._rest: dict[nn.Parameter, torch.Tensor | None] = {}
        self._before: dict[nn.Parameter, torch.Tensor] = {}
        self._left: dict[nn.Parameter, tuple[torch.Tensor, int]] = {}  # .grad after the last pass
        self._zero = True  # whether all of these are 0

    def begin(self, weight: float, parameters: Iterable[nn.Parameter], averages: bool) -> None:
        """Begin a backward pass whose gradients weigh `weight`; until `add` or `end`, `.grad` holds
        this pass's gradient only."""
        held = {p: p.grad for p in parameters if p.grad is not None}
        if self.passes:
            self._see(held)
        self.alone = averages and not self.passes and not held
        self._held, self._times = held, weight
        self._ready.clear()
        self.passes += 1
        self.weight += weight
        if weight:
            self._weighed += 1
            self._first = self._first or weight
        for p in held:
            p.grad = None

    def _see(self, held: dict[nn.Parameter, torch.Tensor]) -> None:
        """Find out what the program has done to `.grad` since the last pass."""
        changed = [
            p
            for p, (gradient, version) in self._left.items()
            if held.get(p) is not gradient or gradient._version != version
        ]
        if (changed or not self._zero) and not any(gradient.any() for gradient in held.values()):
            self.forget()  # after zero_grad
            return
        for p in changed:
            if p not in held:
                self._rest.pop(p, None)
                self._before.pop(p, None)
            elif p in self._rest:  # clipped, say: it counts by the mean weight of its passes
                more = self.weight / self._weighed - self._first
                self._rest[p] = more * self._sum(p, held[p]) if more else None

    def add(self, p: nn.Parameter) -> None:
        """Add up the gradient of `p`, which this pass has computed."""
        if p in self._ready:
            second_gradient(p)
        self._ready.add(p)
        held, gradient = self._held.pop(p, None), p.grad
        assert gradient is not None
        if not self._times:  # the gradient of an empty shard may be NaN
            p.grad = held if held is not None or self.alone else torch.zeros_like(p)
            return
        if self.alone:
            return
        gradient = dense(gradient)
        if p not in self._rest:
            self._rest[p] = None
            if held is not None:
                self._before[p] = held.clone()
        if self._times != self._first:
            rest, more = self._rest[p], (self._times - self._first) * gradient
            self._rest[p] = more if rest is None else rest + more
        p.grad = gradient if held is None else dense(held).add_(gradient)

    def end(self) -> None:
        """End the pass: a parameter that got no gradient has that of earlier passes again."""
        for p, held in self._held.items():
            p.grad = held
        self._held = {}

    def pause(self, parameters: Iterable[nn.Parameter]) -> None:
        """Remember the gradients after a pass that no all-reduce follows."""
        there = {p: p.grad for p in parameters if p.grad is not None}
        self._left = {p: (gradient, gradient._version) for p, gradient in there.items()}
        self._zero = not any(gradient.any() for gradient in there.values())

    def put(self, p: nn.Parameter, bucket: Bucket) -> None:
        """Put Σ w_j g_j of `p`, times the number of passes, into `bucket`; nothing for a parameter
        without a gradient of these passes."""
        gradient = p.grad
        if self.alone:
            if self._times and p in self._ready and gradient is not None:
                bucket.put(p, gradient, self._times)
            return
        if p not in self._rest:
            return
        assert gradient is not None
        rest, sum_ = self._rest[p], self._sum(p, gradient)
        if rest is None:
            bucket.put(p, sum_, self._first * self.passes)
        else:
            bucket.put(p, sum_ * self._first + rest, self.passes)

    def _sum(self, p: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
        """Σ g_j of `p`."""
        before = self._before.get(p)
        return gradient if before is None else gradient - before

    def before(self, p: nn.Parameter) -> torch.Tensor | None:
        """`.grad` from before the first of these passes, to which the average is added."""
        if self.alone:
            return None
        if p in self._rest:
            return self._before.get(p)
        return None if p.grad is None else dense(p.grad).clone()  # another rank used it


def second_gradient(p: nn.Parameter) -> NoReturn:
    """Refuse a gradient that comes after its pass's gradient was taken."""
    raise ValueError(
        f"a parameter of {tuple(p.shape)} got a second gradient in one backward pass, as where two "
        "checkpointed parts use it: give torch.utils.checkpoint use_reentrant=False."
    )
