"""Where a rank did nothing, and what ended that: the gaps between its spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlviz.analysis.clocks import clock_of, message_times, span_times
from dlviz.analysis.columns import HOLDERS, lanes
from dlviz.analysis.waits import LITTLE, Activities, Filled
from dlviz.trace import Trace
from dlviz.trace.trace import TOLERANCE


@dataclass(frozen=True)
class Idle:
    """Intervals in which a rank's own lane has no span but steps and phases, as columns.

    `start` and `end` in seconds; `after`: the span (a row) that ended it, -1 after the last one;
    `source`: the rank whose message ended it, -1 where none did; `filled`: what that rank did
    meanwhile.
    """

    rank: np.ndarray
    lane: np.ndarray
    start: np.ndarray
    end: np.ndarray
    after: np.ndarray
    source: np.ndarray
    filled: list[Filled | None]


def idle(
    trace: Trace,
    drawn: np.ndarray,
    low: float,
    high: float,
    *,
    clock: str | None = None,
    least: float = TOLERANCE,
) -> Idle:
    """The Idle between `low` and `high` seconds that the spans `drawn` (rows) leave on each rank,
    intervals of more than `least` seconds.

    A rank's own lane is the first that a timeline draws. A message ends an interval where the rank
    received one at its end.
    """
    clock = clock_of(trace, clock)
    spans, table = trace.spans, trace.messages
    start, end = span_times(trace, clock)
    sent, received = message_times(trace, clock)
    parts = []
    for rank in np.unique(spans.rank[drawn]).tolist():
        here = drawn[spans.rank[drawn] == rank]
        lane = lanes(spans.lane[here].tolist())[0]
        busy = here[(spans.lane[here] == lane) & ~np.isin(spans.kind[here], HOLDERS)]
        busy = busy[np.argsort(start[busy], kind="stable")]
        latest = np.maximum.accumulate(np.concatenate([[low], end[busy]]))
        begun = np.concatenate([start[busy], [high]])
        hole = np.flatnonzero(begun > latest + least)
        parts.append((rank, lane, latest[hole], begun[hole], np.append(busy, -1)[hole]))
    if not parts:
        nothing, none = np.zeros(0), np.zeros(0, int)
        return Idle(none, none.astype(object), nothing, nothing, none, none, [])

    ranks = np.concatenate([np.full(len(part[2]), part[0]) for part in parts])
    names = np.concatenate([np.full(len(part[2]), part[1], object) for part in parts])
    begin, finish, after = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))
    ender = _enders(trace, ranks, begin, finish, sent, received)
    ended = (ender >= 0) & (after >= 0)
    source = np.where(ended, np.append(table.src, -1)[ender], -1)
    until = np.maximum(np.append(sent, 0.0)[ender], begin)
    filled: list[Filled | None] = [None] * len(begin)
    activities = Activities(trace, clock)
    for peer in np.unique(source[ended]).tolist():
        asked = np.flatnonzero(source == peer)
        meanwhile = activities.during(peer, begin[asked], until[asked], finish[asked])
        for place, one in zip(asked.tolist(), meanwhile, strict=True):
            filled[place] = one
    return Idle(ranks, names, begin, finish, after, source, filled)


def _enders(
    trace: Trace,
    ranks: np.ndarray,
    begin: np.ndarray,
    finish: np.ndarray,
    sent: np.ndarray,
    received: np.ndarray,
) -> np.ndarray:
    """For each interval the message (its row) that the rank received as it ended; -1 if none."""
    table, found = trace.messages, np.full(len(begin), -1)
    for rank in np.unique(ranks).tolist():
        mine = np.flatnonzero((table.dst == rank) & np.isfinite(received))
        if not len(mine):
            continue
        mine = mine[np.argsort(received[mine], kind="stable")]
        asked = np.flatnonzero(ranks == rank)
        slack = LITTLE * (finish[asked] - begin[asked])
        at = np.searchsorted(received[mine], finish[asked] + slack, side="right") - 1
        row = mine[np.maximum(at, 0)]
        ends = (at >= 0) & (received[row] >= finish[asked] - slack) & (sent[row] < finish[asked])
        found[asked[ends]] = row[ends]
    return found
