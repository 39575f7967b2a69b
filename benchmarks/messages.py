"""Messages against torch.distributed's own isend and irecv, on the same processes, in turn: round
trips, and the messages of a 1F1B step without its math."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.table import Row, compare, take_turns
from dlviz import launch, schedules

TRIPS = {"8 B": (8, 1.2), "1 KB": (2**10, 1.2), "64 KB": (2**16, 1.4), "1 MB": (2**20, 1.3)}
STEPS = {"2 KB": (2**11, 1.8), "128 KB": (2**17, 1.5)}
CALLS, ROUNDS = 20, 15
RANKS, MICROBATCHES = 4, 8


def there_and_back(rank: int, peer: Any, ball: torch.Tensor) -> None:
    for turn in range(2):
        if rank == turn:
            peer.isend(ball, 1 - rank).wait()
        else:
            peer.irecv(ball, 1 - rank).wait()


def step_of_1f1b(rank: int, peer: Any, actions: list[Any], tensors: list[torch.Tensor]) -> None:
    """What a rank receives and sends in a step: activations to the next rank, gradients back."""
    sends = []
    for action in actions:
        onward = 1 if action.kind == "F" else -1
        before, after = rank - onward, rank + onward
        if 0 <= before < RANKS:
            peer.irecv(tensors[0], before).wait()
        if 0 <= after < RANKS:
            sends.append(peer.isend(tensors[1], after))
    for send in sends:
        send.wait()


def worker(comm: Any, pattern: Any, calls: int) -> dict[str, list[float]]:
    def seconds(peer: Any) -> float:
        pattern(comm.rank, peer)
        comm.barrier()
        start = perf_counter()
        for _ in range(calls):
            pattern(comm.rank, peer)
        slowest = torch.tensor([(perf_counter() - start) / calls])
        comm.all_reduce(slowest, "max")
        return slowest.item()

    peers = {"ours": comm, "torch": dist}
    return take_turns({name: partial(seconds, peer) for name, peer in peers.items()}, ROUNDS)


def trips(comm: Any, nbytes: int) -> dict[str, list[float]]:
    ball = torch.zeros(nbytes // 4)
    return worker(comm, partial(there_and_back, ball=ball), CALLS)


def steps(comm: Any, nbytes: int) -> dict[str, list[float]]:
    actions = schedules.make("1f1b", RANKS, MICROBATCHES).actions[comm.rank]
    tensors = [torch.zeros(nbytes // 4) for _ in range(2)]
    return worker(comm, partial(step_of_1f1b, actions=actions, tensors=tensors), CALLS // 4)


def rows() -> list[Row]:
    found = []
    for name, (nbytes, target) in TRIPS.items():
        times = launch(trips, ranks=2, args=(nbytes,), timeout=120).results[0]
        what = f"round trip of {name}, 2 ranks, beside torch's"
        found.append(compare(what, times["ours"], times["torch"], target))
    for name, (nbytes, target) in STEPS.items():
        times = launch(steps, ranks=RANKS, args=(nbytes,), timeout=120).results[0]
        what = f"messages of a 1F1B step, p=4 m=8, {name}"
        found.append(compare(what, times["ours"], times["torch"], target))
    return found
