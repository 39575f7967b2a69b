"""The cheapest path through 50 layers of 12 cuts each, without and with a limit on memory; and what
it takes to price ResNet-50's 50 layers under 12 cuts. The peer of a time is its limit."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.table import Row, take_turns
from dlviz.machine import classroom
from dlviz.sim import cheapest_path, convolution_cuts, net_costs, net_layers

MOST = 1.0  # seconds
LAYERS, CUTS = 50, 12


def seconds(work: Callable[[], Any]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def rows() -> list[Row]:
    draw = np.random.default_rng(0)
    costs, memory = draw.random((2, LAYERS, CUTS))
    switches = draw.random((LAYERS - 1, CUTS, CUTS))
    _, path = cheapest_path(costs, switches)
    used, least = memory[range(LAYERS), path].sum(), memory.min(axis=1).sum()
    resnet = [*net_layers("resnet50", 32).values()]
    cuts, machine = convolution_cuts(8)[:CUTS], classroom(8, step=None)
    found = take_turns(
        {
            "paths: 50 layers x 12 cuts": lambda: seconds(lambda: cheapest_path(costs, switches)),
            "paths: the same, memory limited": lambda: seconds(
                lambda: cheapest_path(costs, switches, memory, (used + least) / 2)
            ),
            "paths: prices of ResNet-50 under 12 cuts": lambda: seconds(
                lambda: net_costs(resnet, cuts, machine)
            ),
        }
    )
    limits = {what: None if "prices" in what else MOST for what in found}
    return [
        Row(what, median(own), MOST, MOST / median(own), most=limits[what])
        for what, own in found.items()
    ]
