"""A run on a mesh told by axis: its communication on a lane for each axis, and what of a step's
critical path each axis takes.

    rank 0   |--0F0--|          |--0B0--|
        tp      =   =             =  =            an all-reduce inside an action
        pp           >        <                   activations to the next stage, gradients back
        dp                               ====     gradients of parameters
"""

from __future__ import annotations

import numpy as np

from dlviz.analysis.axes import axis_of
from dlviz.analysis.columns import COMMUNICATION, COMPUTE, TIE, UPDATE, of_kinds
from dlviz.analysis.path import path_of_step
from dlviz.trace import Table, Trace


def lanes(trace: Trace) -> Trace:
    """The same Trace, in which each span of communication along an axis of a mesh lies on the lane
    of its axis ("dp", "pp", "tp"), so that a timeline has a row for each axis of a rank."""
    spans, axis = trace.spans, _axes(trace)
    lane = np.where(axis != "", axis, spans.lane)
    moved = Table({**{name: spans[name] for name in spans.names}, "lane": lane})
    return Trace(moved, trace.messages, trace.memory, trace.buffers, trace.meta)


def path(trace: Trace, step: int, clock: str = "device") -> dict[str, float]:
    """Seconds of the critical path of a step by what they went to: "compute" (with updates), each
    axis along which something was sent or awaited, and "messages and gaps", the rest of the step.

    Raises ValueError for a step that the Trace lacks.
    """
    row, start, end, seconds = path_of_step(trace, step, clock)
    axis, working = _axes(trace)[row], of_kinds(trace.spans, COMPUTE + UPDATE)[row]
    what = np.where(axis != "", axis, np.where(working, "compute", "other"))
    took = {str(name): float((end - start)[what == name].sum()) for name in dict.fromkeys(what)}
    took["messages and gaps"] = seconds - sum(took.values())
    return {name: part for name, part in took.items() if part > TIE}


def _axes(trace: Trace) -> np.ndarray:
    """The axis of each span of communication, "" for all others."""
    spans = trace.spans
    group = spans.group.copy()
    carried = (group == "") & (spans.flow >= 0)
    group[carried] = trace.messages.group[spans.flow[carried]]
    group[~of_kinds(spans, COMMUNICATION)] = ""
    return axis_of(group)
