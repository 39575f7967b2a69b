"""What recording costs: one span by `comm.span` against torch.profiler.record_function.

A step's overhead is too small beside its own spread to be measured; it is stated as the number of
its spans times the cost of one.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel.data import DDP

SPANS = 5000  # in one round
STEPS = 10


def record(comm: Any) -> dict[str, list[float]]:
    """Seconds a span in each round."""

    def ours() -> float:
        start = perf_counter()
        for number in range(SPANS):
            with comm.span("forward", "layer", microbatch=number):
                pass
        return (perf_counter() - start) / SPANS

    def peer() -> float:
        with profile(activities=[ProfilerActivity.CPU]):
            start = perf_counter()
            for _ in range(SPANS):
                with record_function("layer"):
                    pass
            return (perf_counter() - start) / SPANS

    peer()  # the profiler's first start takes longer
    return take_turns({"ours": ours, "peer": peer})


def train(comm: Any) -> list[float]:
    """Seconds of each step of a small network."""
    net = DDP(nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)), comm)
    x, y = torch.randn(64, 784), torch.randint(10, (64,))
    seconds = []
    for step in range(STEPS):
        start = perf_counter()
        with comm.span("step", step=step):
            nn.functional.cross_entropy(net(x), y).backward()
        seconds.append(perf_counter() - start)
    return seconds


def rows() -> list[Row]:
    times = launch(record, ranks=1).results[0]
    what = "recording one span, beside record_function"
    span = compare(what, times["ours"], times["peer"], target=6.0)
    run = launch(train, ranks=2)
    spans = run.trace.only(rank=0).spans
    count = len(spans) / STEPS
    step = sorted(run.results[0])[STEPS // 2]
    overhead = count * span.ours
    note = f"{count:.0f} spans x {span.ours * 1e6:.2f} µs: {overhead / step:.2%} of the step"
    return [
        span,
        Row("recording in a DDP step, beside the step", overhead, step, step / overhead, note=note),
    ]
