"""ZeRO: data parallelism in which no rank holds what another one holds already.

    on N ranks, bytes a parameter          parameters  gradients  Adam   traffic, in (N-1)/N
                                           (float32)                     of the parameters
    every rank holds everything (ddp)      4           4          8      2
    stage 1  shards of the update rule     4           4          8/N    2 (naive: 3)
    stage 2  shards of the gradients too   4           4/N        8/N    1 + m
    stage 3  shards of the parameters too  4/N         4/N        8/N    3m (2m, if layers stay
                                                                         until their backward)

m is the number of microbatches whose gradients make one update.

    shards.py       a layer's parameters as one flat vector, cut into N equal shards
    rings.py        reduce-scatter and all-gather of shards, and the naive form
    buckets.py      gradients of several layers in one message
    stage1.py       gradients are reduce-scattered once, the shard is updated, all gather
    stage2.py       gradients are reduce-scattered in every backward, and freed
    stage3.py       a layer is gathered before it computes, and freed after it
    gathered.py     when a layer of stage 3 is gathered: ahead of time, or as it is read
    checkpoint.py   shards in files that any other number of ranks can load
    train.py        training by one of the stages

Source: S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: Memory Optimizations Toward Training
Trillion Parameter Models", SC 2020. In PyTorch: torch.distributed.optim.ZeroRedundancyOptimizer
(stage 1), torch.distributed.fsdp.fully_shard (stages 2 and 3).
"""

from dlviz.parallel.zero.shards import shard
from dlviz.parallel.zero.train import train

__all__ = ["shard", "train"]
