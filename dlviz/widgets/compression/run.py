"""What the explorer of compression runs: a few exchanges of Gaussian gradients on real ranks.

Each rank draws its own gradients; bytes are counted from the Trace, and the sum that rank 0 has is
compared with the exact one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.steps import step_seconds
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.trace import Trace
from dlviz.widgets.compression.methods import DENSE, coding, how_of, options, seconds
from dlviz.widgets.running import Found, Progress, late_words

if TYPE_CHECKING:
    from dlviz.cluster import Comm

STEPS = 3  # of a run
DEVICE = Device("explorer", flops=1e10, memory=1e10, memory_bandwidth=1e10)
LATE = 2e-3  # s that a run may be late, whatever it takes


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Exchange on real ranks, paced: what the front end shows, its seconds by the device clock,
    and the Trace."""
    from dlviz.cluster import launch

    link = Link(values["alpha"], values["bandwidth"])
    machine = Machine(DEVICE, Topology.switch(values["ranks"], link), None)
    done = launch(exchange, machine.ranks, machine, args=(values,), progress=progress)
    return found(values, done.trace, done.results[0]), done.trace


def found(values: dict[str, Any], trace: Trace, error: float) -> dict[str, Any]:
    """What a run measured in its last step: bytes that a rank sent, and seconds."""
    spans = trace.spans
    sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0) & (spans.step == STEPS - 1))
    nbytes = trace.messages.nbytes[spans.flow[sends]].sum()
    late, bound = trace.meta["lateness"]["worst"], max(LATE, seconds(values["method"], values) / 10)
    lost = f"{100 * error:.3g} % of |sum|²" if error else "nothing"
    return {
        "sent": float(nbytes / values["ranks"]),
        "seconds": float(np.median(step_seconds(trace))),
        "late": late_words(late, bound, values["ranks"]),
        "summary": [f"The median of {STEPS} exchanges. The sum's error is {lost}."],
    }


def exchange(comm: Comm, values: dict[str, Any]) -> float:
    """What a rank runs; returns the error of the last sum, |sum - exact|^2 / |exact|^2."""
    import torch

    from dlviz import compression
    from dlviz.collectives import all_reduce
    from dlviz.collectives.coded import CodedAllReduce

    method, reduce = values["method"], all_reduce
    own = torch.randn(values["n"], generator=torch.Generator().manual_seed(comm.rank))
    if method != DENSE:
        code = compression.make(method, **options(method, values))
        if not code.linear:  # those that draw do so on each rank by themselves
            code = code.for_bucket([own.shape], comm.rank, 0)
        reduce = CodedAllReduce(code, how_of(method, values), seconds=coding(method, values))
    flat = own
    for step in comm.progress(range(STEPS), "exchange"):
        flat = own.clone()
        comm.barrier()
        with comm.span("step", step=step):
            reduce(comm, flat)
    exact = own
    all_reduce(comm, exact)
    return float((flat - exact).square().sum() / exact.square().sum())
