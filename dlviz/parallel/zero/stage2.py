"""ZeRO, stage 2: each rank also has the gradients of its shard of the parameters only.

    compute  |forward|---backward---|wait|update of 1/N|            |
    comm               |bucket 0|bucket 1|             | all-gather |
    memory              ^ taken  ^ freed, 1/N stays

Backward computes all gradients on every rank. As soon as a bucket of them has been reduce-scattered
its memory is freed, and the rank's own shard is added to those of earlier microbatches: so every
microbatch sends its gradients. A second bucket is opened when the first has gone.

With one bucket for the whole model, stage 2 needs as much as stage 1 at its peak.

Cost: m + 1 times (N-1)/N of the parameters, padded, with m microbatches.
Bytes, float32 and Adam: 4 a parameter and 12/N, and a bucket.
"""

from __future__ import annotations

from dlviz.cluster import label
from dlviz.parallel.zero.buckets import ShardBucket
from dlviz.parallel.zero.stage1 import Stage1


class Stage2(Stage1):
    """As `Stage1`; between passes a rank holds its shards of the gradients."""

    kind_of_buckets = "communication"
    sends_every_pass = True

    def open_bucket(self, bucket: ShardBucket) -> None:
        """Have memory for gradients, once the bucket before has given its own back."""
        number = self.buckets.index(bucket)
        before = self.buckets[number - 1].handle if number else None
        if before is not None and not bucket.held:
            before.wait(bucket=number - 1)
        bucket.take()

    def receive(self, bucket: ShardBucket) -> None:
        """Lane: `bucket` has the sums. Add this rank's to those of earlier passes, free all."""
        for layer, own in bucket.own(self.comm.rank):
            if layer.gradient is None:
                layer.gradient = own.clone()
                label("gradients", layer.gradient)
            else:
                layer.gradient += own
        bucket.free()
