"""Which gradients moved weights, when, and how old each of them was.

    server     recv 2 | update by 2 | send 2 | recv 1 | recv 3 | update by all | send 1 | send 3
    counted           2                                        1, 3

A server is a rank that updates and computes no gradient. It applies the gradient of the update's
`peer`, or else all that arrived since the previous update; a worker answered before an update had
its gradient dropped. Without a server each rank applies its own gradient.
"""

from __future__ import annotations

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.columns import COMPUTE, UPDATE, of_kinds
from dlviz.trace import Table, Trace

_EVENTS = ("recv", "send", *UPDATE)


def applied(trace: Trace, clock: str = "device") -> Table:
    """A row for each gradient that was applied, in order: `rank` (whose), `time` (s by `clock`)
    when its update ended, and `staleness`: how many updates the server had made since it sent that
    rank weights, -1 without a server.

    For updates that name their `peer` this is `metrics.staleness`.
    """
    spans = trace.spans
    start, end = span_times(trace, clock)
    update = spans.kind == "update"
    computing = spans.rank[of_kinds(spans, COMPUTE)]
    serving = update & ~np.isin(spans.rank, computing)
    if not serving.any():
        rows = np.flatnonzero(update)
        rows = rows[np.argsort(end[rows], kind="stable")]
        ages = np.full(len(rows), -1)
        return Table({"rank": spans.rank[rows], "time": end[rows], "staleness": ages})
    found: list[tuple[float, int, int]] = []
    for server in np.unique(spans.rank[serving]).tolist():
        found += _of(trace, server, end)
    rank, time, age = np.array(sorted(found)).reshape(-1, 3).T[[1, 0, 2]]
    return Table({"rank": rank.astype(int), "time": time, "staleness": age.astype(int)})


def _of(trace: Trace, server: int, end: np.ndarray) -> list[tuple[float, int, int]]:
    """For one server: when each gradient was applied, whose it was, how old."""
    spans = trace.spans
    rows = np.flatnonzero((spans.rank == server) & of_kinds(spans, _EVENTS))
    over = spans.kind[rows] == "recv"  # a receive counts at its end
    moment = np.where(over, spans.end[rows], spans.start[rows])
    wall = np.where(over, spans.wall_end[rows], spans.wall_start[rows])
    rows = rows[np.lexsort((rows, np.nan_to_num(wall), moment))]
    made = 0
    seen: dict[int, int] = {}
    came: list[int] = []
    found = []
    for row, kind, peer in zip(
        rows.tolist(), spans.kind[rows].tolist(), spans.peer[rows].tolist(), strict=True
    ):
        if kind == "recv":
            came.append(peer)
        elif kind == "send":
            seen[peer] = made
            came = [each for each in came if each != peer]
        else:
            by = [peer] if peer >= 0 else came
            found += [(float(end[row]), each, made - seen.get(each, 0)) for each in by]
            came = [each for each in came if each not in by]
            made += 1
    return found
