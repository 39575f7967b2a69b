"""DistributedDataParallel: buckets of gradients are all-reduced while backward goes on.

A bucket leaves on its own lane as soon as backward has filled it, in the same order on all ranks,
so that communication and computation overlap. reducer.py decides when one leaves:

    compute |forward|--------backward--------|wait|update|
    comm               |bucket 0|bucket 1|bucket 2|

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
2020. In PyTorch: torch.nn.parallel.DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.compression import Compressor
from dlviz.models.mean_of import in_step
from dlviz.parallel.data.accumulation import Accumulation
from dlviz.parallel.data.buckets import Bucket, cut
from dlviz.parallel.data.coded_buckets import CodedBuckets, CodedOptions, compressor_of
from dlviz.parallel.data.reducer import Reducer, summing
from dlviz.parallel.step.batch_norm import weigh_norms
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.hooks import at_end_of_backward, no_graph, tensors_in, writes_gradients
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import differing, start_alike, take
from dlviz.parallel.step.sharded_step import (
    Loss,
    Weight,
    counting,
    rows,
    weigh,
)
from dlviz.parallel.step.trained_parameters import TrainedParameters
from dlviz.parallel.step.training import Result, Training
from dlviz.parallel.update_rules import AnyRule

BUCKET_BYTES = 25 * 2**20  # as torch's


class DDP(nn.Module):
    """`model`, called as before; its gradients are averaged over all ranks when `backward()`
    returns. docs/ddp.md compares it with torch's.

    All ranks hold the same model (ValueError names two that do not). They start from rank 0's
    parameters and buffers, and each training forward from rank 0's buffers: one that differs is
    replaced, not written, since an earlier forward's graph may hold it. `weight`, called with
    the inputs of a forward, counts what this rank's loss is the mean of: examples by default (dim 0
    of the first tensor), or target tokens, say. `all_reduce` is one of `collectives.ALGORITHMS`
    (ours) or "backend" (gloo's or NCCL's). Every rank must call backward once per training forward.
    A parameter may get no gradient on some or all ranks, and be frozen, unfrozen, added or replaced
    between steps, alike on all ranks.

    With a `compressor` (`compression.make`) buckets are coded, and their codes meet by `how`, one
    of `coded.HOW`; with `feedback` what a code loses is added to the next step's gradient, and
    belongs to this rank's state_dict.

    Cost: the bytes of one all-reduce of all gradients, in ceil(bytes / bucket_bytes) pieces or
    more, all but the last bucket hidden behind the backward pass; or those of the codes
    (collectives/coded.py), and an all-reduce of a number per parameter and bucket.
    """

    def __init__(
        self,
        model: nn.Module,
        comm: Comm,
        all_reduce: str = "ring",
        bucket_bytes: int = BUCKET_BYTES,
        weight: Weight = rows,
        compressor: Compressor | None = None,
        feedback: bool = True,
        how: str | None = None,
    ):
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"the first argument is a {type(model).__name__}, and DDP wraps a module: "
                "DDP(model, comm)."
            )
        sum_bucket = summing(all_reduce)  # raises for an unknown name
        start_alike(comm, model)  # else equal mean gradients would move unequal weights
        self.module = model
        self.comm = comm
        self.weight = weight
        self.codes = None
        if compressor is not None:
            self.codes = CodedBuckets(comm, compressor, how, feedback, all_reduce, self._name)
            sum_bucket = self.codes.sum_bucket
        self._reducer = Reducer(comm, sum_bucket, LayerSpans(comm, model))
        self._trained = TrainedParameters(
            model, lambda gradient: self._begin_backward(), self._gradient_ready
        )
        self._local = Accumulation()  # this rank's gradients, until they are averaged
        self._cut = partial(cut, bucket_bytes=bucket_bytes, counters=1)
        self._fill()
        self._syncs = self._averages = True  # from now on; in the current pass
        self._share = 1.0
        self._in_backward = False

    def _fill(self) -> None:
        self.buckets = self._cut(self._trained.parameters)
        if self.codes is not None:
            self.codes.fit(self.buckets)
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}

    def _name(self, parameter: nn.Parameter) -> str:
        return next(name for name, p in self.module.named_parameters() if p is parameter)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A forward inside the `with` and its backward leave their gradients on this rank. The
        first backward of a forward outside averages them with its own in one all-reduce.

        k backward passes add up to k times the mean over all examples of all passes and ranks, as
        without `no_sync`: for the mean divide each loss by k, as with torch's. Until then `.grad`
        is this rank's own mean gradient, which may be clipped, cleared or stepped with.
        """
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self.module(*inputs, **keywords)
        self._trained.look()
        self._averages = self._syncs
        if self._averages:  # a BatchNorm's differ by shard
            take(self.module, differing(self.comm, list(self.module.buffers())))
        self._share = weigh(self.comm, self.weight, *inputs, **keywords)  # n_r of Σ n_r g_r / Σ n_r
        weigh_norms(self.module, self._share)
        output = self.module(*inputs, **keywords)
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._begin_backward())  # the first hook
        return output

    def _begin_backward(self) -> None:
        """Hook: before the first gradient of a pass."""
        if self._in_backward or not writes_gradients(self._trained.hooked):
            return
        if torch.is_grad_enabled():
            no_graph()
        self._in_backward = True
        at_end_of_backward(self._finish_backward)  # an unused parameter never calls its hook
        self._local.begin(self._share, self._trained.hooked, self._averages)
        if self._averages:
            self._open(self.buckets)

    def _open(self, buckets: list[Bucket]) -> None:
        self._reducer.open(buckets, self._local.weight)
        for bucket in buckets:
            bucket.counters.fill_(self._trained.changed)

    def _gradient_ready(self, parameter: nn.Parameter) -> None:
        """Hook: `parameter` has its gradient. Launch the buckets that are full."""
        self._local.add(parameter)
        if self._averages and parameter in self._bucket_of:
            self._local.put(parameter, self._bucket_of[parameter])
            self._reducer.launch_full()

    def _finish_backward(self) -> None:
        """Hook: the pass is over. Average the gradients."""
        self._in_backward = False
        self._local.end()
        if not self._averages:
            self._local.pause(self._trained.hooked)
            return
        put, before = self._local.put, self._local.before  # also gradients of earlier passes
        self._reducer.collect(put, before)
        if any(bucket.counters.real.any() for bucket in self.buckets):  # true on all ranks, or none
            late = self._cut(self._trained.agree(self.comm))
            if self.codes is not None:
                self.codes.fit(late)
            self._open(late)
            self._reducer.collect(put, before)
            self._fill()
        self._local.forget()


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
    bucket_bytes: int = BUCKET_BYTES,
    compress: str | None = None,
    feedback: bool = True,
    how: str | None = None,
    **options: Unpack[CodedOptions],
) -> Result:
    """Train with `DDP`: as `data.train`."""
    compressor = compressor_of(compress, options)
    training = Training(comm, model.to(comm.device), rule, lr, options, loss, weight)
    weight = counting(loss, weight)
    of_batches, of_forwards = (rows, rows) if weight is rows else in_step(weight)
    codes = compressor, feedback, how
    net = DDP(model, comm, all_reduce, bucket_bytes, of_forwards, *codes)
    return training.run(batches, lambda _: training.update(), net=net, weight=of_batches)
