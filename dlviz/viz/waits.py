"""Whom each wait waited for, and what that one was doing: read from the spans by binary search."""

from __future__ import annotations

from collections.abc import Iterator
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
LOOKS = 7  # at what the one waited for was doing
NOTHING, LITTLE, SOME, MUCH, MOST = range(5)  # what a span says of its rank: see _at


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

    What a rank was doing is the innermost span in which it was for most of the time between the
    start of the wait and the moment its message was sent, found by binary search among its spans of
    each lane and depth. Of a lane that its own rank waited for, it is that of most of the wait.
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
    until = np.maximum(until, start[waiting])

    found = {}
    for peer in np.unique(spans.peer[waiting]).tolist():
        asked = np.flatnonzero(spans.peer[waiting] == peer)
        doing = doings(trace, peer, start, end, start[waiting[asked]], until[asked])
        for place, (row, words) in zip(asked.tolist(), doing, strict=True):
            span = int(waiting[place])
            length = float(end[span] - start[span])
            late = until[place] - start[span] > ON_ITS_WAY * length
            why = words if late else "whose message was already on its way"
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
        doing = doings(trace, rank, start, end, start[asked], end[asked], lane)
        for span, (row, words) in zip(asked, doing, strict=True):
            found[span] = Wait(float(end[span] - start[span]), f"lane {lane}", words, row)
    return found


def doings(
    trace: Trace,
    rank: int,
    start: np.ndarray,
    end: np.ndarray,
    since: np.ndarray,
    until: np.ndarray,
    lane: str | None = None,
) -> Iterator[tuple[int, str]]:
    """What `rank` did in each stretch from `since` to `until`, on `lane` or on any: the row of the
    span in which it was most of the time (or -1), and words. `start` and `end` are the spans'.

    Each stretch is looked at in LOOKS moments. A span that only holds others, or none, counts where
    no moment says more.
    """
    moments = since + (until - since) * ((np.arange(LOOKS) + 0.5) / LOOKS)[:, None]
    rows, says = _at(trace, rank, start, end, moments.ravel(), lane)
    rows, says = (found.reshape(moments.shape).T.tolist() for found in (rows, says))
    own = trace.spans.rank == rank
    first = start[own].min() if own.any() else -np.inf
    for seen, weights, over in zip(rows, says, until.tolist(), strict=True):
        floor = next(least for least in (MUCH, SOME, NOTHING) if max(weights) >= least)
        told = [row for row, weight in zip(seen, weights, strict=True) if weight >= floor]
        row = max(told, key=told.count)
        mostly = "" if seen.count(row) == len(seen) else "mostly "
        nothing = row < 0 and over <= first
        yield row, "which had not begun" if nothing else _was_doing(trace.spans, row, mostly)


def _at(
    trace: Trace,
    rank: int,
    start: np.ndarray,
    end: np.ndarray,
    at: np.ndarray,
    lane: str | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The row of what `rank` is doing at each of the times `at`, or -1, and how much it says.

    Of several lanes the one that says most is taken: one that works rather than one that waits for
    a rank, then one somewhere in a collective, then one that waits for a lane or is between two
    operations.
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
        cases = [inner < 0, little, kind == "collective", np.isin(kind, WAITING)]
        says = np.select(cases, [NOTHING, LITTLE, SOME, MUCH], MOST)
        better = says > best
        answer[better], best[better] = inner[better], says[better]
    return answer, best


def _was_doing(spans: Table, row: int, mostly: str) -> str:
    if row < 0:
        return "of which the Trace says nothing at that time"
    kind, name, peer = spans.kind[row], spans.name[row], int(spans.peer[row])
    if kind in WAITING:
        whom = f" for rank {peer}" if peer >= 0 else f" {name}" if name.startswith("for ") else ""
        return f"which was {mostly}itself waiting{whom}"
    if kind in HOLDERS:
        return f"which was {mostly}between two operations of {name or kind}"
    if name and name != kind:
        return f"which was {mostly}in {kind} {name}"
    if spans.microbatch[row] >= 0:
        return f"which was {mostly}in {kind} {spans.microbatch[row]}"
    return f"which was {mostly}in {kind}"
