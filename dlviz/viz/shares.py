"""Where each rank's time went, step by step, from all spans: for a picture that draws only some.

rank 2   |compute   |communication |idle|      each without what the one before it covers
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.metrics import COMMUNICATION, COMPUTE, OTHER, UPDATE
from dlviz.viz.waits import HOLDERS, WAITING

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.layout import Plan

GROUPS = {"compute": COMPUTE, "update": UPDATE, "communication": COMMUNICATION, "other": OTHER}


@dataclass(frozen=True)
class Shares:
    """Seconds by what was done, (1 + steps, ranks): of the whole first, then of each step; and how
    many spans of a kind each of them has, with their seconds in all, the least and the most."""

    steps: list[int]
    ranks: list[int]
    seconds: dict[str, np.ndarray]
    kinds: list[tuple[int, str, int, float, float, float]]  # the first is a place in `seconds`


def shares(trace: Trace, plan: Plan, rows: np.ndarray) -> Shares:
    """The Shares of the spans `rows` by the plan's clock.

    A rank's part of a step is from its first span of the step to its last. `waited` is the time in
    which it waited on any lane.
    """
    spans = trace.spans
    steps = np.unique(spans.step[rows])
    steps, ranks = steps[steps >= 0], np.unique([rank for rank, _ in plan.rows])
    stepped = rows[spans.step[rows] >= 0]
    part = np.append(np.zeros(len(rows), int), 1 + np.searchsorted(steps, spans.step[stepped]))
    rows = np.append(rows, stepped)
    start, end, kind = plan.start[rows], plan.end[rows], spans.kind[rows]
    shape = 1 + len(steps), len(ranks)
    group = part * len(ranks) + np.searchsorted(ranks, spans.rank[rows])

    def covered(kinds: tuple[str, ...]) -> np.ndarray:
        mine = np.isin(kind, kinds)
        return _covered(group[mine], start[mine], end[mine], shape[0] * shape[1]).reshape(shape)

    window = np.zeros(shape[0] * shape[1])
    first, last = np.full_like(window, np.inf), np.full_like(window, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    window = np.maximum(last - first, 0.0).reshape(shape)
    window[0] = plan.high - plan.low

    seconds, of, before = {}, (), np.zeros(shape)
    for name, kinds in GROUPS.items():
        of += kinds
        until = covered(of)
        seconds[name], before = np.maximum(until - before, 0.0), until
    seconds |= {"idle": np.maximum(window - before, 0.0), "waited": covered(WAITING)}
    found = [*_by_kind(part, kind, end - start)]
    return Shares(steps.tolist(), ranks.tolist(), seconds, found)


def stretches(
    plan: Plan, trace: Trace, rows: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the spans `rows` lie: the place of a row of the plan, begin and end of each stretch
    that they cover with gaps of less than `least` seconds. Steps and phases do not count."""
    spans = trace.spans
    rows = rows[~np.isin(spans.kind[rows], HOLDERS)]
    row = plan.row[rows]
    order = np.lexsort((plan.start[rows], row))
    row, start, end = row[order], plan.start[rows][order], plan.end[rows][order]
    if not len(row):
        return row, start, end
    reached = _reached(row, end, plan.high - plan.low)
    apart = (row[1:] != row[:-1]) | (start[1:] > reached[:-1] + least)
    first = np.flatnonzero(np.append(True, apart))
    return row[first], start[first], reached[np.append(first[1:] - 1, len(row) - 1)]


def _reached(group: np.ndarray, end: np.ndarray, extent: float) -> np.ndarray:
    """The latest end so far within each group; groups ascend."""
    apart = group * 2.0 * max(extent, 1e-9)  # so that no end reaches into the next group
    low = end.min(initial=0.0)
    return np.maximum.accumulate(end - low + apart) - apart + low


def _covered(group: np.ndarray, start: np.ndarray, end: np.ndarray, groups: int) -> np.ndarray:
    """Seconds of each group in which at least one of its intervals is open."""
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    reached = _reached(group, end, float(np.ptp(end)) if len(end) else 0.0)
    begin = start.copy()
    same = group[1:] == group[:-1]
    begin[1:][same] = np.maximum(start[1:], reached[:-1])[same]
    return np.bincount(group, np.maximum(reached - begin, 0.0), groups)


def _by_kind(
    part: np.ndarray, kind: np.ndarray, length: np.ndarray
) -> Iterator[tuple[int, str, int, float, float, float]]:
    """Part, kind, count, total, least and most of the lengths of each kind in each part."""
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
