"""What is cold in a fresh process, done once before the start line of a paced run: connections, the
first message and collective of a kind, autograd's first backward. Later it would take milliseconds
that belong to no operation of the program's.

Layers above add what they have: `@rehearsed` on a function of a Comm, all ranks of which call it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
from torch import nn

from dlviz.cluster.messages.comm import Comm
from dlviz.cluster.pacing.pace import NoDevice
from dlviz.cluster.process import Process
from dlviz.cluster.recording.log import Log
from dlviz.trace.recorder import Recorder

GROUP = 0  # no other communicator's
ROUNDS = 3
_rehearsals: list[Callable[[Comm], None]] = []


def rehearsed(function: Callable[[Comm], None]) -> Callable[[Comm], None]:
    """Have the ranks of every paced run call this once before they start."""
    _rehearsals.append(function)
    return function


def warm_up(process: Process, ranks: int) -> None:
    """All ranks call it. Nothing of it is recorded or paced."""
    scratch = copy.copy(process)
    scratch.pacing = NoDevice()
    scratch.groups = copy.copy(process.groups)
    scratch.groups.calls = {}
    scratch.recorder = Recorder(process.rank, pace=scratch.pacing.lane)
    scratch.log = Log(scratch.recorder)
    process.matching.expect = scratch.pacing.expect
    comm = Comm(scratch, tuple(range(ranks)), GROUP, "warm-up")
    for step in range(ROUNDS):
        with comm.span("step", step=step):
            _compute(comm)
            _exchange(comm)
    for rehearsal in _rehearsals:
        rehearsal(comm)
    comm.barrier()
    process.matching.expect = process.pacing.expect


def _compute(comm: Comm) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with comm.compute("forward"):
        loss = nn.functional.cross_entropy(model(torch.ones(2, 4)), torch.zeros(2).long())
    with comm.compute("backward"):
        loss.backward()
    with comm.compute("update"):
        if "torch._dynamo" in sys.modules:  # else the first optimizer loads it, before the start
            torch.optim.SGD(model.parameters(), 0.1).step()


def _exchange(comm: Comm) -> None:
    """A message to each other rank, by every kind of send and receive, and a reduction."""
    tensor, n = torch.ones(8), comm.size
    for shift in range(1, n):
        right, left = (comm.rank + shift) % n, (comm.rank - shift) % n
        for op in ("copy", "sum"):
            receive = comm.irecv(tensor.clone(), left, op=op)
            send = comm.isend(tensor, right)
            receive.wait()
            send.wait()
    comm.all_reduce(tensor)
