"""The rows of a batch that a replica takes, and what each of its microbatches weighs.

    batch of 7 rows, dp=2, 2 microbatches        replica 0   r0 r1 | r2 r3
    . is padding: no row of the batch            replica 1   r4 r5 | r6 .

A pipeline needs microbatches of one shape: a replica's rows are padded, and its loss leaves the
padding out. A loss is a mean over rows or over target tokens, and means of unequal weights are
averaged by weight:

    L = sum w_k L_k / sum w_k       over the microbatches of a replica, and over the replicas

`token_loss` is a mean over the targets that it does not ignore, which are its weight; other losses
weigh by their rows, or by `weight=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.dropout import Dropout
from dlviz.models.mean_of import Loss, MeanOverRows, Weight, of_batch, weighed
from dlviz.parallel.step.hooks import Hook
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import counting, no_mean, rows


class Replica:
    """The rows of one batch (inputs, targets) for this rank's replica, in `microbatches` of `rows`
    rows. `first` is their first row in the batch, `weight` their total weight; where that is 0 the
    replica has nothing to learn. `loss` takes the last stage's outputs, `whole` is the loss of
    uncut outputs. Raises ValueError for a batch that weighs nothing."""

    def __init__(
        self,
        axis: Comm,
        batch: tuple[torch.Tensor, torch.Tensor],
        microbatches: int,
        loss: Loss,
        whole: Loss,
        weight: Weight,
    ):
        inputs, targets = (part.to(axis.device) for part in batch)
        mine = torch.arange(len(inputs), device=axis.device).tensor_split(axis.size)[axis.rank]
        weight = counting(whole, weight)
        self._weigh = of_batch(weight)
        if not weighed("the batch", self._weigh(inputs, targets)):
            no_mean()
        self._tried = MeanOverRows(loss) if weight is rows else None
        self._loss, self._inputs, self._targets = self._tried or loss, inputs, targets
        self.weight = weighed("a replica's part", self._weigh(inputs[mine], targets[mine]))
        self.rows = -(-len(mine) // microbatches)
        self.first = int(mine[0]) if len(mine) else 0
        # Row in the batch of each of the replica's rows, -1 for padding.
        self.places = mine.new_full((self.rows * microbatches,), -1)
        self.places[: len(mine)] = mine
        self.inputs = inputs[self.places.clamp(min=self.first)]  # padded with a real row

    def loss(self, output: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """The loss of a microbatch's output, on the rows at its `places`."""
        real = places >= 0
        return self._loss(output[real], self._targets[places[real]])

    def weigh(self, _: torch.Tensor, places: torch.Tensor) -> float | torch.Tensor:
        """The weight of that loss."""
        real = places[places >= 0]
        return self._weigh(self._inputs[real], self._targets[real])

    def check(self) -> None:
        """After a step: raise ValueError for a loss that was weighed by its rows, but is not their
        mean."""
        if self._tried is not None:
            self._tried.check()


class DropoutPlaces:
    """Makes the dropouts of a rank's `stages` drop the same cells as one process with the whole
    batch: each microbatch begins at its own row."""

    def __init__(self, stages: Sequence[nn.Module | None], layers: LayerSpans):
        self._layers = layers
        self._step, self._replica = 0, None
        for stage in stages:
            drops = [] if stage is None else [m for m in stage.modules() if isinstance(m, Dropout)]
            if stage is not None and drops:
                stage.register_forward_pre_hook(Hook(partial(self._place, drops)))

    def at(self, step: int, replica: Replica) -> None:
        """Run the stages on this step's rows from now on."""
        self._step, self._replica = step, replica

    def _place(self, drops: list[Dropout], *_: Any) -> None:
        action, replica = self._layers.action, self._replica
        assert action is not None and replica is not None
        for drop in drops:
            drop.step = self._step
            drop.row = replica.first + action.microbatch * replica.rows
