"""A run on a mesh by axis: its communication on a lane for each axis, and each axis's part of a
step's critical path.

    rank 0   |--0F0--|          |--0B0--|
        tp      =   =             =  =            an all-reduce inside an action
        pp           >        <                   activations to the next stage, gradients back
        dp                               ====     gradients of parameters
"""

from __future__ import annotations

import numpy as np

from dlviz.analysis.axes import axis_of
from dlviz.analysis.columns import COMMUNICATION, COMPUTE, TIE, UPDATE, of_kinds, times_of, union
from dlviz.analysis.path import path_of_step
from dlviz.trace import Table, Trace


def lanes(trace: Trace) -> Trace:
    """The same Trace, with each span of communication along an axis of a mesh on a lane of that
    axis ("dp", "pp", "tp"), so that a timeline has a row for each axis of a rank. In a group of one
    rank nothing is communicated: an axis of length 1 has no lane."""
    spans, axis = trace.spans, _axes(trace)
    alone = np.char.endswith(spans.group.astype(str), ",)")  # as (3,)
    lane = np.where((axis != "") & ~alone, axis, spans.lane)
    moved = Table({**{name: spans[name] for name in spans.names}, "lane": lane})
    return Trace(moved, trace.messages, trace.memory, trace.buffers, trace.meta)


def path(trace: Trace, step: int, clock: str = "device") -> dict[str, float]:
    """Seconds of a step's critical path: "compute" (with updates), each axis along which the path
    sends or waits for a message, and "other", the rest of the step.

    Between two segments of the path a message is in transit: its seconds are those of the axis on
    which the rank of the second segment has a communication open meanwhile. Raises ValueError for a
    step that the Trace lacks.
    """
    spans, axis = trace.spans, _axes(trace)
    row, start, end, seconds = path_of_step(trace, step, clock)
    working = of_kinds(spans, COMPUTE + UPDATE)[row]
    found = {"compute": float((end - start)[working].sum())}
    _, begin, finish = times_of(spans, clock)
    for name in dict.fromkeys(axis[axis != ""].tolist()):
        sent = float((end - start)[axis[row] == name].sum())
        open_on = np.flatnonzero(axis == name)
        waited = [
            _overlap(left, right, begin[here], finish[here])
            for left, right, rank in zip(end[:-1], start[1:], spans.rank[row[1:]], strict=True)
            if right > left
            for here in [open_on[spans.rank[open_on] == rank]]
        ]
        found[name] = sent + sum(waited)
    found["other"] = seconds - sum(found.values())
    return {name: part for name, part in found.items() if part > TIE}


def _overlap(left: float, right: float, begin: np.ndarray, finish: np.ndarray) -> float:
    """The seconds from `left` to `right` in which at least one of these intervals is open."""
    begin, finish = np.clip(begin, left, right), np.clip(finish, left, right)
    return float(union(np.zeros(len(begin), int), begin, finish, 1)[0])


def _axes(trace: Trace) -> np.ndarray:
    """The axis of each span of communication, "" for all others."""
    spans = trace.spans
    group = spans.group.copy()
    carried = (group == "") & (spans.flow >= 0)
    group[carried] = trace.messages.group[spans.flow[carried]]
    group[~of_kinds(spans, COMMUNICATION)] = ""
    return axis_of(group)
