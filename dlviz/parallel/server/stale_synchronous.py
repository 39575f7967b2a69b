"""The asynchronous server, and the stale-synchronous one that bounds how far a worker runs ahead.

    server      |recv 2|update|w to 2|recv 1|update|w to 1|   |recv 2|update|w to 2|
    worker 1    forward backward | push | ........ | pull | forward backward | push
    worker 2    forward backward | push | pull | forward backward | push | pull | forward

Each push is applied on arrival, one at a time:

    w ← rule(w, g_i(w'))        w' the weights that worker i pulled last, which others moved since

Worker i of p takes batches i, i + p, ...; its clock c is how many gradients it has pushed. Its pull
is answered, and its next iteration begins, when the slowest worker's clock is c - s or more:

    s = ∞   asynchronous: immediately
    s = 0   synchronous: all wait for the slowest, and pull the same weights. The clock is a step of
            `sync_server`, in which the workers share the rows of a batch

A worker that has pushed its last gradient delays no other, nor does one that the run has lost
(`launch`, `may_lose`). The batches that a lost worker had yet to push are not learnt from, and are
counted: the others go on with their own, as in Dean et al.

Source: the lecture's "asynchronous SGD", whose master locks the weights (here it serves one worker
at a time); Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012; Ho et al., "More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.server.parameter_server import sync_server
from dlviz.parallel.server.push_pull import Parcel, check_workers, dealt, end_alike
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, begin, learn_whole, rows, trained
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def serve(training: Training, parcel: Parcel, batches: int, bound: float) -> int:
    """Run the server; returns how many gradients lost workers did not push."""
    comm = training.comm
    workers = range(1, comm.size)
    left = {each: len(dealt(comm, each, batches)) for each in workers}
    clock = dict.fromkeys(workers, 0)  # c: its applied pushes
    held: list[int] = []  # workers whose push was applied, but whose pull is not answered yet
    missing = 0
    for number in comm.progress(range(batches), "training"):
        # Only these can push: a worker that is held waits in its `pull`.
        computing = [each for each in left if left[each] and each not in held]
        if not computing:
            break  # the other batches were lost workers'
        with comm.span("phase", f"update {number}", step=number):
            worker, came = parcel.receive(computing)  # in order of arrival
            if came:
                gradients = parcel.means(training.parameters)
                # w ← rule(w, g_i(w')): w may have moved since worker i pulled w'.
                training.update(gradients, peer=comm.members[worker])
                clock[worker] += 1
                left[worker] -= 1
                held.append(worker)
            else:
                missing += left.pop(worker)  # out of the minimum below, or it would block all
            slowest = min((clock[each] for each in left if left[each]), default=math.inf)
            # c - s ≤ slowest: these may begin their next iteration.
            free = [each for each in held if clock[each] - bound <= slowest or not left[each]]
            for each in free:
                held.remove(each)
                parcel.reply(each, clock[each])  # matches the worker's `pull`
    return missing


def async_server(
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
    """Train by a server, rank 0, that applies each worker's gradient on arrival: as `data.train`,
    but `losses` are each batch's at the weights that its worker had, nan where that is lost. Also
    returns how many batches are `missing` because their worker was lost.

    Cost per batch: |w| bytes to the server and as many back.
    """
    how: Any = {"loss": loss, "weight": weight, "lr": lr, "bound": math.inf, **options}
    return stale_synchronous(comm, model, batches, rule, **how)


def stale_synchronous(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    bound: float = 1,
    **options: Unpack[Options],
) -> Result:
    """Train with no worker more than `bound` iterations ahead of the slowest: as `async_server`.

    Raises ValueError for an invalid bound, and without a worker.
    """
    if not (isinstance(bound, int | float) and bound >= 0 and bound in (bound // 1, math.inf)):
        raise ValueError(
            f"bound={bound!r} is no number of iterations by which a worker may be ahead: use 0, 1, "
            "2, ... or math.inf."
        )
    check_workers(comm, "a parameter server")
    if bound == 0:
        how: Any = {"loss": loss, "weight": weight, "lr": lr, **options}
        return sync_server(comm, model, batches, rule, **how)
    parameters = trained(model) if comm.rank == 0 else []
    given = comm, model, rule, lr, options, loss, weight, parameters
    training = Training(*given, evaluator=1)
    pairs = training.read_ahead(batches)
    begin(comm, model)
    parcel, losses, missing = Parcel(comm, model), Losses(comm, len(pairs)), 0
    if comm.rank == 0:
        missing = serve(training, parcel, len(pairs), bound)
    else:
        for number in dealt(comm, comm.rank, len(pairs)):
            with comm.span("phase", f"step {number}", step=number):
                mean = learn_whole(comm, model, pairs[number], loss, weight)
                losses.add(number, 1, mean)
                parcel.push(1.0)  # a batch of its own: every push counts the same
                parcel.pull()  # blocks until `serve` finds this worker free
                training.end_step(number, 1, mean)
    return end_alike(training, losses, missing=missing)
