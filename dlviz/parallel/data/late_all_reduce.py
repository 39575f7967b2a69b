"""One step late: the gradients of step t are averaged during step t+1 and applied at its end.

    compute  |F   B  |update 0|F   B  |update 1|F   B  |update 2|
    comm             |  mean of 1   |   |  mean of 2  |
              step 1            step 2           step 3

The all-reduce has a whole step to hide behind: as long as it is shorter than a step, no rank waits
for it. Each gradient was computed at weights that lack the previous update:

    w_(t+1) = w_t - lr * g_(t-1)

All ranks are late by the same step and so hold the same weights: decentralised stale-synchronous
training with staleness 1. The last mean is applied after the last batch; none is lost.

Source: Ben-Nun and Hoefler, "Demystifying Parallel and Distributed Deep Learning", ACM Computing
Surveys 52(4), 2019, section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data.buckets import Bucket, fill_buckets
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import (
    Loss,
    Weight,
    all_reduce_called,
    begin,
    no_mean,
    rows,
    trained,
)
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    all_reduce: str = "ring",
    **options: Unpack[Options],
) -> Result:
    """Train with mean gradients that are one step late: as `data.train`.

    Cost: the bytes of one all-reduce of all gradients, hidden behind the next step.
    """
    reduce, lane = all_reduce_called(all_reduce), comm.lane("comm")  # beside the next step
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)
    whole = fill_buckets(model, float("inf"))  # one for each dtype
    bucket_of = {p: bucket for bucket in whole for p in bucket.parameters}
    in_flight: list[Any] = []  # the all-reduces of the previous step

    def apply_the_mean() -> None:
        """Wait for the mean of the previous step, and update with it."""
        if not in_flight:
            return  # no step before
        for handle in in_flight:
            handle.wait()
        if not all(bucket.weight for bucket in whole):
            no_mean()
        # w_(t+1) = w_t - lr * g_(t-1)
        training.update([bucket_of[p].mean(p) for p in trained(model)])

    def finish(share: float) -> None:
        apply_the_mean()
        for bucket in whole:
            bucket.pack(share)  # a copy: the next backward may overwrite .grad
        # g_t leaves now; the end of step t+1 waits for it.
        in_flight[:] = [lane.submit(_average, reduce, bucket) for bucket in whole]

    return training.run(batches, finish, end=apply_the_mean)


def _average(comm: Comm, reduce: Callable[..., None], bucket: Bucket) -> None:
    with comm.span("collective", "gradients", nbytes=bucket.flat.nbytes):
        reduce(comm, bucket.flat)
