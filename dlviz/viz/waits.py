"""Whom each wait waited for, and what that one was doing: read from the spans by binary search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.viz import text
from dlviz.viz.clocks import clock_of, message_times, span_times

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace

WAITING = ("wait", "recv")
FOR_LANE = "for lane "  # so begins the name of a wait for another lane of the same rank
ON_ITS_WAY = 0.01  # of a wait: a message sent within this share of it counts as sent before
HOLDERS = ("step", "phase")  # kinds that only hold others


@dataclass(frozen=True)
class Wait:
    """A wait: for how many seconds, for whom, what that one was doing, and in which span (its row
    in `trace.spans`, -1 where none says it)."""

    seconds: float
    whom: str
    doing: str
    span: int

    def __str__(self) -> str:
        return f"waited {text.seconds(self.seconds)} for {self.whom}, {self.doing}"


def waited_for(trace: Trace, *, clock: str | None = None) -> dict[int, str]:
    """In words, for each wait (its row in `trace.spans`): how long, for whom, what that one did."""
    return {row: str(wait) for row, wait in waits(trace, clock=clock).items()}


def waits(trace: Trace, *, clock: str | None = None) -> dict[int, Wait]:
    """Each wait, by its row in `trace.spans`.

    What a rank was doing is its innermost span half-way between the start of the wait and the
    moment its message was sent, found by binary search among its spans of each lane and depth. Of a
    lane that its own rank waited for, it is the span half-way through the wait.
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
        doing = doing_at(trace, peer, start, end, middle[asked])
        for place, row in zip(asked.tolist(), doing.tolist(), strict=True):
            span = int(waiting[place])
            length = float(end[span] - start[span])
            late = until[place] - start[span] > ON_ITS_WAY * length
            why = was_doing(spans, row) if late else "whose message was already on its way"
            found[span] = Wait(length, f"rank {peer}", why, row if late else -1)
    return found | _lanes_waited_for(trace, start, end)


def _lanes_waited_for(trace: Trace, start: np.ndarray, end: np.ndarray) -> dict[int, Wait]:
    """The same for each wait for another lane of the waiting rank."""
    spans, waiting = trace.spans, {}
    rows = np.flatnonzero((spans.kind == "wait") & (spans.peer < 0) & (end > start))
    for span, rank, name in zip(
        rows.tolist(), spans.rank[rows].tolist(), spans.name[rows].tolist(), strict=True
    ):
        if name.startswith(FOR_LANE):
            waiting.setdefault((rank, name.removeprefix(FOR_LANE)), []).append(span)
    found = {}
    for (rank, lane), asked in waiting.items():
        middle = (start[asked] + end[asked]) / 2
        doing = doing_at(trace, rank, start, end, middle, lane)
        for span, row in zip(asked, doing.tolist(), strict=True):
            length = float(end[span] - start[span])
            found[span] = Wait(length, f"lane {lane}", was_doing(spans, row), row)
    return found


def doing_at(
    trace: Trace,
    rank: int,
    start: np.ndarray,
    end: np.ndarray,
    at: np.ndarray,
    lane: str | None = None,
) -> np.ndarray:
    """The row of what `rank` is doing at each of the times `at`, on `lane` or on any; or -1.

    Of several lanes the one that says most is taken: one that works rather than one that waits for
    a rank, that rather than one that waits for a lane or is between two operations.
    """
    spans = trace.spans
    own = spans.rank == rank
    if lane is not None:
        own &= spans.lane == lane
    answer, best = np.full(len(at), -1), np.zeros(len(at))
    for one in text.lanes(spans.lane[own].tolist()):
        inner = np.full(len(at), -1)
        here = own & (spans.lane == one) & (end > start)
        for depth in np.unique(spans.depth[here])[::-1]:  # spans of one lane and depth are disjoint
            level = np.flatnonzero(here & (spans.depth == depth))
            level = level[np.argsort(start[level], kind="stable")]
            row = level[np.maximum(np.searchsorted(start[level], at, side="right") - 1, 0)]
            inside = (start[row] <= at) & (at < end[row]) & (inner < 0)
            inner[inside] = row[inside]
        kind = spans.kind[inner]
        for_lane = np.array([name.startswith(FOR_LANE) for name in spans.name[inner]], bool)
        little = np.isin(kind, HOLDERS) | for_lane
        says = np.select([inner < 0, little, np.isin(kind, WAITING)], [0, 1, 2], 3)
        better = says > best
        answer[better], best[better] = inner[better], says[better]
    return answer


def was_doing(spans: Table, row: int) -> str:
    if row < 0:
        return "of which the Trace says nothing at that time"
    kind, name, peer = spans.kind[row], spans.name[row], int(spans.peer[row])
    if kind in WAITING:
        whom = f" for rank {peer}" if peer >= 0 else f" {name}" if name.startswith("for ") else ""
        return f"which was itself waiting{whom}"
    if kind in HOLDERS:
        return f"which was between two operations of {name or kind}"
    if name and name != kind:
        return f"which was in {kind} {name}"
    if spans.microbatch[row] >= 0:
        return f"which was in {kind} {spans.microbatch[row]}"
    return f"which was in {kind}"
