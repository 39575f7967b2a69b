"""A step on this rank's shard of each batch, and the shard's weight, shared by the strategies.

A loss is a mean over the examples of a shard, or over its target tokens. The mean over the whole
batch is the mean of these means, weighted by how many each is the mean of:

    L = sum_r w_r L_r / sum_r w_r        and the gradients alike

An unweighted average of the means differs from it wherever the weights differ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn

from dlviz import collectives
from dlviz.cluster import Comm
from dlviz.models.mean_of import (
    Loss,
    MeanOverRows,
    Weight,
    check_loss,
    of_batch,
    weighed,
    weight_of,
)
from dlviz.parallel.step.batch_norm import weigh_norms
from dlviz.parallel.step.batches import Batch, on, outputs_of
from dlviz.parallel.step.hooks import tensors_in
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import start_alike


def rows(*inputs: Any, **keywords: Any) -> int:
    """How many examples the inputs of a forward hold: dim 0 of the first tensor."""
    first = next(tensors_in([*inputs, keywords]), None)
    if first is None or not first.dim():
        raise ValueError(
            "the inputs of this forward have no rows to count: give weight=, a function of the "
            "inputs that says how many examples the loss is the mean of."
        )
    return first.shape[0]  # B of (B, ...)


def weigh(comm: Comm, weight: Weight, *inputs: Any, **keywords: Any) -> float:
    """The weight of this rank's loss. Raises ValueError for an invalid one."""
    return weighed(f"the shard of rank {comm.rank}", weight(*inputs, **keywords))


def no_mean() -> NoReturn:
    """Refuse a batch whose shards all weigh nothing."""
    raise ValueError(
        "the batch weighs 0 on all ranks together, so there is no mean to learn from: it has no "
        "rows, or padding alone; leave it out."
    )


def counting(loss: Loss, weight: Weight) -> Weight:
    """What a shard weighs: `weight`, or in place of `rows` what the loss itself counts. Raises
    ValueError for what is no loss or no weight."""
    check_loss(loss, weight)
    return weight_of(loss) or weight if weight is rows else weight


def check_weighs(loss: Loss, weight: Weight, inputs: Any, labels: Any) -> None:
    """Raise ValueError for a whole batch that weighs nothing."""
    if not weighed("the batch", of_batch(counting(loss, weight))(inputs, labels)):
        no_mean()


def begin(comm: Comm, model: nn.Module) -> None:
    """Before the first step: give every remaining rank rank 0's model, and record its layers."""
    model.to(comm.device)
    comm.together(lambda left: start_alike(left, model))
    LayerSpans(comm, model)


class Losses:
    """The loss of each step, the mean over what all ranks have seen of it. `steps`: how many there
    are, by default those that this rank has added."""

    def __init__(self, comm: Comm, steps: int | None = None):
        self._comm, self._steps = comm, steps
        self._seen: dict[int, tuple[float, float]] = {}  # weighted loss, weight
        self._finite = True

    def add(self, step: int, share: float, mean: float) -> None:
        """Add this rank's `mean` over `share` examples or tokens; 0 of them count nothing. Warns of
        the first that is not finite."""
        self._seen[step] = (share * mean, share) if share else (0.0, 0.0)  # 0 times NaN is NaN
        if share and self._finite and not math.isfinite(mean):
            self._finite = False
            warnings.warn(
                f"rank {self._comm.members[self._comm.rank]}, step {step}: the loss of its part of "
                f"the batch is {mean:g}, and what is learnt from it is not finite either. If other "
                "ranks' losses are finite, look at this rank's rows; else use a lower rate.",
                RuntimeWarning,
                stacklevel=2,
            )

    def means(self, left: Comm | None = None) -> list[float]:
        """The losses; all ranks call this at the end, or those that are `left`. A step that no rank
        has seen raises ValueError, or is nan if a rank was lost."""
        comm = left or self._comm
        steps = len(self._seen) if self._steps is None else self._steps
        rows = [self._seen.get(step, (0.0, 0.0)) for step in range(steps)]
        sums = torch.tensor(rows, dtype=torch.float64).reshape(steps, 2).T.contiguous()
        comm.all_reduce(sums)  # (2, steps): once, after training
        if comm.size == self._comm.size and not sums[1].all():
            no_mean()
        return (sums[0] / sums[1]).tolist()  # Σ w_r L_r / Σ w_r


def learn(
    comm: Comm,
    net: nn.Module,
    batch: Batch,
    loss: Loss,
    weight: Weight,
    whole: bool = False,
) -> tuple[float, float]:
    """Forward and backward on (inputs, labels), which leaves the gradients in `net`; returns the
    batch's weight and its loss. Unless it is a `whole` batch, raises ValueError for a loss that is
    weighed by its rows, but is not their mean."""
    inputs, labels = on(comm.device, batch)  # (B/n, ...) each
    weight = counting(loss, weight)
    share = weigh(comm, of_batch(weight), inputs, labels)
    weigh_norms(net, share)  # before the forward: SyncBatchNorm saves it for backward
    net.zero_grad()  # backward adds to .grad
    tried = MeanOverRows(loss) if weight is rows and not whole and comm.size > 1 else None
    mean = (tried or loss)(outputs_of(net, inputs), labels)
    mean.backward()  # DDP's hooks send buckets in here
    if tried is not None:
        tried.check()
    return share, mean.item()


def learn_whole(comm: Comm, net: nn.Module, batch: Batch, loss: Loss, weight: Weight) -> float:
    """As `learn`, on a batch that no other rank shares; returns its loss. Raises ValueError where
    it weighs nothing."""
    share, mean = learn(comm, net, batch, loss, weight, whole=True)
    if not share:
        no_mean()
    return mean


def all_reduce_called(name: str) -> Callable[..., None]:
    """The all-reduce of that name. Raises ValueError for an unknown one."""
    if name == "backend":
        return lambda comm, tensor: comm.all_reduce(tensor)  # its messages are not in the Trace
    if name not in collectives.ALGORITHMS:
        raise ValueError(
            f"all_reduce={name!r} is not known: use 'backend', "
            f"{' or '.join(map(repr, collectives.ALGORITHMS))}."
        )
    return collectives.ALGORITHMS[name]


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training moves."""
    return [p for p in model.parameters() if p.requires_grad]
