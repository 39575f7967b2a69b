"""Whom each wait waited for, and what that one was doing: read from the spans by binary search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlviz.viz import text
from dlviz.viz.clocks import clock_of, message_times, span_times

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace

WAITING = ("wait", "recv")
HOLDERS = ("step", "phase")  # kinds that only hold others


def waited_for(trace: Trace, *, clock: str | None = None) -> dict[int, str]:
    """In words, for each wait (its row in `trace.spans`): how long, for whom, what that one did.

    What a rank was doing is its innermost span half-way between the start of the wait and the
    moment its message was sent, found by binary search among its spans of each lane and depth.
    """
    clock = clock_of(trace, clock)
    spans = trace.spans
    start, end = span_times(trace, clock)
    waiting = np.flatnonzero(
        np.isin(spans.kind, WAITING)
        & (spans.peer >= 0)
        & (spans.peer != spans.rank)
        & (end > start)
    )
    flow = spans.flow[waiting]
    sent = np.full(len(waiting), np.nan)
    sent[flow >= 0] = message_times(trace, clock)[0][flow[flow >= 0]]
    until = np.fmin(end[waiting], sent)
    middle = (start[waiting] + np.maximum(until, start[waiting])) / 2

    found = {}
    for peer in np.unique(spans.peer[waiting]).tolist():
        asked = np.flatnonzero(spans.peer[waiting] == peer)
        doing = _doing(trace, peer, start, end, middle[asked])
        for place, row in zip(asked.tolist(), doing.tolist(), strict=True):
            span = int(waiting[place])
            late = until[place] > start[span]
            why = _was_doing(spans, row) if late else "whose message was already on its way"
            found[span] = f"waited {text.seconds(end[span] - start[span])} for rank {peer}, {why}"
    return found


def _doing(
    trace: Trace, rank: int, start: np.ndarray, end: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """The row of what `rank` is doing at each of the times `at`, or -1.

    Of several lanes the one that says most is taken: one that works rather than one that waits,
    that rather than one that is between two operations of a step or a phase.
    """
    spans = trace.spans
    own = spans.rank == rank
    answer, best = np.full(len(at), -1), np.zeros(len(at))
    for lane in text.lanes(spans.lane[own].tolist()):
        inner = np.full(len(at), -1)
        here = own & (spans.lane == lane) & (end > start)
        for depth in np.unique(spans.depth[here])[::-1]:  # spans of one lane and depth are disjoint
            level = np.flatnonzero(here & (spans.depth == depth))
            level = level[np.argsort(start[level], kind="stable")]
            row = level[np.maximum(np.searchsorted(start[level], at, side="right") - 1, 0)]
            inside = (start[row] <= at) & (at < end[row]) & (inner < 0)
            inner[inside] = row[inside]
        kind = spans.kind[inner]
        says = np.select([inner < 0, np.isin(kind, HOLDERS), np.isin(kind, WAITING)], [0, 1, 2], 3)
        better = says > best
        answer[better], best[better] = inner[better], says[better]
    return answer


def _was_doing(spans: Table, row: int) -> str:
    if row < 0:
        return "of which the Trace says nothing at that time"
    kind, name, peer = spans.kind[row], spans.name[row], int(spans.peer[row])
    if kind in WAITING:
        return "which was itself waiting" + (f" for rank {peer}" if peer >= 0 else "")
    if kind in HOLDERS:
        return f"which was between two operations of {name or kind}"
    if name and name != kind:
        return f"which was in {kind} {name}"
    if spans.microbatch[row] >= 0:
        return f"which was in {kind} {spans.microbatch[row]}"
    return f"which was in {kind}"
