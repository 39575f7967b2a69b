"""How long a run and its steps take, and which spans and messages belong to a step."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import times_of
from dlviz.counts import check_counts
from dlviz.trace import Trace


def makespan(trace: Trace, clock: str = "device") -> float:
    """Seconds from the first start to the last end of any span; 0.0 without spans."""
    _, start, end = times_of(trace.spans, clock)
    return float(end.max() - start.min()) if len(start) else 0.0


def step_seconds(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds of each step: from the first start to the last end of its spans.

    One entry per step, in the steps' order; spans without a step do not count.
    """
    first, last = _bounds(trace, clock)
    return last - first


def seconds_per_step(trace: Trace, clock: str = "device") -> float:
    """Seconds from the beginning of a step to that of the next, the median over the steps: what a
    step adds to a run, even if part of its work is left to the next. For one step its length; NaN
    where spans have no step."""
    first, _ = _bounds(trace, clock)
    return _apart(first, trace, clock)


def seconds_between_ends(trace: Trace, clock: str = "device") -> float:
    """Seconds from the end of a step to that of the next, the median over the steps: for steps that
    overlap, where some ranks, of a last stage for example, finish early and begin the next. For one
    step its length; NaN where spans have no step."""
    _, last = _bounds(trace, clock)
    return _apart(last, trace, clock)


def _bounds(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """The first start and the last end of the spans of each step, in the steps' order."""
    _, start, end = times_of(trace.spans, clock)
    steps, of = np.unique(trace.spans.step, return_inverse=True)
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, end)
    return first[steps >= 0], last[steps >= 0]


def _apart(moments: np.ndarray, trace: Trace, clock: str) -> float:
    """The median of the differences between the steps' `moments`."""
    if len(moments) > 1:
        return float(np.median(np.diff(moments)))
    return float(step_seconds(trace, clock)[0]) if len(moments) else float("nan")


def spans_in(trace: Trace, step: int | None) -> np.ndarray:
    """The rows of the spans of `step`, of all where it is None. ValueError if there are none."""
    if step is None:
        return np.arange(len(trace.spans))
    check_counts(0, step=step)  # -1: no step
    rows = np.flatnonzero(trace.spans.step == step)
    if not len(rows):
        known = trace.spans.step[trace.spans.step >= 0]
        steps = f"{known.min()} to {known.max()}" if len(known) else "none"
        raise ValueError(f"step={step!r} has no span in this Trace: its steps are {steps}.")
    return rows


def messages_in(trace: Trace, step: int | None) -> np.ndarray:
    """The rows of the messages of `step`, of all messages where it is None.

    A message has the step of the spans that carry it: inside a collective its own `step` counts
    the collective's rounds. Where these spans have no step, its own counts.
    """
    if step is None:
        return np.arange(len(trace.messages))
    check_counts(0, step=step)
    spans, of = trace.spans, trace.messages.step.copy()
    carriers = (spans.flow >= 0) & (spans.step >= 0)
    of[spans.flow[carriers]] = spans.step[carriers]
    return np.flatnonzero(of == step)
