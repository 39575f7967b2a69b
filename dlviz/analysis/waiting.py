"""What of a span that waits for a message is waiting, and what is the message being moved.

    recv from rank 0   |/////////|recv|        hatched: rank 0 has not sent, or is still sending to
                       start     moved  end    others; then the rank's own port is busy

A receive, and a wait for one, lasts from the call to the moment at which the message is there. A
rank's port moves one message at a time each way, so a message is moved from when it was sent and
both ports were free: after the message before it that left its sender, and after the one before it
that reached its receiver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import message_times, span_times
from dlviz.trace.trace import TOLERANCE

if TYPE_CHECKING:
    from dlviz.trace import Trace


def moved_since(trace: Trace, clock: str) -> np.ndarray:
    """For each message the moment (s) from which it was moved, NaN where it never was sent.

    By the wall clock, which knows of no ports, that is when it was sent.
    """
    table = trace.messages
    sent = message_times(trace, clock)[0].copy()
    if clock == "wall":
        return sent
    free: dict[tuple[str, int], float] = {}
    for row in np.argsort(table.arrived, kind="stable").tolist():
        ports = ("out", int(table.src[row])), ("in", int(table.dst[row]))
        sent[row] = max([sent[row], *(free.get(port, -np.inf) for port in ports)])
        if np.isfinite(table.arrived[row]):
            free.update(dict.fromkeys(ports, float(table.arrived[row])))
    return sent


def moving(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The spans (rows of `trace.spans`) of kind recv or wait in which a message is moved to or from
    their rank, from when on (s, within the span), and the kind of that part: "recv" or "send".
    What comes before it in the span is waiting."""
    spans, table, since = trace.spans, trace.messages, moved_since(trace, clock)
    start, end = span_times(trace, clock)
    order = np.argsort(table.arrived, kind="stable")
    arrived = table.arrived[order]
    found = []
    for row in np.flatnonzero(np.isin(spans.kind, ("recv", "wait")) & (end > start)).tolist():
        flow, kind = int(spans.flow[row]), "recv"
        if flow < 0 and spans.peer[row] >= 0 and clock == "device":  # it ends as its send arrives
            low, high = np.searchsorted(arrived, end[row] + np.array([-TOLERANCE, TOLERANCE]))
            ends = order[low:high]
            mine = (table.src[ends] == spans.rank[row]) & (table.dst[ends] == spans.peer[row])
            flow, kind = (int(ends[np.argmax(mine)]) if mine.any() else -1), "send"
        if flow >= 0 and since[flow] < end[row]:
            found.append((row, max(since[flow], start[row]), kind))
    rows, begins, kinds = zip(*found, strict=True) if found else ((), (), ())
    return np.array(rows, int), np.array(begins, float), np.array(kinds, object)
