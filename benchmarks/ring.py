"""All-reduce by our ring against the backend's own, on the same ranks, in turn."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.collectives import ring

RANKS = 4
SIZES = {"1 KB": 2**10, "64 KB": 2**16, "1 MB": 2**20, "16 MB": 2**24}  # bytes
CALLS = {"1 KB": 8, "64 KB": 8, "1 MB": 4, "16 MB": 1}  # in one round
ROUNDS = 25  # short ones, so that other work on this machine meets ours and the peer alike


def worker(comm: Any, nbytes: int, calls: int) -> dict[str, list[float]]:
    """Seconds a call in each round, on the slowest rank."""
    tensor = torch.zeros(nbytes // 4)

    def seconds(all_reduce: Any) -> float:
        all_reduce(tensor)
        comm.barrier()
        start = perf_counter()
        for _ in range(calls):
            all_reduce(tensor)
        slowest = torch.tensor([(perf_counter() - start) / calls])
        comm.all_reduce(slowest, "max")
        return slowest.item()

    return take_turns(
        {
            "ours": lambda: seconds(lambda tensor: ring.all_reduce(comm, tensor)),
            "peer": lambda: seconds(dist.all_reduce),
        },
        ROUNDS,
    )


def rows() -> list[Row]:
    found = []
    for name, nbytes in SIZES.items():
        times = launch(worker, ranks=RANKS, args=(nbytes, CALLS[name]), timeout=120).results[0]
        what = f"ring all_reduce, {RANKS} ranks, {name}, beside gloo's"
        found.append(compare(what, times["ours"], times["peer"], target=1.0))
    return found
