"""How far data parallelism scales: the time of its curve, and paced steps by the wall clock against
the closed form.

The curve goes to 1,024 ranks, with a Trace of 64 of them message by message; its peer is a
limit. The peer of a paced step is the formula. The device times agree with it by
construction; here only the wall columns count, which are clock readings.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import ROUNDS, Row, take_turns
from dlviz import launch, metrics, sim, viz
from dlviz.machine import Link, classroom
from dlviz.parallel.data import DDP
from dlviz.parallel.step.prices import update_seconds

MOST = 5.0  # seconds
SHAPES, BATCH, STEPS = ((64, 128), (128, 128), (128, 10)), 2728, 5
LINK = Link(5e-3, 1e8)
FLOPS = sum(6 * a * b for a, b in SHAPES) - 2 * 64 * 128  # an example's; its inputs get no gradient
COMPUTE, NBYTES = FLOPS * BATCH / 1e9, sum(4 * (a + 1) * b for a, b in SHAPES)


def curve_and_trace() -> float:
    """Seconds to price the curves to 1,024 ranks, to play 64, and to draw both."""
    start = perf_counter()
    curves = sim.scaling_curves(
        COMPUTE, NBYTES, LINK.latency, 1 / LINK.bandwidth, buckets=3, overlap=0.6
    )
    layers = [
        sim.Layer(str(i), 2e-9 * a * b * BATCH, 4e-9 * a * b * BATCH, 4 * (a + 1) * b)
        for i, (a, b) in enumerate(SHAPES)
    ]
    traces = {
        n: sim.data_parallel(layers, classroom(n, link=LINK), bucket_bytes=1) for n in (1, 64)
    }
    viz.scaling({"strong, 3 buckets overlapped": traces}, curves=curves)
    return perf_counter() - start


def worker(comm: Any) -> None:
    torch.manual_seed(0)
    layers = [part for a, b in SHAPES for part in (nn.Linear(a, b), nn.ReLU())]
    net = DDP(nn.Sequential(*layers[:-1]), comm)
    mine = torch.randn(BATCH, SHAPES[0][0]).tensor_split(comm.size)[comm.rank]
    for step in range(STEPS):
        with comm.span("phase", step=step):
            net.zero_grad()
            net(mine).square().mean().backward()
            with comm.compute("update", seconds=update_seconds(comm, net.parameters())):
                pass


def measured(ranks: int) -> float:
    """Seconds a step by the wall columns."""
    machine = classroom(ranks, step=None, link=LINK)
    trace = launch(worker, ranks=ranks, machine=machine).trace
    return metrics.seconds_per_step(trace, "wall")


def rows() -> list[Row]:
    curve_and_trace()  # imports
    took = take_turns({"curve": curve_and_trace})["curve"]
    what = "scaling: curves to 1,024 ranks, a Trace of 64, drawn"
    found = [Row(what, median(took), MOST, MOST / median(took), 1.0, most=MOST)]
    for ranks, runs in take_turns({n: partial(measured, n) for n in (1, 2, 4, 8)}).items():
        formula = sim.data_parallel_seconds(
            ranks, COMPUTE, NBYTES, LINK.latency, 1 / LINK.bandwidth
        )
        ours, worst = median(runs), max(abs(run / formula - 1) for run in runs)
        remark = f"the worst of {ROUNDS} runs {worst:.2%}"
        title = f"scaling: a paced step of DDP on {ranks} ranks"
        found.append(Row(title, ours, formula, ours / formula, within=0.02, remark=remark))
    return found
