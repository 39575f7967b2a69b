"""Gradient buckets: many gradients in one flat tensor, so that one all-reduce serves them all.

Few large messages beat many small ones: a bucket pays the latency of a message once, not once per
parameter. Full buckets leave while backward goes on, so they hold parameters in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from dlviz.cluster import label
from dlviz.parallel.step.hooks import dense

Item = TypeVar("Item")


def _nothing(parameter: nn.Parameter) -> None:
    """No earlier gradient."""


class Bucket:
    """The gradients of some parameters in one flat tensor, each times its weight; then a flag for
    each (did any example use it?), `counters` of the owner, and the weight itself. All of these are
    summed over the ranks by one all-reduce. Sparse gradients take the memory of dense ones, and
    come out dense."""

    def __init__(self, parameters: list[nn.Parameter], counters: int = 0):
        self.parameters = parameters
        sizes = [p.numel() for p in parameters]
        dtype = torch.promote_types(parameters[0].dtype, torch.float32)  # weights need 24 bits
        self.flat = torch.zeros(
            sum(sizes) + len(sizes) + counters + 1, dtype=dtype, device=parameters[0].device
        )
        label("communication", self.flat)
        self.values, self.rest = self.flat.split([sum(sizes), len(sizes) + counters + 1])
        rows = self.values.split(sizes)
        self._used, self.counters, self.total = self.rest.split([len(sizes), counters, 1])
        views = [row.view(p.shape) for row, p in zip(rows, parameters, strict=True)]
        self.slots = dict(zip(parameters, zip(views, self._used, strict=True), strict=True))
        self.missing: set[nn.Parameter] = set()
        self.handle: Any = None

    def open(self, weight: float) -> None:
        """Begin to fill the bucket; this rank's gradients weigh `weight`."""
        self.total.fill_(weight)
        self._used.fill_(1)
        self.missing = set(self.parameters)

    def put(self, p: nn.Parameter, gradient: torch.Tensor, times: float) -> None:
        """Put in `times` * `gradient` of `p`."""
        self.missing.discard(p)
        torch.mul(dense(gradient), times, out=self.slots[p][0])

    def close(self) -> None:
        """End the pass: a parameter that got no gradient adds nothing."""
        for p in self.missing:
            for slot in self.slots[p]:
                slot.zero_()

    def pack(self, weight: float) -> None:
        """Put in all gradients, each the mean of `weight` examples or tokens."""
        self.open(weight)
        for p in self.parameters:
            if p.grad is not None and weight:
                self.put(p, p.grad, weight)
        self.close()

    @property
    def weight(self) -> float:
        """The total weight of all ranks, after the all-reduce."""
        return self.total.real.item()  # complex where the gradients are

    def mean(self, p: nn.Parameter) -> torch.Tensor | None:
        """The mean gradient of `p`; None if no rank used it."""
        sums, used = self.slots[p]
        return (sums / self.total).to(p.dtype) if used else None

    def unpack(self, before: Callable[[nn.Parameter], torch.Tensor | None] = _nothing) -> None:
        """Give each parameter that some rank used the mean gradient, plus the gradient from
        `before`."""
        total = self.weight
        used = self._used.tolist()
        for (p, (sums, _)), by in zip(self.slots.items(), used, strict=True):
            if by:
                there, gradient = before(p), p.grad
                if gradient is None or gradient.layout is not torch.strided:
                    gradient = p.grad = torch.empty_like(p)
                torch.div(sums, total, out=gradient)
                if there is not None:
                    gradient += there


def fill_buckets(model: nn.Module, bucket_bytes: float) -> list[Bucket]:
    """Buckets of all trained parameters of `model`."""
    return cut([p for p in model.parameters() if p.requires_grad], bucket_bytes)


def cut(parameters: Sequence[nn.Parameter], bucket_bytes: float, counters: int = 0) -> list[Bucket]:
    """Buckets of `parameters`. Raises ValueError unless `bucket_bytes` is above 0."""
    return [Bucket(group, counters) for group in grouped(parameters, bucket_bytes)]


def grouped(
    items: Sequence[Item], bucket_bytes: float, tensor_of: Callable[[Item], Any] = lambda item: item
) -> list[list[Item]]:
    """Items in reverse order (backward reaches the last ones first), cut where a bucket is full or
    the dtype or device of their tensor changes. Raises ValueError unless `bucket_bytes` is above
    0."""
    if not bucket_bytes > 0:
        raise ValueError(f"bucket_bytes={bucket_bytes!r} holds no gradient: use 1 or more bytes.")
    groups: list[list[Item]] = []
    held, last = 0, None
    for item in reversed(items):
        tensor = tensor_of(item)
        alike = last == (tensor.dtype, tensor.device)
        if not alike or held + tensor.nbytes > bucket_bytes:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held, last = held + tensor.nbytes, (tensor.dtype, tensor.device)
    return groups
