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

# parameters: widths of an MLP, steps that are timed together
SIZES = {
    9_610: ((64, 128, 10), 60),
    269_322: ((784, 256, 256, 10), 40),
    1_863_690: ((784, 1024, 1024, 10), 12),
}
BATCH, WARM_UP = 64, 5
ALL_REDUCES = ("backend", "ring")
TARGET = 1.0
OF_THE_LARGEST = {  # its targets, by algorithm and ranks
    ("backend", 2): 1.1,
    ("backend", 4): 1.05,
    ("ring", 2): 1.05,
    ("ring", 4): 1.0,
}


def network(widths: tuple[int, ...]) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def seconds_a_step(comm: Any, net: nn.Module, inputs: int, steps: int) -> float:
    """The slowest rank's mean seconds for forward, backward with its all-reduce, and update."""
    x, y = torch.randn(BATCH, inputs), torch.randint(10, (BATCH,))
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


def worker(comm: Any, names: tuple[str, ...] = ALL_REDUCES) -> dict[int, dict[str, list[float]]]:
    """By size and all-reduce ("torch": its DDP), the seconds a step of each round."""
    found = {}
    for size, (widths, steps) in SIZES.items():
        nets = {
            "torch": nn.parallel.DistributedDataParallel(network(widths)),
            **{algorithm: DDP(network(widths), comm, algorithm) for algorithm in names},
        }
        assert sum(p.numel() for p in nets["torch"].parameters()) == size
        for net in nets.values():
            seconds_a_step(comm, net, widths[0], WARM_UP)
        contestants = {
            name: partial(seconds_a_step, comm, net, widths[0], steps) for name, net in nets.items()
        }
        found[size] = take_turns(contestants)
    return found


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        for size, times in launch(worker, ranks=ranks, timeout=300).results[0].items():
            for all_reduce in ALL_REDUCES:
                what = f"DDP, {ranks} ranks, {size:,} par., {all_reduce}"
                target = OF_THE_LARGEST[all_reduce, ranks] if size == max(SIZES) else TARGET
                found.append(compare(what, times[all_reduce], times["torch"], target))
    return found
