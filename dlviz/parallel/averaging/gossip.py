"""Gossip: after each step a rank averages its model with its neighbours'; there is no all-reduce.

    ring       w_r ← (w_(r-1) + w_r + w_(r+1)) / 3
    matching   w_r ← (w_r + w_q) / 2        q the partner of r in a random perfect matching

A rank waits only for its neighbours. Averaging never moves the mean of all models, but they are no
longer equal. Without gradients their disagreement, the distance from that mean, shrinks each round
by the second largest eigenvalue of the averaging,

    ring       max |1 + 2 cos(2πk/n)| / 3, k = 1, ..., n-1        (8 ranks: 0.8047)
    matching   (n-2) / (2(n-1)) of its mean square                (8 ranks: 3/7)

since a partner's model is any of the n-1 others, whose sum is minus one's own.

Source: Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NIPS 2017;
matching: Boyd et al., "Randomized Gossip Algorithms", IEEE Trans. Inf. Theory 52(6), 2006.
"""

from __future__ import annotations

import math
import random
from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.replicas import flat_by_dtype, spread
from dlviz.parallel.step.sharded_step import Loss, Weight, begin, rows, trained
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def check_topology(ranks: int, topology: str) -> None:
    """Raise ValueError for an unknown `topology`, or an odd number of ranks to match."""
    check_counts(ranks=ranks)
    if topology not in ("ring", "matching"):
        raise ValueError(f"topology={topology!r} is not known: use 'ring' or 'matching'.")
    if topology == "matching" and ranks % 2:
        raise ValueError(
            f"topology='matching' pairs the ranks, and {ranks} leave one over: use an even number "
            "of ranks, or 'ring'."
        )


def contraction(ranks: int, topology: str) -> float:
    """The factor by which a round shrinks the disagreement (ring), or the mean of its square
    (matching). Raises ValueError as `check_topology`."""
    check_topology(ranks, topology)
    if topology == "matching":
        return (ranks - 2) / (2 * (ranks - 1))
    turns = (2 * math.pi * k / ranks for k in range(1, ranks))  # not k = 0, eigenvalue 1: the mean
    return max((abs(1 + 2 * math.cos(turn)) / 3 for turn in turns), default=0.0)


def neighbours(rank: int, ranks: int, topology: str, number: int) -> tuple[int, ...]:
    """The ranks with which `rank` averages in round `number`, the seed of the matching on all
    ranks."""
    check_counts(ranks=ranks)
    if ranks == 1:
        return ()
    if topology == "ring":
        return (rank - 1) % ranks, (rank + 1) % ranks  # of 2 ranks the same one twice
    order = random.Random(number).sample(range(ranks), ranks)  # the round is the seed
    place = order.index(rank)
    return (order[place ^ 1],)  # 0 with 1, 2 with 3, ...


def mix(comm: Comm, tensors: list[torch.Tensor], topology: str, number: int) -> None:
    """Average `tensors`, in place, with those of this rank's neighbours in round `number`.

    Cost: each rank sends its tensors to 2 others (ring), or to 1 (matching).
    """
    others = neighbours(comm.rank, comm.size, topology, number)
    if not others:
        return
    for alike, flat in flat_by_dtype(tensors):
        with comm.span("collective", "models of neighbours", nbytes=flat.nbytes):
            arrived = [torch.empty_like(flat) for _ in others]  # apart from flat, in transit
            # irecv and isend return immediately: a blocking `send` would deadlock the ring.
            receiving = [
                comm.irecv(theirs, other) for theirs, other in zip(arrived, others, strict=True)
            ]
            sending = [comm.isend(flat, other) for other in others]
            for request in [*receiving, *sending]:
                request.wait()  # for the sends too: flat changes below
        for theirs in arrived:
            flat += theirs
        spread(flat / (1 + len(others)), alike)  # (w_(r-1) + w_r + w_(r+1)) / 3, or (w_r + w_q) / 2


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    topology: str = "ring",
    **options: Unpack[Options],
) -> Result:
    """Train with models that neighbours average after each step: as `data.train`, but each rank's
    `state` is its own model.

    Raises ValueError as `check_topology`.
    Cost per step: 2|w| bytes from each rank (ring), |w| (matching), however many ranks there are.
    """
    check_topology(comm.size, topology)
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)
    number = 0

    def finish(share: float) -> None:
        nonlocal number
        if share:
            training.update()
        mix(comm, [p.detach() for p in trained(model)], topology, number)
        number += 1

    return training.run(batches, finish, alike=False)
