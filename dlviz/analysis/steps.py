"""How long a run and its steps take."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import times_of
from dlviz.trace import Trace


def makespan(trace: Trace, clock: str = "device") -> float:
    """Seconds from the first start to the last end of any span; 0.0 without spans."""
    _, start, end = times_of(trace.spans, clock)
    return float(end.max() - start.min()) if len(start) else 0.0


def step_seconds(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds of each step: from the first start to the last end of the spans that bear it.

    One entry per step, in the steps' order; spans without a step count as none.
    """
    _, start, end = times_of(trace.spans, clock)
    steps, of = np.unique(trace.spans.step, return_inverse=True)
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, end)
    return (last - first)[steps >= 0]
