"""The synchronous parameter server: it holds the weights, and workers compute gradients.

    worker   forward backward | push |           | pull | forward backward | push |
    server                    | + g1 | + g2 | update | w to 1 | w to 2 |

    w ← rule(w, Σ n_r g_r / Σ n_r)

The sum goes over the workers' shards of a batch, n_r examples each. With `backups=b` the server
does not wait for the b slowest workers of a step: the sum goes over the other pushes. A push that
arrives after its step is dropped and counted, and its worker goes on at the server's step. A worker
that the run has lost (`launch`, `may_lose`) is one of those b: its shards are not learnt from, and
are counted.

With `servers=k` each of the ranks 0 to k-1 serves a slice of the weights (server_slices.py):

    worker 2   forward backward | slice 0 to 0 | slice 1 to 1 |        | slice 0 | slice 1 |
    worker 3   forward backward | slice 1 to 1 | slice 0 to 0 |                  | slice 0 | slice 1

For less consistent servers see stale_synchronous.py. Source: Li et al., "Scaling Distributed
Machine Learning with the Parameter Server", OSDI 2014; backup workers: Chen et al., "Revisiting
Distributed Synchronous SGD", 2016, section 3. PyTorch has none: its tutorial builds one on
torch.distributed.rpc.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.server.push_pull import Parcel, check_workers, end_alike
from dlviz.parallel.server.server_slices import cut
from dlviz.parallel.step.batches import Batches, shard
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, begin, learn, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.update_rules import AnyRule, Moves, TorchRule


def serve(
    training: Training, parcel: Parcel, steps: int, workers: range, backups: int
) -> tuple[int, int]:
    """Run a server; returns how many pushes it dropped, and how many are missing."""
    comm = training.comm
    at = dict.fromkeys(workers, 0)  # remaining worker -> its step
    sums = [torch.zeros_like(bucket.flat) for bucket in parcel.buckets]  # Σ n_r g_r and Σ n_r
    dropped = missing = 0

    def drop(worker: int, step: int) -> int:
        at[worker] = step
        parcel.reply(worker, step)
        return 1

    for step in comm.progress(range(steps), "training"):
        if not at:
            break  # all workers are lost
        with comm.span("phase", f"step {step}", step=step):
            on_time: list[int] = []
            while len(on_time) < min(len(workers) - backups, len(at)):  # without the b slowest
                worker, came = parcel.receive([each for each in at if each not in on_time])
                if not came:
                    missing += steps - at.pop(worker)
                elif at[worker] < step:  # a gradient at the weights of an earlier step
                    dropped += drop(worker, step)
                else:
                    for total, bucket in zip(sums, parcel.buckets, strict=True):
                        total += bucket.flat  # in the order of arrival
                    on_time.append(worker)
            for total, bucket in zip(sums, parcel.buckets, strict=True):
                bucket.flat.copy_(total)
                total.zero_()
            if all(bucket.weight for bucket in parcel.buckets):
                training.update(parcel.means(training.parameters))
            elif not missing:
                no_mean()
            for worker in on_time:
                at[worker] = step + 1
                parcel.reply(worker, step + 1)  # matches `pull`; all start at the same weights
    while late := [each for each in at if at[each] < steps]:  # their pushes are still in transit
        worker, came = parcel.receive(late)
        if came:
            dropped += drop(worker, steps)
        else:
            missing += steps - at.pop(worker)
    return dropped, missing


def sync_server(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    backups: int = 0,
    servers: int = 1,
    **options: Unpack[Options],
) -> Result:
    """Train by servers, the first ranks, and workers that share the rows of each batch: as
    `data.train`. Also returns how many pushes were `dropped`, and how many are `missing` because
    their worker was lost; the losses are those of the remaining workers.

    Raises ValueError without a worker, with as many `backups` as workers, and for more servers than
    the model has parameters.
    Cost per step: each of k servers receives and sends |w|/k bytes for each worker, one after the
    other.
    """
    check_workers(comm, "sync_server")
    check_servers(comm, servers, backups)
    begin(comm, model)
    slices, workers, counts = cut(model, servers), range(servers, comm.size), (0, 0)
    own = [*slices[comm.rank]] if comm.rank < servers else []
    training = Training(comm, model, rule, lr, options, loss, weight, own, evaluator=servers)
    share_norm(training.moves, comm, servers)
    pairs = training.read_ahead(batches)
    parcels = [Parcel(comm, part, server) for server, part in enumerate(slices)]
    losses = Losses(comm, len(pairs))
    if comm.rank < servers:
        counts = serve(training, parcels[comm.rank], len(pairs), workers, backups)
    else:
        place, step = comm.rank - servers, 0
        first = place % servers  # so that the workers begin at different servers
        while step < len(pairs):
            with comm.span("phase", f"step {step}", step=step):
                own = shard(pairs[step], place, len(workers))  # (B/workers, ...)
                share, mean = learn(comm, model, own, loss, weight)
                losses.add(number := step, share, mean)
                for part in slices:
                    part.take_gradients()  # before the push: each server gets its slice
                for parcel in parcels[first:] + parcels[:first]:
                    parcel.push(share)
                step = max(parcel.pull() for parcel in parcels)  # all servers are at the same step
                training.end_step(number, share, mean)
    dropped, missing = counts
    by_server = [[*part] for part in slices]
    return end_alike(training, losses, by_server, dropped=dropped, missing=missing)


def share_norm(moves: Moves, comm: Comm, servers: int) -> None:
    """Make the norm by which `moves` clips that of all servers' slices. Raises ValueError for a
    torch optimizer on several servers, of which none has a whole parameter."""
    if servers == 1:
        return
    if isinstance(moves.rule, TorchRule):
        raise ValueError(
            f"servers={servers} hold slices of the weights, and a torch optimizer moves whole "
            "parameters: name a rule, 'adam' say, or use servers=1."
        )
    if moves.clip is None:
        return
    group = comm.split(int(comm.rank < servers))
    if group is not None and comm.rank < servers:
        moves.norm = lambda gradients: joint_norm(group, gradients)


def check_servers(comm: Comm, servers: int, backups: int) -> None:
    """Raise ValueError where no worker is left, or the server would wait for none."""
    if not (isinstance(servers, int) and 1 <= servers < comm.size):
        raise ValueError(
            f"servers={servers!r} of {comm.size} ranks leave no worker, or no server: use 1 to "
            f"{comm.size - 1}."
        )
    workers = comm.size - servers
    if not (isinstance(backups, int) and 0 <= backups < workers):
        raise ValueError(
            f"backups={backups!r} of {workers} workers cannot be left out of a step, which needs a "
            f"gradient: use 0 to {workers - 1}."
        )
    if backups and servers > 1:
        raise ValueError(
            f"backups={backups} with servers={servers}: a worker would be on time at one server "
            "and late at another. Use backups=0 or servers=1."
        )
