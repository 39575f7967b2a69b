"""Data parallelism: every rank holds the whole model and a shard of the batch; gradients are
averaged.

    train.py            data parallelism by one of two methods: naive or DDP
    naive.py            an all-reduce for each gradient
    ddp.py              buckets (buckets.py) on their own lane (reducer.py), overlapping backward
    accumulation.py     one all-reduce for several backward passes
    central.py          the first form: gradients to rank 0, the net back
    late_all_reduce.py  each mean is applied one step late
    sufficient_factors.py  inputs and output gradients in place of a linear layer's gradient
"""

from dlviz.parallel.data.ddp import BUCKET_BYTES, DDP
from dlviz.parallel.data.naive import average_gradients
from dlviz.parallel.data.train import train

__all__ = ["BUCKET_BYTES", "DDP", "average_gradients", "train"]
