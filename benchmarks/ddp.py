"""A DDP step: ours against torch's DistributedDataParallel, on the same processes, in turn."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel.data import DDP

WIDTHS, BATCH = (784, 1024, 1024, 10), 64
WARM_UP, STEPS = 3, 12
TARGETS = {2: {"backend": 1.1, "ring": 1.05}, 4: {"backend": 1.05, "ring": 1.0}}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in zip(WIDTHS, WIDTHS[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def seconds_a_step(comm: Any, net: nn.Module, steps: int) -> float:
    """The slowest rank's mean seconds for forward, backward with its all-reduce, and update."""
    x, y = torch.randn(BATCH, WIDTHS[0]), torch.randint(10, (BATCH,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    comm.barrier()
    start = perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    slowest = torch.tensor([(perf_counter() - start) / steps])
    comm.all_reduce(slowest, "max")
    return slowest.item()


def worker(comm: Any) -> dict[str, list[float]]:
    nets = {
        "torch": nn.parallel.DistributedDataParallel(network()),
        "backend": DDP(network(), comm, "backend"),
        "ring": DDP(network(), comm, "ring"),
    }
    for net in nets.values():
        seconds_a_step(comm, net, WARM_UP)
    return take_turns(
        {name: partial(seconds_a_step, comm, net, STEPS) for name, net in nets.items()}
    )


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        times = launch(worker, ranks=ranks, timeout=300).results[0]
        for all_reduce, target in TARGETS[ranks].items():
            what = f"DDP step, {ranks} ranks, all-reduce by {all_reduce}"
            found.append(compare(what, times[all_reduce], times["torch"], target))
    return found
