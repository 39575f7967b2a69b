"""Where the time of each rank went, and how much of its communication hides behind compute.

Measured here; DDP's overlap itself is in dlviz/parallel/data/train.py.
"""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import (
    COMMUNICATION,
    COMPUTE,
    OTHER,
    UPDATE,
    by_known_rank,
    seconds_open,
)
from dlviz.analysis.steps import makespan
from dlviz.trace import Trace


def exposed_communication(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which it communicates, or waits to, and does not compute.

    A send, recv, collective or wait is open on some lane, and no forward, backward or update on
    any. Communication inside a compute span of the same lane therefore counts as hidden. NaN for
    ranks that were cut away.
    """
    return by_known_rank(trace, _exposed(trace, clock))


def _exposed(trace: Trace, clock: str) -> np.ndarray:
    work = COMPUTE + UPDATE
    exposed = seconds_open(trace, work + COMMUNICATION, clock) - seconds_open(trace, work, clock)
    return np.maximum(exposed, 0.0)  # the difference of two sums may be -1e-16


def overlap(trace: Trace, clock: str = "device") -> float:
    """The part of all ranks' communication that hides behind compute, 0 to 1.

    1 - exposed / total, total being the seconds in which a rank has a communication span open.
    NaN where no rank communicates.
    """
    total = seconds_open(trace, COMMUNICATION, clock).sum()
    hidden = 1 - _exposed(trace, clock).sum() / total if total else np.nan
    return float(np.clip(hidden, 0.0, 1.0))  # sums of different intervals differ by 1e-16


def communication_ratio(trace: Trace, clock: str = "device") -> float:
    """Seconds in which ranks communicate / seconds in which they compute, hidden ones included.

    Only the steps count, where spans have one. NaN where no rank computes.
    """
    steps = np.unique(trace.spans.step)
    part = trace.only(step=steps[steps >= 0].tolist()) if (steps >= 0).any() else trace
    work = seconds_open(part, COMPUTE, clock).sum()
    return float(seconds_open(part, COMMUNICATION, clock).sum() / work) if work else float("nan")


def breakdown(trace: Trace, clock: str = "device") -> dict[str, np.ndarray]:
    """Where each rank's makespan went: seconds per rank, which add up to it.

    `compute` is busy; `update` the optimizer outside of it; `communication` the exposed part;
    `other` compressing, loading data and holding a lock outside of all these; `idle` the rest. NaN
    for ranks that were cut away.
    """
    rows, kinds, before = {}, (), 0.0
    for name, more in (
        ("compute", COMPUTE),
        ("update", UPDATE),
        ("communication", COMMUNICATION),
        ("other", OTHER),
    ):
        kinds += more
        until = seconds_open(trace, kinds, clock)
        rows[name], before = np.maximum(until - before, 0.0), until
    rows["idle"] = np.maximum(makespan(trace, clock) - before, 0.0)
    return {name: by_known_rank(trace, seconds) for name, seconds in rows.items()}
