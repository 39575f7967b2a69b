"""Buckets of gradients that leave on their own lane as soon as they are full, while backward goes
on. The caller puts gradients in, and says when to look for full buckets:

    compute |--------backward--------|wait|
    comm         |bucket 0|bucket 1|bucket 2|

All ranks of a Comm must all-reduce the same bucket at the same time, so buckets leave in their
order: one that is full waits for those before it. Source and PyTorch's form: its DDP has a Reducer
too (ddp.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data.buckets import Bucket
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import all_reduce_called, no_mean

SumBucket = Callable[[Comm, Any, int], None]  # the bucket and its number


class Reducer:
    """Sums buckets (buckets.py, or zero/buckets.py) over `comm` by `sum_bucket` (`summing`), on
    lane "comm"; `spans` are those of this rank's layers. Every rank of `comm` must make one."""

    def __init__(self, comm: Comm, sum_bucket: SumBucket, spans: LayerSpans):
        self._sum_bucket = sum_bucket
        self._lane = comm.lane("comm")  # backward goes on while a bucket is summed
        self._spans = spans
        self._buckets: Sequence[Any] = ()
        self._launched = 0

    def open(self, buckets: Sequence[Any], weight: float) -> None:
        """Begin to fill `buckets`; this rank's gradients weigh `weight`."""
        self._buckets, self._launched = buckets, 0
        for bucket in buckets:
            bucket.open(weight)

    def launch_full(self) -> None:
        """Launch the buckets that are full, in order. The last, which little can hide, is left to
        `collect` where that need not wake the lane."""
        last = len(self._buckets) - 1
        while self._launched <= last and not self._buckets[self._launched].missing:
            if self._launched == last and self._lane.at_once:
                return
            self._spans.end_backward()  # what the bucket holds was computed before it leaves
            self._launch()

    def collect(
        self,
        put: Callable[[nn.Parameter, Bucket], None],
        before: Callable[[nn.Parameter], torch.Tensor | None] = lambda p: None,
    ) -> None:
        """Backward is over: `put` in what is missing, `finish`, and unpack the buckets onto the
        gradients from `before`. Raises ValueError for buckets that weigh nothing."""

        def fill(bucket: Any) -> None:
            for parameter in list(bucket.missing):
                put(parameter, bucket)
            bucket.close()  # else a slot still holds the last step's sum

        for bucket in self.finish(fill):
            if not bucket.weight:
                no_mean()
            bucket.unpack(before)

    def finish(self, fill: Callable[[Any], None]) -> Iterator[Any]:
        """Backward is over: `fill` and launch the buckets that were not full; each bucket, once it
        is summed."""
        while self._launched < len(self._buckets):
            fill(self._buckets[self._launched])
            self._launch()
        for number, bucket in enumerate(self._buckets):
            bucket.handle.wait(bucket=number)  # no backward is left to hide the last one
            yield bucket

    def _launch(self) -> None:
        # Returns immediately; `collect` waits for it.
        bucket = self._buckets[self._launched]
        last = self._launched == len(self._buckets) - 1
        submit = self._lane.at_wait if last else self._lane.submit
        bucket.handle = submit(self._sum_bucket, bucket, self._launched)
        self._launched += 1


def summing(all_reduce: str) -> SumBucket:
    """Sums a bucket by the all-reduce of that name. Raises ValueError for an unknown one."""
    return partial(reduce_bucket, all_reduce_called(all_reduce))


def reduce_bucket(reduce: Callable[..., None], comm: Comm, bucket: Bucket, number: int) -> None:
    """Sum `bucket`, with the weights: Σ n_r g_r and Σ n_r, which `unpack` divides."""
    fields = {"group": comm.name, "bucket": number, "nbytes": bucket.flat.nbytes}
    with comm.span("collective", f"bucket {number}", **fields):
        reduce(comm, bucket.flat)
