"""Data parallelism in its first form: rank 0 gathers the gradients, updates, copies the net back.

    rank 0   forward backward | + g1 | + g2 | + g3 | update | w to 1 | w to 2 | w to 3 |
    rank 1   forward backward | g1 to 0 |                     | w |
    rank 3   forward backward                 | g3 to 0 |                       | w    |

The update is computed once, and only rank 0 has the rule's state. All gradients and all copies
cross rank 0's link, so a step takes longer the more ranks there are.

In PyTorch: torch.nn.DataParallel, on the GPUs of one process.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.data.buckets import fill_buckets
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.replicas import changed, flat_by_dtype, take
from dlviz.parallel.step.sharded_step import Loss, Weight, begin, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def gather_sum(comm: Comm, row: torch.Tensor) -> None:
    """Add every other rank's `row` to rank 0's, in rank order."""
    with comm.span("collective", "gradients to rank 0", nbytes=row.nbytes):
        if comm.rank != 0:
            comm.send(row, 0)
            return
        for rank in range(1, comm.size):
            arrived = torch.empty_like(row)
            comm.recv(arrived, rank)
            row += arrived


def copy_back(comm: Comm, model: nn.Module) -> None:
    """Give every rank rank 0's parameters and buffers, one rank after the other."""
    for alike, flat in flat_by_dtype([*model.parameters(), *model.buffers()]):
        with comm.span("collective", "the net from rank 0", nbytes=flat.nbytes):
            if comm.rank != 0:
                comm.recv(flat, 0)
                take(model, changed(flat, alike))
                continue
            for rank in range(1, comm.size):
                comm.send(flat, rank)


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train by gathering gradients on rank 0: as `data.train`.

    Cost per batch: 2|w| bytes for each rank but rank 0, which receives and sends (n-1)|w| each.
    """
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)
    whole = fill_buckets(model, float("inf"))  # one for each dtype

    def finish(share: float) -> None:
        for bucket in whole:
            bucket.pack(share)
            gather_sum(comm, bucket.flat)
        if comm.rank == 0:
            for bucket in whole:
                if not bucket.weight:
                    no_mean()
                bucket.unpack()
            training.update()
        copy_back(comm, model)

    return training.run(batches, finish)
