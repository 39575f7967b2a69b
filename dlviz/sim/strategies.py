"""Strategies with a server, and those that average models, played on a Machine without training.

    sync_server async_server stale_synchronous easgd      rank 0 serves, the others are workers
    local_sgd gossip                                      all ranks are workers

A rank does what it does in dlviz/parallel, written again without tensors: which layers it computes,
which ranks it sends to and waits for. So a Trace has the same phases, operations, messages and
updates as that of a run; a test compares the two.

Times are those of one gradient: a layer's forward and backward on a worker's examples of one step.
A message has the parameters' bytes and a few more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlviz.counts import check_counts, of_numbers
from dlviz.machine import Machine
from dlviz.sim.data_parallel import Layer
from dlviz.sim.programs import (
    Begin,
    Busy,
    Drain,
    End,
    Operation,
    Program,
    Receive,
    Send,
    play,
)
from dlviz.trace import Trace


@dataclass(frozen=True)
class _Task:
    """The training: a step is one batch of the list that every rank has."""

    layers: Sequence[Layer]
    batches: int
    ranks: int
    update: float
    beside: int

    @property
    def nbytes(self) -> int:
        """Bytes of a message."""
        return sum(layer.nbytes for layer in self.layers) + self.beside

    @property
    def workers(self) -> range:
        """The workers where rank 0 is the server."""
        return range(1, self.ranks)

    def dealt(self, worker: int) -> range:
        return range(worker - 1, self.batches, len(self.workers))

    def gradient(self) -> Iterator[Operation]:
        for layer in self.layers:
            yield Busy("forward", layer.name, layer.forward)
        for layer in reversed(self.layers):
            yield Busy("backward", layer.name, layer.backward)

    def updated(self, peer: int = -1) -> Operation:
        return Busy("update", None, self.update, peer)


@of_numbers
def strategy(
    name: str,
    layers: Sequence[Layer],
    batches: int,
    machine: Machine,
    *,
    update: float = 0.0,
    beside: int = 0,
    **options: Any,
) -> Trace:
    """The simulated Trace of `batches` batches by strategy `name` of `dlviz.parallel.STRATEGIES` on
    all ranks of `machine`, a switch. `update`: seconds of an update; `beside`: the bytes of a
    message besides the parameters' (see `beside_bytes`); `options`: the
    strategy's own, `backups`, `bound`, `form` and `samples`, `every`, `topology`.

    Where the workers share a batch, `layers` give the times of one worker's share.
    ValueError for another strategy, and for too few ranks.
    """
    check_counts(batches=batches)
    if name not in PROGRAMS:
        raise ValueError(f"strategy={name!r} cannot be played: use one of {', '.join(PROGRAMS)}.")
    if name in SERVED and machine.ranks < 2:
        raise ValueError(f"{name} on 1 rank has a server and no worker: use 2 ranks or more.")
    task = _Task(layers, batches, machine.ranks, update, beside)
    if name == "stale_synchronous" and options.get("bound") == 0:
        name, options = "sync_server", {}
    programs = [PROGRAMS[name](task, rank, **options) for rank in range(machine.ranks)]
    return play(programs, machine)


def shares_batches(
    name: str, *, bound: float = 1, form: str = "round_robin", **options: Any
) -> bool:
    """Whether the workers of strategy `name` with its own `options` share the rows of each batch,
    rather than take whole batches in turn."""
    if name == "easgd":
        return form == "synchronous"
    return name != "async_server" and (name != "stale_synchronous" or bound == 0)


@of_numbers
def beside_bytes(name: str, tensors: int) -> int:
    """Bytes of a message besides the parameters' for a model of so many parameter tensors: a push
    has a flag for each and one number, an average of local SGD one number, each of 4 bytes."""
    check_counts(tensors=tensors)
    return 4 * {"easgd": 0, "gossip": 0, "local_sgd": 1}.get(name, tensors + 1)


def _sync_server(task: _Task, rank: int, backups: int = 0) -> Program:
    if rank == 0:
        yield from _collect(task, backups)
        return
    step = 0
    while step < task.batches:
        yield Begin(f"step {step}", step)
        yield from task.gradient()
        yield Send(0, task.nbytes)
        _, step = yield Receive(0)
        yield End()


def _collect(task: _Task, backups: int) -> Program:
    """The server's part: all pushes of a step but the last `backups`."""
    at = dict.fromkeys(task.workers, 0)
    for step in range(task.batches):
        yield Begin(f"step {step}", step)
        on_time: list[int] = []
        while len(on_time) < len(at) - backups:
            worker, _ = yield Receive()
            if at[worker] < step:
                at[worker] = step
                yield Send(worker, task.nbytes, step)
            else:
                on_time.append(worker)
        yield task.updated()
        for worker in on_time:
            at[worker] = step + 1
            yield Send(worker, task.nbytes, step + 1)
        yield End()
    while min(at.values()) < task.batches:
        worker, _ = yield Receive()
        at[worker] = task.batches
        yield Send(worker, task.nbytes, task.batches)


def _stale_synchronous(task: _Task, rank: int, bound: float = 1) -> Program:
    if rank == 0:
        yield from _serve(task, bound)
        return
    for number in task.dealt(rank):
        yield Begin(f"step {number}", number)
        yield from task.gradient()
        yield Send(0, task.nbytes)
        yield Receive(0)
        yield End()


