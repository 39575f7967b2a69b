"""The rows that a replica takes of a batch, and what each microbatch of them weighs.

    batch of 7 rows, dp=2, 2 microbatches        replica 0   r0 r1 | r2 r3
    . is padding: no row of the batch            replica 1   r4 r5 | r6 .

A pipeline wants microbatches of one shape: a replica's rows are padded up to a multiple of them,
and its loss leaves the padding out. A loss is a mean, over rows or over target tokens, and the mean
over a batch is not the mean of means of unequal weights:

    L = sum w_k L_k / sum w_k       over the microbatches of a replica, and over the replicas

`train_step` takes the plain mean of m microbatches: each gives it L_k times m w_k / sum w_k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models import token_loss
from dlviz.models.dropout import Dropout
from dlviz.models.language import PADDING
from dlviz.parallel.hooks import Hook
from dlviz.parallel.layers import LayerSpans
from dlviz.parallel.shards import Loss, no_mean


class Replica:
    """Of one batch (inputs, targets) the rows of this rank's replica, in `microbatches` of `rows`
    rows. `first` is the batch's row at which they begin, `weight` what they weigh together; where
    that is 0 the replica has nothing to learn. ValueError for a batch that weighs nothing."""

    def __init__(
        self,
        axis: Comm,
        batch: tuple[torch.Tensor, torch.Tensor],
        microbatches: int,
        loss: Loss,
        whole: Loss,
    ):
        inputs, targets = (part.to(axis.device) for part in batch)
        mine = torch.arange(len(inputs), device=axis.device).tensor_split(axis.size)[axis.rank]
        self._weigh = weight_of(whole)
        if not self._weigh(targets):
            no_mean()
        self._loss, self._targets, self._microbatches = loss, targets, microbatches
        self.weight = self._weigh(targets[mine])
        self.rows = -(-len(mine) // microbatches)
        self.first = int(mine[0]) if len(mine) else 0
        # The batch's row of each of the replica's, -1 where there is none.
        self.places = mine.new_full((self.rows * microbatches,), -1)
        self.places[: len(mine)] = mine
        self.inputs = inputs[self.places.clamp(min=self.first)]  # padded by a row that there is

    def loss(self, output: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """What a microbatch's output says of the rows at its `places`, as its share of the mean."""
        real = places >= 0
        targets = self._targets[places[real]]
        weight = self._weigh(targets)
        if not weight:
            return output.sum() * 0  # it goes backward all the same: other stages wait
        return self._loss(output[real], targets) * (self._microbatches * weight / self.weight)


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


def weight_of(loss: Loss) -> Callable[[torch.Tensor], int]:
    """What the mean that is `loss` is over: target tokens, or rows."""
    if loss is token_loss:
        return lambda targets: int((targets != PADDING).sum())
    return len
