"""From images cut by sample to images cut by height: ours against torch's DTensor on gloo, which
gathers the whole tensor, on the same processes, in turn."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel.convolution import Distribution, redistribute

SHAPES = {"even": (16, 32, 64, 64), "uneven": (15, 32, 61, 64)}
WARM_UP, STEPS = 3, 10
TARGET = 1.3


def seconds(comm: Any, move: Any, steps: int = STEPS) -> float:
    """The slowest rank's mean seconds."""
    comm.barrier()
    start = perf_counter()
    for _ in range(steps):
        move()
    slowest = torch.tensor([(perf_counter() - start) / steps])
    comm.all_reduce(slowest, "max")
    return slowest.item()


def worker(comm: Any) -> dict[str, dict[str, list[float]]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, torchs = comm.mesh(p=comm.size), init_device_mesh("cpu", (comm.size,))
    src, dst, found = Distribution(N="p"), Distribution(H="p"), {}
    for name, shape in SHAPES.items():
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        x = whole[src.block(mesh, shape)].contiguous()
        of_torch = distribute_tensor(whole, torchs, [Shard(0)])
        ways = {
            "ours": partial(redistribute, x, mesh, src, dst, shape),
            "torch": partial(of_torch.redistribute, placements=[Shard(2)]),
        }
        assert torch.equal(ways["ours"](), whole[dst.block(mesh, shape)])
        own = whole.chunk(comm.size, 2)[comm.rank]  # the last of torch's blocks is the small one
        assert torch.equal(ways["torch"]().to_local(), own)
        for move in ways.values():
            seconds(comm, move, WARM_UP)
        found[name] = take_turns({k: partial(seconds, comm, move) for k, move in ways.items()})
    return found


def rows() -> list[Row]:
    return [
        compare(
            f"redistribute N to H, {name}, {ranks} ranks", times["ours"], times["torch"], TARGET
        )
        for ranks in (2, 4)
        for name, times in launch(worker, ranks, timeout=300).results[0].items()
    ]
