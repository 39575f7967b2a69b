"""The gradients of a rank's part: averaged over the replicas, and clipped.

    axis   what the ranks of the axis have of a parameter's gradient
    dp     each that of its rows: averaged, weighted, in DDP's buckets
    tp     of a cut parameter each its own, of a whole one all the same
    pp     each its own; of tied weights two stages have the same sum

So the squared norm is the sum over tp and pp, in which values that several ranks hold count once.
Source: M. Shoeybi et al., "Megatron-LM", 2019 (its clip_grad_norm); S. Li et al., "PyTorch
Distributed", VLDB 2020 (buckets).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data.accumulation import second_gradient
from dlviz.parallel.data.buckets import Bucket, cut
from dlviz.parallel.data.reducer import Reducer, summing
from dlviz.parallel.hybrid.parts import RankPart
from dlviz.parallel.pipeline.shared_parameters import shared_by_ranks
from dlviz.parallel.pipeline.stage_worker import own
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import trained
from dlviz.parallel.tensor.conjugate import reduced
from dlviz.parallel.tensor.parameters import axis_parameters
from dlviz.parallel.update_rules import squares
from dlviz.schedules import Action, Schedule


class Averaging:
    """Gives every replica the mean of all replicas' gradients: after the flush, or with `overlap`
    in buckets that leave during the last backwards.

    With `overlap` a bucket leaves once each of its gradients has all microbatches: in the last
    backward, of all that this rank's `row` of the schedule has, through the last stage with the
    parameter. Gradients that are `incomplete` after the flush, since other ranks of the replica add
    to them, come last, in buckets of their own.

    Choose buckets much smaller than a rank's gradients: one full at the end of a backward
    only holds up the message to the previous stage. Under zb_h1 nothing overlaps, since a rank has
    all gradients at the end of its last W. `sim.plans` predicts both.

    Cost of a step: one all-reduce of all gradients, and of a number per parameter and per bucket.
    """

    def __init__(
        self,
        axis: Comm,
        part: RankPart,
        row: Sequence[Action],
        layers: LayerSpans,
        incomplete: Collection[nn.Parameter],
        bucket_bytes: float,
        all_reduce: str,
        overlap: bool,
    ):
        self._axis, self._weight, self._layers = axis, 0.0, layers
        self._sum_bucket = summing(all_reduce)
        self._reducer = (
            Reducer(axis, self._sum_bucket, layers) if overlap and axis.size > 1 else None
        )
        last = incomplete if self._reducer else ()
        by_place = [[p for p in trained(part.net) if (p in last) is late] for late in (False, True)]
        self._buckets = [bucket for place in by_place for bucket in cut(place, bucket_bytes)]
        if self._reducer is None:
            return
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        # The action in which each parameter's gradient becomes complete: later ones replace it.
        self._completes = {
            p: half
            for action in row
            for half in action.halves
            if half.kind in "BW"
            for p in own(part.stages, half.stage).parameters()
        }
        for p in by_place[False]:
            p.register_post_accumulate_grad_hook(self._gradient_ready)

    def begin(self, weight: float) -> None:
        """Before the step: this replica's gradients count `weight`."""
        self._weight = weight
        if self._reducer is not None:
            self._reducer.open(self._buckets, weight)

    def end(self) -> None:
        """After the flush: average what has not been averaged yet."""
        if self._reducer is not None:
            self._reducer.collect(self._put)
        elif self._axis.size > 1:
            for number, bucket in enumerate(self._buckets):
                bucket.pack(self._weight)
                self._sum_bucket(self._axis, bucket, number)
                bucket.unpack()

    def _gradient_ready(self, p: nn.Parameter) -> None:
        """Hook: a backward has added to the gradient of `p`."""
        if self._reducer is not None and self._layers.action == self._completes[p]:
            if p not in self._bucket_of[p].missing:
                second_gradient(p)
            self._put(p, self._bucket_of[p])
            self._reducer.launch_full()

    def _put(self, p: nn.Parameter, bucket: Bucket) -> None:
        if p.grad is not None and self._weight:
            bucket.put(p, p.grad, self._weight)


def incomplete(mesh: Any, part: RankPart, plan: Schedule, sequence_parallel: bool) -> set[Any]:
    """The parameters to whose gradients other ranks of the replica add after the flush: those that
    stages of several ranks share, and under sequence parallelism those that are not cut."""
    found: set[Any] = {p for p, _ in shared_by_ranks(part.stages, plan.stage_rank)}
    if sequence_parallel:
        found |= {each.parameter for each in axis_parameters(mesh.tp, part.net) if each.cut is None}
    return found


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
