"""Push and pull: the messages between a worker and the server, rank 0.

    push   worker -> server   the gradients of a model, and their weight
    pull   server -> worker   its weights, and the server's clock

Each is one message per dtype: the values of all parameters one after the other, a flag for each
(has it a gradient?) and one more number.

While they train, workers communicate only with the server, so that a lost worker affects no other:
the server learns of it where it would have received the next push, and goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, RankLost
from dlviz.parallel.data.buckets import fill_buckets
from dlviz.parallel.step.replicas import copy_from, take
from dlviz.parallel.step.sharded_step import Losses
from dlviz.parallel.step.training import Result, Training


class Parcel:
    """The buffers of a push or a pull, out of `model` or into it; `server` is the rank that holds
    the weights."""

    def __init__(self, comm: Comm, model: nn.Module, server: int = 0):
        self.comm = comm
        self.server = server
        self.buckets = fill_buckets(model, float("inf"))  # one for each dtype
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}

    def push(self, share: float) -> None:
        """Worker: send the gradients, the mean of `share` examples or tokens."""
        for bucket in self.buckets:
            bucket.pack(share)
            self.comm.send(bucket.flat, self.server)  # matches the server's `receive`

    def pull(self) -> int:
        """Worker: take the server's weights; returns its clock."""
        clock = 0
        for bucket in self.buckets:
            self.comm.recv(bucket.flat, self.server)  # matches the server's `reply`
            for p, (values, _) in bucket.slots.items():
                p.detach().copy_(values)
            clock = int(bucket.weight)
        return clock

    def receive(self, workers: Collection[int]) -> tuple[int, bool]:
        """Server: take the earliest push (see `receive` below)."""
        return receive(self.comm, [bucket.flat for bucket in self.buckets], workers)

    def means(self, parameters: Iterable[Any]) -> list[torch.Tensor | None]:
        """Server: the gradients that were pushed."""
        return [self._bucket_of[p].mean(p) for p in parameters]

    def reply(self, worker: int, clock: int) -> None:
        """Server: send the weights, and its clock."""
        for bucket in self.buckets:
            bucket.open(clock)  # in the cell where a push has its share
            for p, (values, _) in bucket.slots.items():
                values.copy_(p.detach())
        reply(self.comm, [bucket.flat for bucket in self.buckets], worker)


def receive(comm: Comm, tensors: list[torch.Tensor], workers: Collection[int]) -> tuple[int, bool]:
    """Server: receive the first messages that any of the `workers` sends, one for each of the
    `tensors`. Returns the worker, and True; or a lost worker, and False."""
    source: int | Collection[int] = workers
    try:
        for tensor in tensors:
            source = comm.recv(tensor, source)  # the first from any worker, the rest from the same
    except RankLost as error:
        return comm.members.index(error.rank), False  # the error names a rank of the run
    assert isinstance(source, int)
    return source, True


def reply(comm: Comm, tensors: list[torch.Tensor], worker: int) -> None:
    """Server: send the `tensors`, a message each, if the worker is not lost."""
    with suppress(RankLost):  # the server's next receive from it reports the loss
        for tensor in tensors:
            comm.send(tensor, worker)


def check_workers(comm: Comm, name: str) -> None:
    """Raise ValueError where rank 0 has no worker."""
    if comm.size < 2:
        raise ValueError(
            f"{name} on 1 rank has a server and no worker: rank 0 does not compute; use 2 ranks "
            "or more."
        )


def dealt(comm: Comm, worker: int, batches: int) -> range:
    """The batches of a worker that shares none: rank 1 of n takes 0, n-1, 2(n-1), ..."""
    return range(worker - 1, batches, comm.size - 1)


def end_alike(
    training: Training,
    losses: Losses,
    served: list[list[nn.Parameter]] | None = None,
    **counts: int,
) -> Result:
    """The result on every remaining rank: the losses that the remaining workers have seen, nan for
    a step that none has; the parameters of each server (`served`, by default rank 0's); the buffers
    of the first worker, as no example went through a server's; and of several servers' `counts` the
    highest, as a push that one server lacks is missing.
    """
    comm, model = training.comm, training.model
    served = served or [[*model.parameters()]]
    buffers = list(model.buffers())
    summary = torch.tensor([*counts.values()])

    def end(left: Comm) -> list[float]:
        found = losses.means(left)
        for server, parameters in enumerate(served):
            copy_from(left, parameters, server)
        for mine, values in zip(buffers, theirs, strict=True):
            values.copy_(mine)  # a retry after a loss starts from this rank's again
            left.broadcast(values, min(len(served), left.size - 1))
        left.all_reduce(summary, "max")
        return found

    theirs = [torch.empty(b.shape, dtype=b.dtype, device=b.device) for b in buffers]
    found = comm.together(end, needed=range(len(served)))
    take(model, zip(buffers, theirs, strict=True))
    return training.result(found, **dict(zip(counts, summary.tolist(), strict=True)))
