"""Tables beside the pictures, for those who cannot see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlviz.viz import palette
from dlviz.viz.clocks import clock_of, span_times

if TYPE_CHECKING:
    import pandas

    from dlviz.trace import Trace


def timeline_table(trace: Trace, *, clock: str | None = None) -> pandas.DataFrame:
    """The timeline as a table: for each rank and kind how many spans, and for how long, in seconds.

    `total` is the time in which at least one span of the kind was open, `mean` that of one span,
    `share` is the total divided by the length of the whole timeline.
    """
    import pandas

    clock = clock_of(trace, clock)
    start, end = span_times(trace, clock)
    length = float(end.max() - start.min()) if len(start) else 0.0
    table = []
    order = {kind: place for place, kind in enumerate(palette.KINDS)}
    pairs = set(zip(trace.spans.rank.tolist(), trace.spans.kind.tolist(), strict=True))
    for rank, kind in sorted(
        pairs, key=lambda pair: (pair[0], order.get(pair[1], len(order)), pair[1])
    ):
        mine = (trace.spans.rank == rank) & (trace.spans.kind == kind)
        total = _union(start[mine], end[mine])
        mean = float((end[mine] - start[mine]).mean())
        table.append((rank, kind, int(mine.sum()), total, mean, total / length if length else 0.0))
    return pandas.DataFrame(table, columns=["rank", "kind", "count", "total", "mean", "share"])


def _union(start: np.ndarray, end: np.ndarray) -> float:
    """Seconds covered by at least one of the intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(np.concatenate([[-np.inf], end[:-1]]))
    return float(np.maximum(end - np.maximum(start, reached), 0).sum())
