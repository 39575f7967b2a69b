"""Data parallelism: every rank holds the whole model and a shard of the batch; gradients are
averaged.

The naive method waits for the whole backward pass, then all-reduces one gradient after the other.
DistributedDataParallel (DDP) puts gradients into buckets, in the reverse order of the parameters,
and all-reduces a bucket on its own lane as soon as backward has filled it:

    naive  compute |forward|--------backward--------|ar|ar|ar|ar|ar|ar|ar|update|
    DDP    compute |forward|--------backward--------|wait|update|
           comm               |bucket 0|bucket 1|bucket 2|

The gradient of the mean over the whole batch is the mean of the shards' gradients, weighted by
their numbers of examples n_r: g = sum_r n_r g_r / sum_r n_r. It equals that of one process on the
whole batch.
"""

from __future__ import annotations

import warnings

from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data import ddp, naive
from dlviz.parallel.data.ddp import BUCKET_BYTES, DDP
from dlviz.parallel.data.naive import average_gradients
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import Loss, Result, Weight, rows
from dlviz.parallel.update_rules import Rule

__all__ = ["BUCKET_BYTES", "DDP", "average_gradients", "train"]


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: str | Rule = "sgd",
    *,
    lr: float = 0.5,
    method: str = "ddp",
    all_reduce: str = "ring",
    bucket_bytes: int = BUCKET_BYTES,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    way: str | None = None,
) -> Result:
    """Train `model`, one step for each (inputs, labels) of `batches`, whose rows the ranks share as
    evenly as possible; with more ranks than rows some shards are empty. A worker for `launch`.

    `batches` is a DataLoader, a list or a generator that ends (step/batches.py): of (x, labels),
    for `model(x)`, of (x1, x2, labels), for `model(x1, x2)`, or of dicts with "labels", for
    `model(**others)`.

    `rule` is one of `update_rules.NAMES`, made with `lr`, or a rule. `loss(outputs, labels)` is the
    mean over a shard of `weight(inputs)` items: examples by default. `method` is "ddp" or "naive"
    (`way`, its former name, warns). Returns, on every rank, `losses` (the mean over the whole batch
    before each step's update) and `state` (the trained parameters and buffers, on the CPU).

    Raises ValueError, before training, for batches with unequal numbers of inputs and labels, and
    where two ranks hold different models; and for a batch that weighs nothing.
    """
    if way is not None:
        warnings.warn("way= is called method= now.", DeprecationWarning, stacklevel=2)
        method = way
    if method not in ("ddp", "naive"):
        raise ValueError(f"method={method!r} is unknown: use 'ddp' or 'naive'.")
    options = {"loss": loss, "weight": weight, "lr": lr, "all_reduce": all_reduce}
    if method == "naive":
        return naive.train(comm, model, batches, rule, **options)
    return ddp.train(comm, model, batches, rule, bucket_bytes=bucket_bytes, **options)
