"""The gradients of a rank's part after the flush: averaged over the replicas, and clipped.

    axis   what the ranks of the axis have of a parameter's gradient
    dp     each that of its rows: averaged, weighted, in DDP's buckets
    tp     of a cut parameter each its own, of a whole one all the same
    pp     each its own; of tied weights two stages have the same sum

So the squared norm is the sum over tp and pp, in which values that several ranks hold count once.
Source: M. Shoeybi et al., "Megatron-LM", 2019 (its clip_grad_norm); S. Li et al., "PyTorch
Distributed", VLDB 2020 (buckets).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlviz.cluster import Comm
from dlviz.parallel.data.buckets import Bucket
from dlviz.parallel.hybrid.parts import RankPart
from dlviz.parallel.step.sharded_step import all_reduce_called
from dlviz.parallel.tensor.conjugate import reduced
from dlviz.parallel.tensor.parameters import axis_parameters
from dlviz.parallel.update_rules import squares


def average(axis: Comm, buckets: Sequence[Bucket], weight: float, all_reduce: str) -> None:
    """Give every replica the mean of all replicas' gradients; this one's count `weight`.

    Cost: one all-reduce of all gradients, and of a number per parameter and per bucket.
    """
    if axis.size == 1:
        return
    reduce = all_reduce_called(all_reduce)
    for number, bucket in enumerate(buckets):
        bucket.pack(weight)
        fields = {"group": axis.name, "bucket": number, "nbytes": bucket.flat.nbytes}
        with axis.span("collective", f"bucket {number}", **fields):
            reduce(axis, bucket.flat)
        bucket.unpack()


def gradient_norm(mesh: Any, part: RankPart, all_reduce: str) -> float:
    """The joint norm of all gradients, the same on all replicas.

    Cost: two all-reduces of 8 bytes, over tp and over pp.
    """
    held = {each.parameter: each.copies for each in axis_parameters(mesh.tp, part.net)}
    total = torch.zeros((), dtype=torch.float64)
    for p in part.net.parameters():
        if p.grad is not None and p not in part.copied:
            copies = held[p] if p in held else mesh.tp.size
            total += squares([p.grad]) / copies
    for axis in (mesh.tp, mesh.pp):
        if axis.size > 1:
            total = reduced(total, axis, all_reduce, "norm", "backward")
    return total.sqrt().item()
