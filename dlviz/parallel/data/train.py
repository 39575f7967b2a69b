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
from typing import Any, Unpack

from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data import ddp, naive
from dlviz.parallel.data.coded_buckets import CodedOptions
from dlviz.parallel.data.ddp import BUCKET_BYTES, DDP
from dlviz.parallel.data.naive import average_gradients
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import Loss, Weight, rows
from dlviz.parallel.step.training import Result
from dlviz.parallel.update_rules import AnyRule

__all__ = ["BUCKET_BYTES", "DDP", "average_gradients", "train"]


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    lr: float | None = None,
    method: str = "ddp",
    all_reduce: str = "ring",
    bucket_bytes: int = BUCKET_BYTES,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    compress: str | None = None,
    feedback: bool = True,
    how: str | None = None,
    way: str | None = None,
    **options: Unpack[CodedOptions],
) -> Result:
    """Train `model`, one step for each (inputs, labels) of `batches`, whose rows the ranks share as
    evenly as possible; with more ranks than rows some shards are empty. A worker for `launch`.

    `batches` is a DataLoader, a list or a generator that ends (step/batches.py): of (x, labels),
    for `model(x)`, of (x1, x2, labels), for `model(x1, x2)`, or of dicts with "labels", for
    `model(**others)`.

    `rule` is one of `update_rules.NAMES`, made with `lr` (by default 0.1, or torch's where the rule
    scales its steps: 0.001 of "adam"); a rule; or a function `parameters -> torch optimizer`.
    `loss(outputs, labels)` is the mean over a shard of `weight(inputs, labels)` items, by default
    what torch's losses count, else examples. `method` is "ddp" or "naive" (`way`, its former name,
    warns).

    `compress`, with "ddp", names a compressor of gradients, one of `compression.NAMES`, whose
    options are keyword arguments too (share=0.01 of "topk"); with `feedback` what a code loses is
    added to the next step's gradient. Codes meet by `how`, one of `collectives.coded.HOW`.

    `options` are those of all strategies: clip, lr_schedule, evaluate, callback, ...
    (`step/training.py`). Every rank starts from rank 0's values.

    Returns, on every rank, a `Result` with `losses`, the mean over the whole batch before each
    step's update, and `state`, the trained parameters and rank 0's buffers, on the CPU.

    Raises ValueError, on every rank, for batches with unequal numbers of inputs and labels, where
    two ranks hold different batches, or models that differ in more than their values; and for a
    batch that weighs nothing. Warns of a rank whose loss is not finite.
    """
    if way is not None:
        warnings.warn("way= is called method= now.", DeprecationWarning, stacklevel=2)
        method = way
    if method not in ("ddp", "naive"):
        raise ValueError(f"method={method!r} is unknown: use 'ddp' or 'naive'.")
    both: Any = {"loss": loss, "weight": weight, "lr": lr, "all_reduce": all_reduce, **options}
    if method == "naive":
        if compress is not None:
            raise ValueError(f"compress={compress!r} is for method='ddp', whose buckets it codes.")
        return naive.train(comm, model, batches, rule, **both)
    codes: Any = {"compress": compress, "feedback": feedback, "how": how}
    return ddp.train(comm, model, batches, rule, bucket_bytes=bucket_bytes, **codes, **both)
