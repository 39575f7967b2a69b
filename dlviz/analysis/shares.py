"""Where each rank's time went, step by step, from all spans, for a picture that draws only some.

rank 2   |compute   |communication |idle|      each without the time that earlier ones cover
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.columns import (
    COMMUNICATION,
    COMPUTE,
    HOLDERS,
    OTHER,
    UPDATE,
    WAITING,
    for_a_lock,
    reached,
    times_of,
    union,
)
from dlviz.trace import Trace

GROUPS = {"compute": COMPUTE, "update": UPDATE, "communication": COMMUNICATION, "other": OTHER}


@dataclass(frozen=True)
class Shares:
    """Seconds by group, (1 + steps, ranks): of the whole first, then of each step; and of each the
    number of spans of a kind, with their total, smallest and largest seconds."""

    steps: list[int]
    ranks: list[int]
    seconds: dict[str, np.ndarray]
    kinds: list[tuple[int, str, int, float, float, float]]  # the first is a place in `seconds`


def shares(trace: Trace, rows: np.ndarray, clock: str, ranks: list[int], whole: float) -> Shares:
    """The Shares of the spans `rows` on `ranks` (which ascend), of `whole` seconds in all.

    A rank's part of a step is from its first span of the step to its last. `waited`: the time in
    which it waited on any lane.
    """
    spans = trace.spans
    steps = np.unique(spans.step[rows])
    steps = steps[steps >= 0]
    stepped = rows[spans.step[rows] >= 0]
    part = np.append(np.zeros(len(rows), int), 1 + np.searchsorted(steps, spans.step[stepped]))
    rows = np.append(rows, stepped)
    start, end = (times[rows] for times in span_times(trace, clock))
    kind, shape = spans.kind[rows], (1 + len(steps), len(ranks))
    group = part * len(ranks) + np.searchsorted(ranks, spans.rank[rows])

    def covered(mine: np.ndarray) -> np.ndarray:
        return union(group[mine], start[mine], end[mine], shape[0] * shape[1]).reshape(shape)

    window = np.zeros(shape[0] * shape[1])
    first, last = np.full_like(window, np.inf), np.full_like(window, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    window = np.maximum(last - first, 0.0).reshape(shape)
    window[0] = whole

    seconds, of, before = {}, (), np.zeros(shape)
    for name, kinds in GROUPS.items():
        of += kinds
        until = covered(np.isin(kind, of))
        seconds[name], before = np.maximum(until - before, 0.0), until
    waited = np.isin(kind, WAITING) | for_a_lock(spans)[rows]
    seconds |= {"idle": np.maximum(window - before, 0.0), "waited": covered(waited)}
    found = [*_by_kind(part, kind, end - start)]
    return Shares(steps.tolist(), ranks, seconds, found)


def intervals(
    trace: Trace, rows: np.ndarray, clock: str, of: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the spans `rows` cover, in groups (`of` has a number for each span of the Trace): group,
    begin and end of each interval, with gaps of less than `least` seconds filled. Steps and phases
    do not count."""
    start, end = span_times(trace, clock)
    rows = rows[~np.isin(trace.spans.kind[rows], HOLDERS)]
    rows = rows[np.lexsort((start[rows], of[rows]))]
    group, start, end = of[rows], start[rows], end[rows]
    if not len(rows):
        return group, start, end
    latest = reached(group, end)
    apart = (group[1:] != group[:-1]) | (start[1:] > latest[:-1] + least)
    first = np.flatnonzero(np.append(True, apart))
    return group[first], start[first], latest[np.append(first[1:] - 1, len(rows) - 1)]


def kind_seconds(trace: Trace, clock: str) -> list[tuple[int, str, int, float, float]]:
    """Rank, kind, count of spans, seconds in which one of them is open, and mean seconds of one,
    for each kind of each rank, in the order of both."""
    spans, start, end = times_of(trace.spans, clock)
    pairs = sorted({*zip(spans.rank.tolist(), spans.kind.tolist(), strict=True)})
    number = {pair: place for place, pair in enumerate(pairs)}
    columns = zip(spans.rank.tolist(), spans.kind.tolist(), strict=True)
    of = np.array([number[pair] for pair in columns], np.int64)
    count = np.bincount(of, minlength=len(pairs))
    total = union(of, start, end, len(pairs))
    mean = np.bincount(of, end - start, len(pairs)) / count
    columns = (column.tolist() for column in (count, total, mean))
    return [(*pair, *own) for pair, *own in zip(pairs, *columns, strict=True)]


def _by_kind(
    part: np.ndarray, kind: np.ndarray, length: np.ndarray
) -> Iterator[tuple[int, str, int, float, float, float]]:
    """Part, kind, count, and total, minimum and maximum length of each kind in each part."""
    names, code = np.unique(kind.astype(str), return_inverse=True)
    group = part * len(names) + code
    order = np.argsort(group, kind="stable")
    group, length = group[order], length[order]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))[: len(group)]
    if not len(first):
        return
    count = np.diff(np.append(first, len(group)))
    sums, least, most = (of.reduceat(length, first) for of in (np.add, np.minimum, np.maximum))
    where, name = np.divmod(group[first], len(names))
    columns = (where, names[name], count, sums, least, most)
    yield from zip(*(column.tolist() for column in columns), strict=True)
