"""Where a rank did nothing, and why: the holes between its spans, each with who ended it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import clock_of, message_times, span_times
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import text
from dlviz.viz.labels import LETTERS
from dlviz.viz.waits import HOLDERS, LITTLE, Doings

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace


@dataclass(frozen=True)
class Idle:
    """Stretches in which a rank's own lane has no span but steps and phases, a column each.

    `start` and `end` in seconds; `why` in words; `span` is the row of what the rank whose message
    ended it was doing meanwhile, -1 where no message did or none says it.
    """

    rank: np.ndarray
    lane: np.ndarray
    start: np.ndarray
    end: np.ndarray
    why: list[str]
    span: np.ndarray


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
    stretches of more than `least` seconds.

    A rank's own lane is its first as a timeline draws them. Idle ends by a message where one that
    the rank received came to its end; behind the last span there is nothing left to do.
    """
    clock = clock_of(trace, clock)
    spans = trace.spans
    start, end = span_times(trace, clock)
    sent, received = message_times(trace, clock)
    parts = []
    for rank in np.unique(spans.rank[drawn]).tolist():
        here = drawn[spans.rank[drawn] == rank]
        lane = text.lanes(spans.lane[here].tolist())[0]
        busy = here[(spans.lane[here] == lane) & ~np.isin(spans.kind[here], HOLDERS)]
        busy = busy[np.argsort(start[busy], kind="stable")]
        reached = np.maximum.accumulate(np.concatenate([[low], end[busy]]))
        begun = np.concatenate([start[busy], [high]])
        hole = np.flatnonzero(begun > reached + least)
        parts.append((rank, lane, reached[hole], begun[hole], np.append(busy, -1)[hole]))
    if not parts:
        nothing, none = np.zeros(0), np.zeros(0, int)
        return Idle(none, none.astype(object), nothing, nothing, [], none)

    ranks = np.concatenate([np.full(len(part[2]), part[0]) for part in parts])
    lanes = np.concatenate([np.full(len(part[2]), part[1], object) for part in parts])
    begin, finish, after = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))
    last = after < 0
    ender = _enders(trace, ranks, begin, finish, sent, received)
    by_message = (ender >= 0) & ~last
    until = np.maximum(np.where(by_message, sent[ender] if len(sent) else 0.0, 0.0), begin)
    why = np.where(last, "nothing left to do", "between two operations").tolist()
    span = np.full(len(begin), -1)
    doings = Doings(trace, clock)
    for peer in np.unique(trace.messages.src[ender[by_message]]).tolist():
        asked = np.flatnonzero(by_message & (trace.messages.src[ender] == peer))
        meanwhile = doings.during(peer, begin[asked], until[asked], finish[asked])
        for place, (words, row) in zip(asked.tolist(), meanwhile, strict=True):
            who = _who(spans, after[place])
            why[place] = f"{who}until a message came from rank {peer}; {words}"
            span[place] = row
    return Idle(ranks, lanes, begin, finish, why, span)


def _who(spans: Table, row: int) -> str:
    """The action of a pipeline that had to wait, in words; nothing of another span."""
    kind, stage, microbatch = spans.kind[row], spans.stage[row], spans.microbatch[row]
    if kind not in LETTERS or stage < 0 or microbatch < 0:
        return ""
    return f"{stage}{LETTERS[kind]}{microbatch} waited "


def _enders(
    trace: Trace,
    ranks: np.ndarray,
    begin: np.ndarray,
    finish: np.ndarray,
    sent: np.ndarray,
    received: np.ndarray,
) -> np.ndarray:
    """Of each stretch the message (its row) that the rank received as it ended; -1 if none."""
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
