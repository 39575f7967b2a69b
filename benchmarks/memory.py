"""What counting storages costs: a training step inside of Storages, beside the same step without.

The net has 1.9 million parameters in three linear layers; Adam as torch runs it by default, and
with one operation for all parameters together (foreach).
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.cluster import Storages

BATCH = 64
STEPS, ROUNDS = 3, 25
LEAST = 1 / 1.15  # a step may take 15 % longer


def training(foreach: bool | None) -> tuple[nn.Module, Any]:
    """A net, and a step that trains it."""
    torch.manual_seed(0)
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(net.parameters(), foreach=foreach)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    return net, step


def seconds(step: Any) -> float:
    start = perf_counter()
    for _ in range(STEPS):
        step()
    return (perf_counter() - start) / STEPS


def counted(comm: Any, net: nn.Module, step: Any) -> float:
    with Storages(comm, net) as storages:
        step()  # the first one counts the optimizer's state
        taken = seconds(step)
        storages.begin_step()
    return taken


def worker(comm: Any, foreach: bool | None) -> dict[str, list[float]]:
    """Seconds a step in each round."""
    net, step = training(foreach)
    contestants = {"counted": partial(counted, comm, net, step), "plain": partial(seconds, step)}
    take_turns(contestants, rounds=2)
    return take_turns(contestants, ROUNDS)


def rows() -> list[Row]:
    found = []
    for name, foreach in (("Adam", None), ("Adam, foreach", True)):
        times = launch(partial(worker, foreach=foreach), 1).results[0]
        what = f"a step inside of Storages, {name}"
        found.append(compare(what, times["counted"], times["plain"], LEAST))
    return found
