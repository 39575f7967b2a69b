"""Gradients of several layers in one message, each where its owner is.

A bucket is a matrix with a row a rank: row r holds shard r of each of its layers, so that one
reduce-scatter of the rows brings every rank the sums of its shards.

               layer 2  layer 1
    row 0      g g g    g g         -> rank 0
    row 1      g g g    g 0         -> rank 1      0: padding

Buckets leave as those of DDP do (data/reducer.py), filled in the order of the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import label
from dlviz.parallel.data.buckets import grouped
from dlviz.parallel.step.hooks import dense
from dlviz.parallel.zero.shards import FlatLayer


class ShardBucket:
    """The gradients of `layers` on all `ranks`, each times its weight. `take` takes its memory, of
    that `kind`, `free` gives it back; in between gradients add up, those of several passes too."""

    def __init__(self, layers: list[FlatLayer], ranks: int, kind: str):
        self.layers, self._kind = layers, kind
        self.names = ", ".join(layer.name for layer in layers)
        widths = [layer.each for layer in layers]
        first = layers[0].flat
        self.flat = torch.zeros(ranks * sum(widths), dtype=first.dtype, device=first.device)
        self.rows = [*self.flat.split(sum(widths))]
        self.parameters = [p for layer in layers for p in layer.parameters]
        self.missing: set[nn.Parameter] = set()
        self.weight = 0.0
        self.handle: Any = None
        self._slots: dict[nn.Parameter, list[torch.Tensor]] = {}
        columns = [row.split(widths) for row in self.rows]  # by rank, then layer
        for number, layer in enumerate(layers):
            for p, start in zip(layer.parameters, layer.starts, strict=True):
                stop, each = start + p.numel(), layer.each
                self._slots[p] = [
                    column[number][max(start - rank * each, 0) : stop - rank * each]
                    for rank, column in enumerate(columns)
                    if rank * each < stop and start < (rank + 1) * each
                ]
        self._own = [[column[number] for column in columns] for number in range(len(layers))]
        self.free()

    def open(self, weight: float) -> None:
        """Begin a backward pass, whose gradients weigh `weight`."""
        self.weight, self.missing, self.handle = weight, {*self.parameters}, None

    def put(self, p: nn.Parameter, gradient: torch.Tensor) -> None:
        """Add the gradient of `p`."""
        self.missing.discard(p)
        if not self.weight:
            return  # the gradient of an empty shard may be NaN
        row = dense(gradient).reshape(-1)
        for slot, values in zip(
            self._slots[p], row.split([len(slot) for slot in self._slots[p]]), strict=True
        ):
            slot.add_(values, alpha=self.weight)

    def own(self, rank: int) -> list[tuple[FlatLayer, torch.Tensor]]:
        """Each layer, and its gradient's shard of that rank."""
        return [(layer, parts[rank]) for layer, parts in zip(self.layers, self._own, strict=True)]

    @property
    def held(self) -> bool:
        """Whether it has its memory."""
        return self.flat.untyped_storage().nbytes() > 0

    def take(self) -> None:
        """Take memory for the gradients, all 0, unless the bucket has it."""
        if not self.held:
            self.flat.untyped_storage().resize_(self.flat.nbytes)
            self.flat.zero_()
            label(self._kind, self.flat)

    def free(self) -> None:
        """Give the memory back."""
        self.flat.untyped_storage().resize_(0)


def cut(
    layers: Sequence[FlatLayer], bucket_bytes: float, ranks: int, kind: str
) -> list[ShardBucket]:
    """Buckets of `layers`, in the order in which backward reaches them. Raises ValueError unless
    `bucket_bytes` is above 0."""
    groups = grouped(layers, bucket_bytes, lambda layer: layer.flat)
    return [ShardBucket(group, ranks, kind) for group in groups]
