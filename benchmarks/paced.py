"""Paced pipelines by the wall clock against the closed form: the bubble and the length of a step.

The device times agree with the formula by construction; here only the wall columns count, which are
clock readings. The peer is the formula. Medians over STEPS steps, and one step alone, after a
warm-up.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.table import ROUNDS, Row, take_turns
from dlviz import launch, metrics, schedules
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.parallel.pipeline import Shapes, train_step

STEP, MICROBATCHES, STEPS = 0.005, 8, 3
# Bubble ratio = (p-1) * share / m, and the tolerance of the measured one.
SCHEDULES = {
    "gpipe": (1.0, 0.01),
    "1f1b": (1.0, 0.01),
    "interleaved": (1 / 2, 0.02),  # two chunks
    "zb_h1": (1 / 3, 0.02),  # F = I = W
}
ALONE = 0.05  # tolerance for a run of one step


def worker(comm: Any, schedule: schedules.Schedule, steps: int) -> None:
    torch.manual_seed(0)
    stages = [nn.Linear(64, 64) for _ in schedule.stage_rank]
    x, shapes = torch.randn(MICROBATCHES, 64), Shapes()
    for step in range(steps):
        with comm.span("step", step=step):
            comm.barrier()
            train_step(comm, stages, schedule, x, x, nn.functional.mse_loss, shapes=shapes)


def measured(name: str, ranks: int, steps: int) -> tuple[float, float]:
    """The bubble ratio and the seconds from the first compute of a step to its last, by the wall
    columns."""
    machine = Machine(classroom(ranks).device, Topology.switch(ranks, Link(0.0, 1e30)), STEP)
    schedule = schedules.make(name, ranks, MICROBATCHES)
    trace = launch(worker, ranks=ranks, machine=machine, args=(schedule, steps)).trace
    work = trace.only(kind=metrics.COMPUTE)
    return metrics.bubble_ratio(trace, "wall"), median(metrics.step_seconds(work, "wall"))


def rows() -> list[Row]:
    cases = [(name, ranks, STEPS) for ranks in (4, 8) for name in SCHEDULES]
    cases.append(("1f1b", 4, 1))
    found = []
    for case, runs in take_turns({case: partial(measured, *case) for case in cases}).items():
        name, p, steps = case
        share, within = SCHEDULES[name]
        chunks = 2 if name == "interleaved" else 1
        bubble = (p - 1) * share / MICROBATCHES
        busy = 3 * STEP * chunks * MICROBATCHES
        formulas = {"bubble ratio": (bubble, ""), "step": (busy * (1 + bubble), "s")}
        for place, (what, (formula, unit)) in enumerate(formulas.items()):
            ours = median(run[place] for run in runs)
            worst = max(abs(run[place] / formula - 1) for run in runs)
            remark = f"the worst of {ROUNDS} runs {worst:.2%}"
            who = f"paced {name} at 5 ms, {p} ranks"
            if steps == 1:
                who, within = f"{who}, one step", ALONE
            title = f"{who}: {what}"
            found.append(
                Row(title, ours, formula, ours / formula, unit=unit, within=within, remark=remark)
            )
    return found
