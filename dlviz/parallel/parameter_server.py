"""The synchronous parameter server: rank 0 holds the weights, the others compute gradients.

    worker   forward backward | push |           | pull | forward backward | push |
    server                    | + g1 | + g2 | update | w to 1 | w to 2 |

    w ← rule(w, Σ n_r g_r / Σ n_r)

The sum goes over the workers' shards of a batch, n_r examples each. With `backups=b` it goes over
the first pushes of a step alone: the b slowest workers of each step are not waited for. A push that
comes after its step is dropped and counted, and its worker goes on at the server's step.

The consistency of the other servers is in stale_synchronous.py. Source: Li et al., "Scaling
Distributed Machine Learning with the Parameter Server", OSDI 2014; backup workers: Chen et al.,
"Revisiting Distributed Synchronous SGD", 2016, section 3. PyTorch has none: its tutorial builds one
on torch.distributed.rpc.
"""

from __future__ import annotations

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.push_pull import Parcel, check_workers, end_alike
from dlviz.parallel.shards import (
    Batches,
    Loss,
    Losses,
    Result,
    Weight,
    begin,
    check_batches,
    learn,
    no_mean,
    result,
    rows,
    shard,
    update,
)
from dlviz.parallel.update_rules import Rule


def serve(
    comm: Comm, parcel: Parcel, rule: Rule, parameters: list[nn.Parameter], steps: int, backups: int
) -> int:
    """The server's part; returns how many pushes it dropped."""
    at = dict.fromkeys(range(1, comm.size), 0)  # worker: the step at which it is
    sums = [torch.zeros_like(bucket.flat) for bucket in parcel.buckets]
    dropped = 0

    def drop(worker: int, step: int) -> int:
        at[worker] = step
        parcel.reply(worker, step)
        return 1

    for step in comm.progress(range(steps), "training"):
        with comm.span("phase", f"step {step}", step=step):
            on_time: list[int] = []
            while len(on_time) < len(at) - backups:
                worker = parcel.receive()
                if at[worker] < step:
                    dropped += drop(worker, step)
                    continue
                for total, bucket in zip(sums, parcel.buckets, strict=True):
                    total += bucket.flat  # in the order of arrival
                on_time.append(worker)
            for total, bucket in zip(sums, parcel.buckets, strict=True):
                bucket.flat.copy_(total)
                total.zero_()
                if not bucket.weight:
                    no_mean()
            update(comm, rule, parameters, parcel.means(parameters))
            for worker in on_time:
                at[worker] = step + 1
                parcel.reply(worker, step + 1)
    while min(at.values()) < steps:  # pushes that are still on their way
        dropped += drop(parcel.receive(), steps)
    return dropped


def sync_server(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: str | Rule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float = 0.5,
    backups: int = 0,
) -> Result:
    """Train by a server, rank 0, and workers that share the rows of each batch: as `data.train`.
    Besides, returns how many pushes were `dropped`.

    Raises ValueError without a worker, and where not one worker is waited for.
    Cost per step: the server takes in and sends |w| bytes for each worker, one after the other.
    """
    check_workers(comm, "sync_server")
    workers = comm.size - 1
    if not (isinstance(backups, int) and 0 <= backups < workers):
        raise ValueError(
            f"backups={backups!r} of {workers} workers cannot be left out of a step, which needs a "
            f"gradient: use 0 to {workers - 1}."
        )
    check_batches(batches)
    moves, parameters = begin(comm, model, rule, lr)
    parcel, losses = Parcel(comm, model), Losses(comm, len(batches))
    dropped = torch.zeros(1, dtype=torch.int64)
    if comm.rank == 0:
        dropped += serve(comm, parcel, moves, parameters, len(batches), backups)
    else:
        step = 0
        while step < len(batches):
            with comm.span("phase", f"step {step}", step=step):
                own = shard(batches[step], comm.rank - 1, workers)
                share, mean = learn(comm, model, own, loss, weight)
                losses.add(step, share, mean)
                parcel.push(share)
                step = parcel.pull()
    found = losses.means()
    end_alike(comm, model)
    comm.broadcast(dropped, 0)
    return {**result(found, model), "dropped": int(dropped)}
