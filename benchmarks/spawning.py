"""The worker of the row on launching, and torch.multiprocessing.spawn of it: torch alone."""

from __future__ import annotations

import tempfile
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import spawn

RANKS = 4


def add_up() -> float:
    """The worker: one all-reduce, which needs all ranks to be connected."""
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def join_and_add_up(rank: int, store: str, results: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    results.put(add_up())
    dist.destroy_process_group()


def spawned() -> float:
    """Seconds from start to results."""
    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        queue = mp.get_context("spawn").SimpleQueue()
        spawn(join_and_add_up, args=(f"{folder}/store", queue), nprocs=RANKS)
        results = [queue.get() for _ in range(RANKS)]
        seconds = perf_counter() - start
    assert results == [float(RANKS)] * RANKS
    return seconds
