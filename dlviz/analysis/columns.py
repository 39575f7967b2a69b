"""What every analysis asks of a Trace's columns: times by a clock, kinds, unions of intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from dlviz.trace import Table, Trace

COMPUTE = ("forward", "backward", "backward_input", "backward_weight")
UPDATE = ("update",)
COMMUNICATION = ("send", "recv", "collective", "wait")
OTHER = ("compress", "data", "lock")
NO_WORK = ("step", "phase", "idle")  # kinds that only hold others, or nothing
WAITING = ("recv", "wait")
TIE = 1e-9  # seconds: a release and a start closer than this are one moment
CLOCKS = {"device": ("start", "end"), "wall": ("wall_start", "wall_end")}


def times_of(
    spans: Table, clock: str, kinds: Collection[str] | None = None
) -> tuple[Table, np.ndarray, np.ndarray]:
    """The spans of `kinds` with their starts and ends by `clock`. Raises ValueError."""
    if clock not in CLOCKS:
        raise ValueError(f"clock={clock!r} is none: use 'device' or 'wall'.")
    if kinds is not None:
        spans = spans[of_kinds(spans, kinds)]
    start, end = (spans[name] for name in CLOCKS[clock])
    if np.isnan(start).any() or np.isnan(end).any():
        raise ValueError(
            f"clock={clock!r}: the trace has spans without {' and '.join(CLOCKS[clock])}; "
            f"use clock={'device' if clock == 'wall' else 'wall'!r}."
        )
    return spans, start, end


def of_kinds(spans: Table, kinds: Collection[str]) -> np.ndarray:
    return np.fromiter((kind in kinds for kind in spans.kind.tolist()), bool, len(spans))


def seconds_open(trace: Trace, kinds: Collection[str], clock: str) -> np.ndarray:
    """Seconds per rank in which a span of `kinds` is open: the length of their union."""
    spans, start, end = times_of(trace.spans, clock, kinds)
    return union(spans.rank, start, end, trace.meta["ranks"])


def union(rank: np.ndarray, start: np.ndarray, end: np.ndarray, ranks: int) -> np.ndarray:
    order = np.lexsort((start, rank))
    rank, start, end = rank[order], start[order], end[order]
    seconds = np.zeros(ranks)
    for r, rows in by_rank(rank, ranks):
        reached = np.maximum.accumulate(end[rows])
        begin = start[rows].copy()
        begin[1:] = np.maximum(begin[1:], reached[:-1])
        seconds[r] = np.maximum(reached - begin, 0).sum()
    return seconds


def by_rank(rank: np.ndarray, ranks: int) -> Iterator[tuple[int, slice]]:
    """Each rank that has rows, with its rows in columns sorted by rank."""
    edges = np.searchsorted(rank, np.arange(ranks + 1)).tolist()
    return (
        (r, slice(a, b)) for r, (a, b) in enumerate(zip(edges, edges[1:], strict=False)) if a < b
    )


def codes(values) -> np.ndarray:
    """Equal values as equal numbers, counted from 0."""
    seen: dict = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)
