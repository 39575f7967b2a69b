"""What workers do while all of them are at work, and how long they wait.

worker 1   |-- step --|-- step --|-- step --|
worker 2   |------- step -------|------- step -------|------- step -------|
                                [            ]   from the slowest first step's end
                                                 to the fastest last step's
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlviz.analysis.applied import applied
from dlviz.analysis.clocks import message_times, span_times
from dlviz.analysis.waits import waits_until
from dlviz.trace import Trace


class WorkerRate(NamedTuple):
    """One worker: its gradients applied per second, their mean staleness (None where none is
    applied, or staleness is undefined), the part of the time that it waits."""

    rate: float
    staleness: float | None
    waiting: float


class WorkRate(NamedTuple):
    """All workers together, and each."""

    rate: float
    staleness: float | None
    workers: tuple[WorkerRate, ...]


def work_rate(trace: Trace, first: int = 0, clock: str = "device") -> WorkRate:
    """The work of the ranks from `first` on while all are at work; those before are servers."""
    window = low, high = all_at_work(trace, first, clock)
    gradients = applied(trace, clock)
    gradients = gradients[(gradients.time > low) & (gradients.time <= high)]
    start, until = span_times(trace, clock)[0], waits_until(trace, clock)
    workers = []
    for rank in range(first, trace.meta["ranks"]):
        own = gradients[gradients.rank == rank]
        waits = (trace.spans.rank == rank) & (until > start)
        waited = np.clip(until[waits], *window) - np.clip(start[waits], *window)
        waiting = float(waited.sum()) / (high - low)
        workers.append(WorkerRate(len(own) / (high - low), _mean(own.staleness), waiting))
    return WorkRate(len(gradients) / (high - low), _mean(gradients.staleness), tuple(workers))


def all_at_work(trace: Trace, first: int = 0, clock: str = "device") -> tuple[float, float]:
    """From when every rank from `first` on has made its first step until one has made its last."""
    spans = trace.spans
    _, end = span_times(trace, clock)
    steps = (spans.kind == "phase") & (spans.step >= 0) & (spans.rank >= first)
    ends = [end[steps & (spans.rank == rank)] for rank in np.unique(spans.rank[steps]).tolist()]
    return max(map(np.min, ends)), min(map(np.max, ends))


def seconds_between_pushes(
    trace: Trace, server: int = 0, after: int = 0, clock: str = "device"
) -> dict[int, float]:
    """The mean seconds from one push of each worker to its next, skipping the first `after`:
    between the times when its messages reach the server, by worker. NaN for a worker with one push
    or none."""
    messages = trace.messages
    _, received = message_times(trace, clock)
    found = {}
    for rank in (rank for rank in range(trace.meta["ranks"]) if rank != server):
        own = (messages.src == rank) & (messages.dst == server)
        moments = np.sort(received[own])[after:]
        gaps = np.diff(moments)
        found[rank] = float(gaps.mean()) if len(gaps) else float("nan")
    return found


def _mean(ages: np.ndarray) -> float | None:
    return float(ages.mean()) if len(ages) and (ages >= 0).all() else None
