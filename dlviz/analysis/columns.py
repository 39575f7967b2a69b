"""What every analysis needs of a Trace: times by a clock, kinds, unions of intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from dlviz.trace import Table, Trace

ACTIONS = ("forward", "backward", "backward_input", "backward_weight")
COMPUTE = (*ACTIONS, "recompute")
UPDATE = ("update",)
COMMUNICATION = ("send", "recv", "collective", "wait")
OTHER = ("compress", "copy", "data", "lock")
HOLDERS = ("step", "phase")  # kinds that only enclose others
NO_WORK = (*HOLDERS, "idle")
OWN_LANES = ("compute", "main", "")  # lanes shown under their rank's name
WAITING = ("recv", "wait")
LOCKED_OUT = ("lock", "wait")  # kind and name of a wait for a lock
UNFINISHED = "unfinished"  # the field of a span that never ended
TIE = 1e-9  # seconds: a release and a start closer than this are one moment
CLOCKS = {"device": ("start", "end"), "wall": ("wall_start", "wall_end")}


def by_known_rank(trace: Trace, values: np.ndarray) -> np.ndarray:
    """`values` by rank, NaN for ranks that `Trace.only` has cut away: they are not known."""
    if "only" not in trace.meta:
        return values
    found = np.full(len(values), np.nan)
    found[trace.ranks] = values[trace.ranks]
    return found


def times_of(
    spans: Table, clock: str, kinds: Collection[str] | None = None
) -> tuple[Table, np.ndarray, np.ndarray]:
    """The spans of `kinds` with their starts and ends by `clock`. Raises ValueError."""
    if clock not in CLOCKS:
        raise ValueError(f"clock={clock!r} is not known: use 'device' or 'wall'.")
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


def joined(start: np.ndarray, end: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals, sorted by start, with those less than `gap` apart as one: the place of the first
    of each, and its end."""
    latest = np.maximum.accumulate(end)
    new = np.append(True, start[1:] - latest[:-1] > gap)[: len(start)]
    first = np.flatnonzero(new)
    return first, latest[np.append(first[1:], len(start))[: len(first)] - 1]


def union(group: np.ndarray, start: np.ndarray, end: np.ndarray, groups: int) -> np.ndarray:
    """Seconds of each group, such as a rank, in which at least one of its intervals is open."""
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    latest = reached(group, end)
    begin = start.copy()
    same = group[1:] == group[:-1]
    begin[1:][same] = np.maximum(start[1:], latest[:-1])[same]
    return np.bincount(group, np.maximum(latest - begin, 0.0), groups)


def reached(group: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The latest end so far within each group; groups ascend."""
    order = np.argsort(end, kind="stable")
    place = np.empty(len(end), np.int64)
    place[order] = np.arange(len(end))
    above = group * len(end)  # so that groups do not mix
    return end[order][np.maximum.accumulate(place + above) - above]


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


def lanes(names: Iterable[str]) -> list[str]:
    """Lanes in the order in which they are drawn: a rank's own first."""
    return sorted(set(names), key=lambda name: (name not in OWN_LANES, name))


def calls(spans: Table) -> list[list[int]]:
    """The spans (rows) of each call of a backend's collective, one for each rank that made it."""
    found: dict[tuple[str, int], list[int]] = {}
    together = np.flatnonzero((spans.kind == "collective") & (spans.sequence >= 0))
    keys = zip(spans.group[together].tolist(), spans.sequence[together].tolist(), strict=True)
    for key, call in zip(keys, together.tolist(), strict=True):
        found.setdefault(key, []).append(call)
    return list(found.values())


def for_a_lock(spans: Table) -> np.ndarray:
    """Which spans wait for a lock; the others of that kind hold one."""
    kind, name = LOCKED_OUT
    return (spans.kind == kind) & (spans.name == name)


def never_ended(fields: dict[str, Any] | None) -> bool:
    """Whether a span was still open when its run was stopped."""
    return bool(fields and fields.get(UNFINISHED))
