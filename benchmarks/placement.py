"""Searches over placements: all 43,947 of ten groups on four devices, and HEFT of 1,000 operators;
the operator graph of a Transformer.

The peer of a time is its limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from benchmarks.table import Row, take_turns
from dlviz.machine import Link
from dlviz.models import Transformer, graph_of
from dlviz.sim import Devices, Graph, search
from dlviz.sim.placement import LAB
from dlviz.sim.placement.player import player_of

DEVICES = Devices(4, Link(0.5, 1e9))
OPERATORS = 1000


def many() -> Graph:
    """Operators that need up to three of the twenty before them."""
    draw = random.Random(0)
    parents = [
        draw.sample(range(max(0, n - 20), n), min(n, draw.randint(0, 3))) for n in range(OPERATORS)
    ]
    return Graph([draw.random() for _ in parents], parents, [10**9] * OPERATORS)


def seconds(graph: Graph, method: str) -> float:
    player_of.cache_clear()
    start = perf_counter()
    search(graph, DEVICES, method)
    return perf_counter() - start


def exported(model: Transformer) -> float:
    start = perf_counter()
    graph_of(model, (2, 16))
    return perf_counter() - start


def rows() -> list[Row]:
    graph = many()
    model = Transformer(layers=12, hidden=64, heads=4, vocabulary=48, sequence=16)
    cases: dict[tuple[str, float], Callable[[], float]] = {
        ("43,947 placements played", 3.0): partial(seconds, LAB, "exhaustive"),
        (f"HEFT of {OPERATORS:,} operators", 1.0): partial(seconds, graph, "heft"),
        ("graph_of of 12 layers", 10.0): partial(exported, model),
    }
    found = []
    for (what, most), runs in take_turns(cases, 3).items():
        ours = median(runs)
        found.append(Row(f"placement: {what}", ours, most, most / ours, 1.0, most=most))
    return found
