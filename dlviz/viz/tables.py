"""Tables beside the pictures, for those who cannot see them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz import metrics
from dlviz.analysis.clocks import clock_of, span_times
from dlviz.viz import palette
from dlviz.viz.bubble import SIZES, points
from dlviz.viz.compare import matched
from dlviz.viz.memory import held

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


def bubble_table(traces: Any, *, clock: str | None = None) -> pandas.DataFrame:
    """The bubble chart as a table: a row for each of `traces` (as `viz.bubble` takes them).

    Its sizes, its clock, its bubble ratio and fraction, and the ratio by the closed form (NaN where
    there is none).
    """
    import pandas

    columns = ["name", *SIZES, "origin", "ratio", "fraction"]
    rows = [
        {**{name: asdict(point)[name] for name in columns}, "formula": point.formula()}
        for point, _, _ in points(traces, clock)
    ]
    return pandas.DataFrame(rows, columns=[*columns, "formula"])


def memory_table(trace: Trace, *, what: str | None = "activations") -> pandas.DataFrame:
    """What each rank held at most (bytes; of a simulated pipeline microbatches), from when on
    (seconds), and the most microbatches in flight by its spans."""
    import pandas

    rows = held(trace, what)
    flying = metrics.peak_in_flight(trace)
    peaks = [
        (one.rank, one.peak, one.time[np.argmax(one.level)] if one.peak else np.nan,
         int(flying[one.rank]))
        for one in rows
    ]  # fmt: skip
    return pandas.DataFrame(peaks, columns=["rank", "peak", "from", "in flight"])


def compare_table(
    predicted: Trace, measured: Trace, *, step: int | None = None, clock: str | None = None
) -> pandas.DataFrame:
    """Predicted beside measured: a row for each action of either, in seconds since the first one.

    `later` and `longer` are measured minus predicted; NaN where one side has no such action.
    """
    import pandas

    (one, other), _ = matched(predicted, measured, step, clock)
    pairs = [*enumerate(one.other.tolist())]
    pairs += [(-1, row) for row in np.flatnonzero(other.other < 0).tolist()]
    rows = []
    for a, b in pairs:
        side, row = (one, a) if a >= 0 else (other, b)
        named = [side.spans[name][row] for name in ("rank", "kind", "stage", "microbatch")]
        times = [
            value if at >= 0 else np.nan
            for own, at in ((one, a), (other, b))
            for value in (own.start[at], own.end[at] - own.start[at])
        ]
        rows.append((*named, *times, times[2] - times[0], times[3] - times[1]))
    columns = ["rank", "kind", "stage", "microbatch", "predicted start", "predicted seconds",
               "measured start", "measured seconds", "later", "longer"]  # fmt: skip
    return pandas.DataFrame(rows, columns=columns)


def _union(start: np.ndarray, end: np.ndarray) -> float:
    """Seconds covered by at least one of the intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(np.concatenate([[-np.inf], end[:-1]]))
    return float(np.maximum(end - np.maximum(start, reached), 0).sum())
