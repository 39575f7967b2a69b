"""Push and pull: what travels between a worker and the server, rank 0.

    push   worker -> server   the gradients of a model, and what they are the mean of
    pull   server -> worker   its weights, and the server's clock

Either is one message for each dtype: the values of all parameters one after the other, a flag for
each (has it a gradient?) and one number more.
"""

from __future__ import annotations

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.buckets import fill_buckets
from dlviz.parallel.replicas import copy_from_rank_0


class Parcel:
    """What was pushed or pulled last, on its way out of `model` or into it."""

    def __init__(self, comm: Comm, model: nn.Module):
        self.comm = comm
        self.buckets = fill_buckets(model, float("inf"))
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}

    def push(self, share: float) -> None:
        """Worker: send the gradients, the mean of `share` examples or tokens."""
        for bucket in self.buckets:
            bucket.pack(share)
            self.comm.send(bucket.flat, 0)

    def pull(self) -> int:
        """Worker: take the server's weights; returns its clock."""
        clock = 0
        for bucket in self.buckets:
            self.comm.recv(bucket.flat, 0)
            for p, (values, _) in bucket.slots.items():
                p.detach().copy_(values.view_as(p))
            clock = int(bucket.weight)
        return clock

    def receive(self) -> int:
        """Server: take the earliest push; returns the worker."""
        worker = None
        for bucket in self.buckets:
            worker = self.comm.recv(bucket.flat, worker)
        assert worker is not None
        return worker

    def means(self, parameters: list[nn.Parameter]) -> list[torch.Tensor | None]:
        """Server: the gradients that were pushed."""
        return [self._bucket_of[p].mean(p) for p in parameters]

    def reply(self, worker: int, clock: int) -> None:
        """Server: send the weights, and its clock."""
        for bucket in self.buckets:
            bucket.open(clock)
            for p, (values, _) in bucket.slots.items():
                values.copy_(p.detach().flatten())
            self.comm.send(bucket.flat, worker)


def check_workers(comm: Comm, name: str) -> None:
    """Raise ValueError where rank 0 serves nobody."""
    if comm.size < 2:
        raise ValueError(
            f"{name} on 1 rank has a server and no worker: rank 0 does not compute; use 2 ranks "
            "or more."
        )


def end_alike(comm: Comm, model: nn.Module) -> None:
    """Give every rank the server's parameters, and the buffers of rank 1: the server has none that
    an example went through."""
    copy_from_rank_0(comm, [*model.parameters()])
    for buffer in model.buffers():
        comm.broadcast(buffer, 1)
