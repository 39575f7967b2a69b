"""Reduce-scatter and all-gather of shards: part r belongs to rank r.

An all-reduce is both, one after the other. ZeRO sends no more than data parallelism because it puts
the update between the two halves:

    ddp      reduce-scatter  all-gather             update all
    zero     reduce-scatter  update 1/N  all-gather

Source: dlviz/collectives/ring.py. In PyTorch: reduce_scatter_tensor and all_gather_into_tensor.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.collectives.ring import once_round


def reduce_scatter(comm: Comm, parts: list[torch.Tensor]) -> None:
    """Add up part r of all ranks in place on rank r; its other parts end as partial sums.

    Cost: N-1 steps, each rank sends (N-1)/N of the bytes."""
    once_round(comm, range(comm.size), parts, start=-1, op="sum", first_step=0)


def all_gather(comm: Comm, parts: list[torch.Tensor]) -> None:
    """Copy part r of each rank r to all ranks, in place.

    Cost: N-1 steps, each rank sends (N-1)/N of the bytes."""
    once_round(comm, range(comm.size), parts, start=0, op="copy", first_step=0)


def naive_reduce_scatter(comm: Comm, parts: list[torch.Tensor]) -> None:
    """The same shard by an all-reduce, of which the rank throws away all but its part.

    Cost: twice the bytes of `reduce_scatter`."""
    reduce_scatter(comm, parts)
    all_gather(comm, parts)
