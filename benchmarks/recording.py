"""What recording costs: one span by `comm.span` against torch.profiler.record_function.

A step's overhead is too small beside its own spread to be measured; it is stated as the number of
its spans times the cost of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel.data import DDP

BATCH, BATCHES = 100, 50  # spans between two clock reads; such batches in a round
STEPS = 10


def record(comm: Any) -> dict[str, list[float]]:
    """Seconds a span in each round: the median batch, which nothing else interrupted."""

    def named() -> None:
        for _ in range(BATCH):
            with comm.span("forward", "layer"):
                pass

    def with_a_field() -> None:
        for number in range(BATCH):
            with comm.span("forward", "layer", microbatch=number):
                pass

    def peer() -> None:
        for _ in range(BATCH):
            with record_function("layer"):
                pass

    def profiled() -> float:
        with profile(activities=[ProfilerActivity.CPU]):
            return seconds(peer)

    os.environ["KINETO_LOG_LEVEL"] = "6"  # the profiler says nothing when it starts and stops
    profiled()  # its first start takes longer
    return take_turns(
        {
            "named": lambda: seconds(named),
            "with a field": lambda: seconds(with_a_field),
            "peer": profiled,
        }
    )


def seconds(batch: Callable[[], None]) -> float:
    found = []
    for _ in range(BATCHES):
        start = perf_counter()
        batch()
        found.append((perf_counter() - start) / BATCH)
    return median(found)


def train(comm: Any) -> list[float]:
    """Seconds of each step of a small network."""
    net = DDP(nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)), comm)
    x, y = torch.randn(64, 784), torch.randint(10, (64,))
    taken = []
    for step in range(STEPS):
        start = perf_counter()
        with comm.span("step", step=step):
            nn.functional.cross_entropy(net(x), y).backward()
        taken.append(perf_counter() - start)
    return taken


def rows() -> list[Row]:
    times = launch(record, ranks=1).results[0]
    span = compare(
        "recording a named span, beside record_function", times["named"], times["peer"], target=6.0
    )
    field = compare("the same with a field", times["with a field"], times["peer"])
    run = launch(train, ranks=2)
    count = round(len(run.trace.only(rank=0).spans) / STEPS)
    step, overhead = median(run.results[0]), count * field.ours
    remark = f"{count} spans x {field.ours * 1e6:.2f} µs are {overhead / step:.2%} of it"
    what = "recording in a DDP step, beside the step"
    return [span, field, Row(what, overhead, step, step / overhead, remark=remark)]
