"""Sparse all-reduces against gloo's own of torch's sparse tensors, in turn on the same ranks."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.collectives import sparse

LENGTH, SHARE = 1_000_000, 0.01  # elements of a vector, and how many of them are not 0
CALLS, ROUNDS = 4, 25  # calls in one round
TARGET = 1.5


def beside_gloo(comm: Any) -> dict[str, list[float]]:
    """Seconds a call of each algorithm and of gloo's own ("peer") in each round, on the slowest
    rank. Every call gets a vector that no call has changed."""
    generator = torch.Generator().manual_seed(comm.rank)
    index = torch.randperm(LENGTH, generator=generator)[: int(SHARE * LENGTH)].sort().values
    values = torch.randn(len(index), generator=generator)
    pairs = sparse.Pairs(index.to(torch.int32), values, LENGTH)
    theirs = torch.sparse_coo_tensor(
        index[None], values, (LENGTH,), is_coalesced=True, check_invariants=True
    )
    copies = [theirs.clone() for _ in range(CALLS)]

    def seconds(calls: list[Any]) -> float:
        comm.barrier()
        start = perf_counter()
        for call in calls:
            call()
        slowest = torch.tensor([(perf_counter() - start) / len(calls)])
        comm.all_reduce(slowest, "max")
        return slowest.item()

    def ours(algorithm: str) -> float:
        return seconds([lambda: sparse.all_reduce(comm, pairs, algorithm)] * CALLS)

    def peer() -> float:
        copies[:] = [theirs.clone() for _ in range(CALLS)]
        return seconds([lambda each=each: dist.all_reduce(each) for each in copies])

    contestants = {name: lambda name=name: ours(name) for name in sparse.ALGORITHMS}
    return take_turns({**contestants, "peer": peer}, ROUNDS)


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        times = launch(beside_gloo, ranks=ranks, timeout=300).results[0]
        for algorithm in sparse.ALGORITHMS:
            what = f"sparse {algorithm}, {ranks} ranks, {SHARE:.0%} of 1 M, beside gloo's"
            target = None if algorithm == "dense" else TARGET
            found.append(compare(what, times[algorithm], times["peer"], target=target))
    return found
