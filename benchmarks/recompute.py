"""A step of layers that run again in the backward, by segments: ours against torch's checkpoint,
the same weights and segments, in turn; and against the same layers without recomputation."""

from __future__ import annotations

import copy
from time import perf_counter

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.table import Row, compare, take_turns
from dlviz.parallel.recomputed import Recomputed

LAYERS, SEGMENTS = 16, 4
SHAPES = {"16 linear layers of 256, B 256": (256, 256), "16 of 64, B 32": (64, 32)}
WARM_UP, STEPS, ROUNDS = 3, 10, 25
TARGET = 1.0


class Checkpointed(nn.Module):
    def __init__(self, layers: nn.Sequential):
        super().__init__()
        size = LAYERS // SEGMENTS
        self.parts = [layers[first : first + size] for first in range(0, LAYERS, size)]
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=False)
        return x


def seconds(net: nn.Module, width: int, batch: int, steps: int = STEPS) -> float:
    """Of a step: forward and backward."""
    x = torch.randn(batch, width)
    start = perf_counter()
    for _ in range(steps):
        net(x).square().sum().backward()
    return (perf_counter() - start) / steps


def rows() -> list[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a rank has
    try:
        return [row for what, size in SHAPES.items() for row in compared(what, *size)]
    finally:
        torch.set_num_threads(threads)


def compared(what: str, width: int, batch: int) -> list[Row]:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(LAYERS)]
    plain = nn.Sequential(*blocks)
    nets = {
        "ours": Recomputed(copy.deepcopy(plain), SEGMENTS),
        "torch": Checkpointed(copy.deepcopy(plain)),
        "plain": plain,
    }
    for net in nets.values():
        seconds(net, width, batch, WARM_UP)
    runs = {name: lambda net=net: seconds(net, width, batch) for name, net in nets.items()}
    times = take_turns(runs, ROUNDS)
    return [
        compare(f"recompute, {what}", times["ours"], times["torch"], TARGET),
        compare(f"not recomputed, {what}", times["plain"], times["ours"]),
    ]
