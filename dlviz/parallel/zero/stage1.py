"""ZeRO, stage 1: each rank has the state of the update rule for its shard of the parameters only.

    compute  |forward|---backward---|wait|update of 1/N|            |
    comm               |bucket 0|bucket 1|             | all-gather |

All ranks hold all parameters and all gradients. Adam's state is twice as large as the parameters,
and every rank of data parallelism computes the same update: here each computes 1/N of it, with 1/N
of the state. The gradients that a rank does not need for that are not sent to it, so that nothing
is sent beyond an all-reduce: its first half brings the gradients, its second half the parameters.

Gradients of m microbatches add up on their rank, and are sent once.

Cost: 2(N-1)/N of the parameters, padded, whatever m.
Bytes, float32 and Adam: 8 a parameter and 8/N.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, label
from dlviz.models.mean_of import Weight
from dlviz.parallel.data.accumulation import second_gradient
from dlviz.parallel.data.reducer import Reducer
from dlviz.parallel.step.batch_norm import weigh_norms
from dlviz.parallel.step.hooks import Hook
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import differing, take
from dlviz.parallel.step.sharded_step import no_mean, weigh
from dlviz.parallel.step.training import Training
from dlviz.parallel.zero import rings
from dlviz.parallel.zero.buckets import ShardBucket, cut
from dlviz.parallel.zero.shards import FlatLayer


class Stage1(nn.Module):
    """`model`, called as before, over `layers`, its parameters in shards. `begin_pass` precedes
    each forward, `update` follows the last backward of a step."""

    kind_of_buckets = "gradients"
    sends_every_pass = False  # the gradients of all passes together, after the last

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        layers: list[FlatLayer],
        weight: Weight,
        bucket_bytes: int,
        *,
        naive: bool = False,
        **of_others: Any,
    ):
        super().__init__()
        self.module, self.comm, self.layers = model, comm, layers
        self.names = {p: name for name, p in model.named_parameters()}
        self._weight = weight
        self._scatter = rings.naive_reduce_scatter if naive else rings.reduce_scatter
        self.buckets = cut(layers, bucket_bytes, comm.size, self.kind_of_buckets)
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        self._places = {p: place for place, p in enumerate(self._bucket_of, 1)}
        self._counts = torch.zeros(1 + len(self._places), dtype=torch.float64)
        self.before_spans()
        spans = LayerSpans(comm, model)
        self._reducer = Reducer(comm, self.send, spans)
        for p in self._bucket_of:
            p.register_post_accumulate_grad_hook(Hook(self.gradient_ready))
        for layer in layers:
            label("parameters", layer.flat, layer.shard, layer.rounded)
            if layer.shard.dtype != layer.flat.dtype:  # the master, of the rule's 12 bytes
                label("optimizer", layer.shard)

    def before_spans(self) -> None:
        """Register what comes before a layer's span."""

    # -- a pass: forward and backward of a microbatch ------------------------------------------
    def begin_pass(self, first: bool, last: bool) -> None:
        """A forward follows, the `first` or `last` of its step."""
        self._sends = last or self.sends_every_pass
        if first:
            self._counts.zero_()

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self.module(*inputs, **keywords)
        take(self.module, differing(self.comm, [*self.module.buffers()]))
        share = weigh(self.comm, self._weight, *inputs, **keywords)  # n_r of Σ n_r g_r / Σ n_r
        weigh_norms(self.module, share)
        self._counts[0] += share
        self._reducer.open(self.buckets, share)
        return self.module(*inputs, **keywords)

    def gradient_ready(self, p: nn.Parameter) -> None:
        """Hook: backward has computed the gradient of `p`."""
        bucket, gradient = self._bucket_of[p], p.grad
        if p not in bucket.missing:
            second_gradient(p)
        assert gradient is not None
        self.open_bucket(bucket)
        bucket.put(p, gradient)
        p.grad = None  # it is in the bucket
        if bucket.weight:
            self._counts[self._places[p]] = 1  # some example used it
        if self._sends:
            self._reducer.launch_full()

    def open_bucket(self, bucket: ShardBucket) -> None:
        """Have memory for gradients: until the update, as all passes of the step add to them."""
        bucket.take()

    def end_pass(self) -> None:
        """Backward is over: send the buckets that have parameters without a gradient."""
        if self._sends:
            deque(self._reducer.finish(self.open_bucket), maxlen=0)

    def send(self, comm: Comm, bucket: ShardBucket, number: int) -> None:
        """Lane: bring each rank the sums of its shards, Σ n_r g_r."""
        fields = {"group": comm.name, "bucket": number, "nbytes": bucket.flat.nbytes}
        with comm.span("collective", f"bucket {number}", layers=bucket.names, **fields):
            self._scatter(comm, bucket.rows)
        self.receive(bucket)

    def receive(self, bucket: ShardBucket) -> None:
        """Lane: `bucket` has the sums."""
        for layer, own in bucket.own(self.comm.rank):
            layer.gradient = own

    # -- the update ----------------------------------------------------------------------------
    def update(self, training: Training) -> None:
        """Move this rank's shards against their mean gradient, and give them to all ranks."""
        self.comm.all_reduce(self._counts)  # by the backend: a number a parameter
        total, *used = self._counts.tolist()
        if not total:
            no_mean()
        gradients = []
        for layer in self.layers:
            layer.check_unchanged(self.names)
            assert layer.gradient is not None
            mean = layer.gradient.to(layer.shard.dtype).div_(total)  # Σ n_r g_r / Σ n_r
            gradients += [
                mean[piece.at] if used[self._places[piece.parameter] - 1] else None
                for piece in layer.pieces
            ]
        training.update(gradients)  # clipped by the joint norm of all shards
        self.free_gradients()
        self.share()

    def free_gradients(self) -> None:
        """The update is done."""
        for layer in self.layers:
            layer.gradient = None
        for bucket in self.buckets:
            bucket.free()

    def share(self) -> None:
        """Give all ranks the new parameters."""
        for layer in self.layers:
            fields = {"group": self.comm.name, "layer": layer.name, "nbytes": layer.flat.nbytes}
            with self.comm.span("collective", f"gather {layer.name}", **fields):
                if layer.own is not layer.shard:
                    layer.own.copy_(layer.shard)  # bfloat16 of the float32 master
                rings.all_gather(self.comm, layer.parts)

    def close(self) -> None:
        """After an error: free what it had taken, once the lane no longer works on it."""
        for bucket in self.buckets:
            if bucket.handle is not None:
                bucket.handle.settle()
        self.free_gradients()
