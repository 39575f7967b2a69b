"""A run against its prediction: the same actions of two Traces, and how much longer they took.

Actions are matched by rank, kind, stage, microbatch and step. Both sides begin with their first
action. The prediction error, measured minus predicted makespan, is split along the measured
critical path: how much longer its actions took than predicted, and the rest, which is waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlviz.analysis.clocks import clock_of, span_times
from dlviz.analysis.columns import ACTIONS, COMPUTE
from dlviz.analysis.path import critical_path
from dlviz.counts import check_counts
from dlviz.trace import Table, Trace


@dataclass(frozen=True)
class Side:
    """The actions of one Trace, when they began and ended since the first began (s) by `clock`, and
    which row of the other side is the same action (-1: none). `step`: the one chosen of several,
    else None."""

    trace: Trace
    start: np.ndarray
    end: np.ndarray
    other: np.ndarray
    clock: str
    step: int | None = None

    @property
    def spans(self) -> Table:
        return self.trace.spans

    @property
    def makespan(self) -> float:
        return float(self.end.max(initial=0.0))


Sides = tuple[Side, Side]  # predicted, measured


@dataclass(frozen=True)
class PredictionError:
    """Measured minus predicted makespan (s): `lasted`, the part because the actions on the critical
    path lasted longer, `waited`, the part because they waited longer; `worst`, the action (its row;
    -1: none was predicted) furthest from its prediction, and by how much (`most`)."""

    seconds: float
    lasted: float
    waited: float
    worst: int
    most: float


def matched(predicted: Trace, measured: Trace, step: int | None, clock: str | None) -> Sides:
    """Both sides, matched. `step`: a measured one, by default that of median length; `clock`: of
    the measured side, by default the wall. Raises ValueError."""
    if clock is None:
        clock = "device" if measured.meta["clock"] == "simulated" else "wall"
    clocks = clock_of(predicted, None), clock_of(measured, clock)
    chosen = step_of(measured, step, clocks[1], "the measured Trace")
    traces = (
        actions_of(predicted, None, "the predicted Trace"),
        actions_of(measured, chosen, "the measured Trace"),
    )
    keys = _keys(*traces)
    where = [{key: row for row, key in enumerate(own)} for own in keys]
    sides = []
    for place, (trace, read) in enumerate(zip(traces, clocks, strict=True)):
        start, end = span_times(trace, read)
        other = np.array([where[1 - place].get(key, -1) for key in keys[place]])
        first = start.min()
        named = chosen if place else None
        sides.append(Side(trace, start - first, end - first, other, read, named))
    return sides[0], sides[1]


def prediction_error(sides: Sides) -> PredictionError:
    """The prediction error between the sides, along the measured critical path."""
    one, other = sides
    path = np.unique(critical_path(other.trace, other.clock).span)
    rows = path[other.other[path] >= 0]
    took = (other.end - other.start)[rows]
    more = took - (one.end - one.start)[other.other[rows]]
    total = other.makespan - one.makespan
    lasted = float(more.sum())
    order = np.argsort(more * np.sign(lasted or 1.0))
    worst = int(rows[order[-1]]) if len(rows) else -1
    most = float(more[order[-1]]) if len(rows) else 0.0
    return PredictionError(total, lasted, total - lasted, worst, most)


def step_of(trace: Trace, step: int | None, clock: str, name: str) -> int | None:
    """The step to draw: `step`, of several that of median length, else None. Raises ValueError."""
    known = np.unique(trace.only(kind=COMPUTE).spans.step)
    if step is not None:
        check_counts(0, step=step)
        if step not in known.tolist():
            steps = ", ".join(map(str, known[known >= 0].tolist())) or "none"
            raise ValueError(f"step={step!r} has no action in {name}: it has {steps}.")
        return step
    if len(known) < 2:
        return None
    lengths = []
    for one in known.tolist():
        start, end = span_times(trace.only(kind=COMPUTE, step=one), clock)
        lengths.append(float(end.max() - start.min()))
    return int(known[np.argsort(lengths)[(len(lengths) - 1) // 2]])


def actions_of(trace: Trace, step: int | None, name: str) -> Trace:
    """The forwards and backwards of a Trace. Raises ValueError where it has none."""
    actions = trace.only(kind=ACTIONS, step=step)
    if not len(actions.spans):
        raise ValueError(f"{name} has no forward and no backward: there is nothing to compare.")
    return actions


def _keys(predicted: Trace, measured: Trace) -> tuple[list[tuple], list[tuple]]:
    """The key of each action on either side. It has the step where both sides record steps."""
    names = ["rank", "kind", "stage", "microbatch"]
    if (predicted.spans.step >= 0).any() and (measured.spans.step >= 0).any():
        names.append("step")
    one, other = (
        [*zip(*(trace.spans[name].tolist() for name in names), strict=True)]
        for trace in (predicted, measured)
    )
    return one, other
