"""What changed from one Trace to another: the length of both, and what a rank did in them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from dlviz.analysis.columns import HOLDERS, times_of, union
from dlviz.analysis.shares import kind_seconds
from dlviz.trace import Trace


class Change(NamedTuple):
    """Seconds before and after."""

    what: str
    before: float
    after: float


def changes(before: Trace, after: Trace, clocks: tuple[str, str]) -> list[Change]:
    """The whole; then each kind of span and idle time, in mean seconds per rank in which one is
    open, the largest changes first; each by its clock."""
    sides = [_of_a_rank(trace, clock) for trace, clock in zip((before, after), clocks, strict=True)]
    whole, *parts = (
        Change(what, *(side.get(what, 0.0) for side in sides))
        for what in dict.fromkeys([*sides[0], *sides[1]])
    )
    return [whole, *sorted(parts, key=lambda one: -abs(one.after - one.before))]


def _of_a_rank(trace: Trace, clock: str) -> dict[str, float]:
    """The seconds of the whole, and of each kind and of idle time in the mean over the ranks."""
    spans, start, end = times_of(trace.spans, clock)
    length = float(end.max() - start.min()) if len(spans) else 0.0
    many = max(len(trace.ranks), 1)
    found = defaultdict(float, {"the whole": length})
    for _, kind, _, seconds, _ in kind_seconds(trace, clock):
        if kind not in HOLDERS:
            found[kind] += seconds / many
    busy = ~np.isin(spans.kind, HOLDERS)
    place = np.searchsorted(trace.ranks, spans.rank[busy])
    worked = float(union(place, start[busy], end[busy], many).sum()) / many
    found["idle"] = max(length - worked, 0.0)
    return found
