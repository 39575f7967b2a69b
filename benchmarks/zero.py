"""A step of ZeRO: ours against torch's FSDP2 (stage 3), and against DDP with its
ZeroRedundancyOptimizer (stage 1), on the same processes and the same weights, in turn."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel import zero

LAYERS, WIDTH, ROWS = 6, 256, 16  # rows of a rank
WARM_UP, STEPS = 5, 20
RATE = 1e-3
ADAM = partial(torch.optim.Adam, lr=RATE)
TARGETS = {3: ("ZeRO 3, FSDP2", 1.5), 1: ("ZeRO 1, ZeroRedundancyOptimizer", 1.0)}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return nn.Sequential(*itertools.chain(*zip(layers, (nn.ReLU() for _ in layers), strict=True)))


def batches(ranks: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(WARM_UP + STEPS, ROWS * ranks, WIDTH)
    return [(each, each.argmax(1)) for each in x]


def slowest(comm: Any, start: float) -> float:
    """The slowest rank's mean seconds a step since `start`."""
    seconds = torch.tensor([(perf_counter() - start) / STEPS])
    comm.all_reduce(seconds, "max")
    return seconds.item()


def ours(comm: Any, stage: int) -> float:
    ends: list[float] = []

    def callback(*_: Any) -> None:
        ends.append(perf_counter())

    zero.train(comm, network(), batches(comm.size), ADAM, stage=stage, callback=callback)
    return slowest(comm, perf_counter() - (ends[-1] - ends[WARM_UP - 1]))


def torchs(comm: Any, make: Callable[[Any], tuple[nn.Module, Any]]) -> float:
    net, optimizer = make(comm)
    start = 0.0
    for step, (x, y) in enumerate(batches(comm.size)):
        if step == WARM_UP:
            start = perf_counter()
        part = slice(comm.rank * ROWS, (comm.rank + 1) * ROWS)
        optimizer.zero_grad()
        loss = cross_entropy(net(x[part]), y[part])
        loss.backward()
        optimizer.step()
        loss.item()
    return slowest(comm, start)


def fsdp2(comm: Any) -> tuple[nn.Module, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net, mesh = network(), init_device_mesh("cpu", (comm.size,))
    for layer in [*net][::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, ADAM(net.parameters())


def redundancy(comm: Any) -> tuple[nn.Module, Any]:
    with warnings.catch_warnings(action="ignore"):  # torch's own, of torch.jit
        from torch.distributed.optim import ZeroRedundancyOptimizer
    net = network()
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=RATE)
    return nn.parallel.DistributedDataParallel(net), optimizer


def worker(comm: Any) -> dict[int, dict[str, list[float]]]:
    peers = {3: fsdp2, 1: redundancy}
    return {
        stage: take_turns(
            {"ours": partial(ours, comm, stage), "torch": partial(torchs, comm, peer)}
        )
        for stage, peer in peers.items()
    }


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        for stage, times in launch(worker, ranks, timeout=300).results[0].items():
            what, target = TARGETS[stage]
            name = f"{what}, {ranks} ranks"
            found.append(compare(name, times["ours"], times["torch"], target))
    return found
