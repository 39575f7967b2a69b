"""The rows that a replica takes of a batch, and what each microbatch of them weighs.

    batch of 7 rows, dp=2, 2 microbatches        replica 0   r0 r1 | r2 r3
    . is padding: no row of the batch            replica 1   r4 r5 | r6 .

A pipeline wants microbatches of one shape: a replica's rows are padded up to a multiple of them,
and its loss leaves the padding out. A loss is a mean, over rows or over target tokens, and the mean
over a batch is not the mean of means of unequal weights:

    L = sum w_k L_k / sum w_k       over the microbatches of a replica, and over the replicas

`token_loss` is a mean over the targets that it does not ignore, and weighs by these; other losses
by their rows, or by what `weight=` says of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.dropout import Dropout
from dlviz.models.mean_of import Loss, MeanOverRows, Weight, of_batch, weighed, weight_of
from dlviz.parallel.step.hooks import Hook
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import no_mean, rows


class Replica:
    """Of one batch (inputs, targets) the rows of this rank's replica, in `microbatches` of `rows`
    rows. `first` is the batch's row at which they begin, `weight` what they weigh together; where
    that is 0 the replica has nothing to learn. `loss` is what the last stage's outputs are given
    to, `whole` the one that it stands for. ValueError for a batch that weighs nothing."""

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
        of_loss = weight_of(whole) if weight is rows else None
        self._weigh, by_rows = of_batch(of_loss or weight), weight is rows and of_loss is None
        if not weighed("the batch", self._weigh(inputs, targets)):
            no_mean()
        self._tried = MeanOverRows(loss) if by_rows else None
        self._loss, self._inputs, self._targets = self._tried or loss, inputs, targets
        self.weight = weighed("a replica's part", self._weigh(inputs[mine], targets[mine]))
        self.rows = -(-len(mine) // microbatches)
        self.first = int(mine[0]) if len(mine) else 0
        # The batch's row of each of the replica's, -1 where there is none.
        self.places = mine.new_full((self.rows * microbatches,), -1)
        self.places[: len(mine)] = mine
        self.inputs = inputs[self.places.clamp(min=self.first)]  # padded by a row that there is

    def loss(self, output: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """What a microbatch's output says of the rows at its `places`."""
        real = places >= 0
        return self._loss(output[real], self._targets[places[real]])

    def weigh(self, _: torch.Tensor, places: torch.Tensor) -> float | torch.Tensor:
        """What it is the mean of."""
        real = places[places >= 0]
        return self._weigh(self._inputs[real], self._targets[real])

    def check(self) -> None:
        """After a step: raise ValueError for a loss that is no mean over the rows that it was
        weighed by."""
        if self._tried is not None:
            self._tried.check()


class DropoutPlaces:
    """Has the dropouts of a rank's `stages` drop the cells that one process would of the whole
    batch: a microbatch's begin at a row of their own."""

    def __init__(self, stages: Sequence[nn.Module | None], layers: LayerSpans):
        self._layers = layers
        self._step, self._replica = 0, None
        for stage in stages:
            drops = [] if stage is None else [m for m in stage.modules() if isinstance(m, Dropout)]
            if stage is not None and drops:
                stage.register_forward_pre_hook(Hook(partial(self._place, drops)))

    def at(self, step: int, replica: Replica) -> None:
        """From now on the stages run for this step's rows."""
        self._step, self._replica = step, replica

    def _place(self, drops: list[Dropout], *_: Any) -> None:
        action, replica = self._layers.action, self._replica
        assert action is not None and replica is not None
        for drop in drops:
            drop.step = self._step
            drop.row = replica.first + action.microbatch * replica.rows
