"""Paced runs by the wall clock against the closed form: the bubble and the length of a GPipe step.

The device times agree with the formula by construction; here only the wall columns count, which are
clock readings. The peer is the formula.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.table import ROUNDS, Row, take_turns
from dlviz import launch, metrics
from dlviz.machine import Link, Machine, Topology, classroom

STEP, MICROBATCHES = 0.005, 8


def gpipe(comm: Any, m: int) -> None:
    """All forwards of m microbatches through the ranks, then all backwards."""
    p, r = comm.size, comm.rank
    x = torch.zeros(64)
    sends = []
    comm.barrier()
    for microbatch in range(m):
        if r > 0:
            comm.recv(x, r - 1)
        with comm.compute("forward", microbatch=microbatch):
            x = x + 1
        if r < p - 1:
            sends.append(comm.isend(x, r + 1))
    for microbatch in range(m):
        if r < p - 1:
            comm.recv(x, r + 1)
        with comm.compute("backward", microbatch=microbatch):
            x = x + 1
        if r > 0:
            sends.append(comm.isend(x, r - 1))
    for send in sends:
        send.wait()


def measured(ranks: int) -> tuple[float, float]:
    """The bubble ratio and the seconds from the first compute to the last, by the wall columns."""
    machine = Machine(classroom(ranks).device, Topology.switch(ranks, Link(0.0, 1e30)), STEP)
    trace = launch(gpipe, ranks=ranks, machine=machine, args=(MICROBATCHES,)).trace
    work = trace.only(kind=metrics.COMPUTE)
    return metrics.bubble_ratio(trace, "wall"), metrics.makespan(work, "wall")


def rows() -> list[Row]:
    sizes = {ranks: partial(measured, ranks) for ranks in (4, 8)}
    found = []
    for p, runs in take_turns(sizes).items():
        m = MICROBATCHES
        formulas = {"bubble ratio": ((p - 1) / m, ""), "step": ((m + p - 1) * 3 * STEP, "s")}
        for place, (what, (formula, unit)) in enumerate(formulas.items()):
            ours = median(run[place] for run in runs)
            worst = max(abs(run[place] / formula - 1) for run in runs)
            note = f"the worst of {ROUNDS} runs {worst:.2%}"
            name = f"paced GPipe at 5 ms, {p} ranks: {what}"
            found.append(
                Row(name, ours, formula, ours / formula, unit=unit, within=0.01, note=note)
            )
    return found