def _serve(task: _Task, bound: float) -> Program:
    """The server's part: one push at a time; a worker too far ahead is held."""
    left = {worker: len(task.dealt(worker)) for worker in task.workers}
    clock = dict.fromkeys(task.workers, 0)
    held: list[int] = []
    for number in range(task.batches):
        yield Begin(f"update {number}", number)
        worker, _ = yield Receive()
        yield task.updated(worker)
        clock[worker] += 1
        left[worker] -= 1
        held.append(worker)
        slowest = min((clock[each] for each in clock if left[each]), default=math.inf)
        for each in [each for each in held if clock[each] - bound <= slowest or not left[each]]:
            held.remove(each)
            yield Send(each, task.nbytes)
        yield End()


def _async_server(task: _Task, rank: int) -> Program:
    return _stale_synchronous(task, rank, math.inf)


def _easgd(
    task: _Task, rank: int, form: str = "round_robin", samples: Sequence[int] = ()
) -> Program:
    """Elastic averaging: a worker exchanges with the centre, then updates its own model. In round
    robin the server also sends a batch, in messages of `samples` bytes."""
    if form not in _FORMS:
        raise ValueError(f"form={form!r} cannot be played: use {', '.join(map(repr, _FORMS))}.")
    return _in_turn(task, rank, samples) if form == "round_robin" else _FORMS[form](task, rank)


def _in_turn(task: _Task, rank: int, samples: Sequence[int]) -> Program:
    """One worker at a time."""
    for step in range(task.batches):
        turn = task.workers[step % len(task.workers)]
        yield Begin(f"step {step}", step)
        if rank == 0:
            for nbytes in samples:
                yield Send(turn, nbytes, wait=False)
            yield Send(turn, task.nbytes)
            yield Receive(turn)
            yield task.updated(turn)
            yield Drain()
        elif rank == turn:
            for _ in samples:
                yield Receive(0)
            yield Receive(0)
            yield from task.gradient()
            yield Send(0, task.nbytes)
            yield task.updated()
        yield End()


def _together(task: _Task, rank: int) -> Program:
    """All workers in every step."""
    for step in range(task.batches):
        yield Begin(f"step {step}", step)
        if rank == 0:
            for worker in task.workers:
                yield Send(worker, task.nbytes)
            for worker in task.workers:
                yield Receive(worker)
        else:
            yield Receive(0)
            yield from task.gradient()
            yield Send(0, task.nbytes)
        yield task.updated()
        yield End()


def _as_they_come(task: _Task, rank: int) -> Program:
    """One worker at a time, in the order of arrival."""
    if rank == 0:
        for number in range(task.batches):
            yield Begin(f"update {number}", number)
            worker, _ = yield Receive()
            yield Send(worker, task.nbytes)
            yield task.updated(worker)
            yield End()
        return
    for number in task.dealt(rank):
        yield Begin(f"step {number}", number)
        yield from task.gradient()
        yield Send(0, task.nbytes)
        yield Receive(0)
        yield task.updated()
        yield End()


def _local_sgd(task: _Task, rank: int, every: int = 8) -> Program:
    for step in range(task.batches):
        yield Begin(f"step {step}", step)
        yield from task.gradient()
        yield task.updated()
        if (step + 1) % every == 0:
            yield from _ring(task, rank)
        yield End()
    if task.batches % every:
        yield from _ring(task, rank)


def _ring(task: _Task, rank: int) -> Program:
    """A ring all-reduce of the parameters."""
    n, size = task.ranks, task.nbytes
    chunks = [(i + 1) * size // n - i * size // n for i in range(n)]
    if n == 1:
        return
    yield Begin("models", kind="collective")
    for start, name in enumerate(("reduce-scatter", "all-gather")):
        yield Begin(name)
        for step in range(n - 1):
            yield Send((rank + 1) % n, chunks[(rank + start - step) % n], wait=False)
            yield Receive((rank - 1) % n, posted=True)
        yield Drain()
        yield End()
    yield End()


def _gossip(task: _Task, rank: int, topology: str = "ring") -> Program:
    for step in range(task.batches):
        yield Begin(f"step {step}", step)
        yield from task.gradient()
        yield task.updated()
        others = _neighbours(rank, task.ranks, topology, step)
        yield Begin("models of neighbours", kind="collective")
        for other in others:
            yield Send(other, task.nbytes, wait=False)
        for other in others:
            yield Receive(other, posted=True)
        yield Drain()
        yield End()
        yield End()


def _neighbours(rank: int, ranks: int, topology: str, number: int) -> tuple[int, ...]:
    """As dlviz/parallel/averaging/gossip.py draws them."""
    if ranks == 1:
        return ()
    if topology == "ring":
        return (rank - 1) % ranks, (rank + 1) % ranks
    order = random.Random(number).sample(range(ranks), ranks)
    return (order[order.index(rank) ^ 1],)


_FORMS = {"round_robin": _in_turn, "synchronous": _together, "asynchronous": _as_they_come}
PROGRAMS = {
    "sync_server": _sync_server,
    "async_server": _async_server,
    "stale_synchronous": _stale_synchronous,
    "easgd": _easgd,
    "local_sgd": _local_sgd,
    "gossip": _gossip,
}
SERVED = ("sync_server", "async_server", "stale_synchronous", "easgd")
