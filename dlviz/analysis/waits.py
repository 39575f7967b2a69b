"""Which rank waited for which, what filled each wait, and which part of a span is waiting.

    rank 0  |---------- wait for rank 1 ----------|      rank 1 was mostly in backward, for 6 of
    rank 1      |--- backward ---|update|  message       10 ms, and then its message was in transit

What a rank does at a moment is its innermost open span; of several lanes the most informative one.

A receive lasts from the call to the arrival of its message, and only its end is the transfer. A
rank's port transfers one message at a time in each direction, so a transfer starts when the message
is sent and both ports are free: after the previous message from its sender, and after the previous
one to its receiver.

    recv from rank 0   |/////////|recv|        hatched: rank 0 has not sent, or is still sending to
                       start     moved  end    others; then the rank's own port is busy
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlviz.analysis.clocks import clock_of, message_times, span_times
from dlviz.analysis.columns import (
    HOLDERS,
    LOCKED_OUT,
    WAITING,
    for_a_lock,
    lanes,
    never_ended,
    of_kinds,
)
from dlviz.analysis.path import entered_last, held_before
from dlviz.trace import Table, Trace
from dlviz.trace.trace import TOLERANCE

FOR_LANE = "for lane "  # begins the name of a wait for another lane of the same rank
LITTLE = 0.01  # of a wait: shorter parts do not count
UNRECORDED, BEFORE, SENT = -1, -2, -3  # in place of a span: none, none yet, message in transit
NOTHING, LEAST, SOME, MUCH, MOST = range(5)  # how informative a span is: see _weight


class Activity(NamedTuple):
    """What a rank does in a span, for a rank that waits for it. `kind`: the span's, but "wait" also
    for a receive, "step" also for a phase, and "" without a span: then `peer` is UNRECORDED, BEFORE
    or SENT."""

    kind: str
    name: str = ""
    peer: int = -1
    microbatch: int = -1

    @property
    def broadly(self) -> Activity:
        """The same without its details."""
        return Activity(self.kind) if self.kind else self


@dataclass(frozen=True)
class Filled:
    """What filled an interval of `whole` seconds: the main activity, for `took` seconds; the `last`
    one where it is another and more than LITTLE (before the message left, if its transit was the
    main one); the span in which the main activity lasted longest (its row, -1 where unknown)."""

    activity: Activity
    took: float
    whole: float
    last: Activity | None
    span: int


@dataclass(frozen=True)
class RecordedWait:
    """A wait for a rank, or with `lane` for that lane of the same rank."""

    seconds: float
    rank: int
    lane: str | None
    filled: Filled


def waits(trace: Trace, *, clock: str | None = None) -> dict[int, RecordedWait]:
    """Each wait for a rank, or for another lane of the same rank, by its row in `trace.spans`."""
    clock = clock_of(trace, clock)
    spans = trace.spans
    start, end = span_times(trace, clock)
    lasting = np.flatnonzero((of_kinds(spans, WAITING) | for_a_lock(spans)) & (end > start))
    columns = (of[lasting].tolist() for of in (spans.rank, _awaited(spans, start, end), spans.name))
    asked: dict[tuple[int, str | None], list[int]] = {}
    for row, rank, peer, name in zip(lasting.tolist(), *columns, strict=True):
        if peer >= 0 and peer != rank:
            asked.setdefault((peer, None), []).append(row)
        elif peer < 0 and name.startswith(FOR_LANE):
            asked.setdefault((rank, name.removeprefix(FOR_LANE)), []).append(row)

    sent = np.append(message_times(trace, clock)[0], np.nan)  # of no message, the last entry
    activities, found = Activities(trace, clock), {}
    for (rank, lane), rows in asked.items():
        until = np.fmin(end[rows], sent[spans.flow[rows]])
        meanwhile = activities.during(rank, start[rows], until, end[rows], lane)
        for row, filled in zip(rows, meanwhile, strict=True):
            found[row] = RecordedWait(float(end[row] - start[row]), rank, lane, filled)
    return dict(sorted(found.items()))


def _awaited(spans: Table, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For each span the rank it waits for: its `peer`, or for a lock the last rank that held it."""
    awaited = spans.peer.copy()
    for row, hold in held_before(spans, start, end).items():
        awaited[row] = spans.rank[hold]
    return awaited


def waited_until(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """The spans (rows of `trace.spans`) that begin by waiting, and until when (s, no later than
    their ends): a receive until its transfer starts, a backend's collective until its last rank has
    entered it, a wait for a lock and a span that never ended until their end."""
    spans = trace.spans
    start, end = span_times(trace, clock)
    until = np.full(len(spans), -np.inf)
    received = np.flatnonzero(spans.kind == "recv")
    since = np.append(_moved_since(trace, clock), np.inf)  # of no message, the last entry
    until[received] = since[spans.flow[received]]
    lost = received[spans.flow[received] < 0]  # their messages are unknown
    ended = [not never_ended(fields) for fields in spans.fields[lost].tolist()]
    until[lost[np.array(ended, bool)]] = -np.inf
    together = entered_last(spans, start)
    until[[*together]] = start[[*together.values()]]
    until[for_a_lock(spans)] = np.inf
    until = np.minimum(until, end)
    rows = np.flatnonzero(until > start + TOLERANCE)
    return rows, until[rows]


def waits_until(trace: Trace, clock: str) -> np.ndarray:
    """Until when each span waits (s): its end if it is a wait, its start if it does not wait."""
    start, end = span_times(trace, clock)
    until = start.copy()
    rows, moments = waited_until(trace, clock)
    until[rows] = moments
    return np.where(trace.spans.kind == "wait", end, until)


def _moved_since(trace: Trace, clock: str) -> np.ndarray:
    """When the transfer of each message started (s), NaN where it was never sent.

    By the wall clock, which has no ports, that is when it was sent.
    """
    table = trace.messages
    sent = message_times(trace, clock)[0]
    if clock == "wall" or trace.meta["clock"] == "wall":
        return sent
    since, arrived = sent.tolist(), table.arrived.tolist()
    src, dst = table.src.tolist(), table.dst.tolist()
    leaves, lands = [-np.inf] * trace.meta["ranks"], [-np.inf] * trace.meta["ranks"]
    for row in np.argsort(table.arrived, kind="stable").tolist():
        since[row] = max(since[row], leaves[src[row]], lands[dst[row]])
        if arrived[row] == arrived[row]:
            leaves[src[row]] = lands[dst[row]] = arrived[row]
    return np.array(since)


class Activities:
    """What the ranks of a Trace were doing in any interval."""

    def __init__(self, trace: Trace, clock: str):
        self._spans = spans = trace.spans
        self._start, self._end = span_times(trace, clock)
        names = ("kind", "name", "peer", "microbatch")
        seen: dict[tuple, int] = {}
        rows = zip(*(spans[name].tolist() for name in names), strict=True)
        which = np.array([seen.setdefault(row, len(seen)) for row in rows], np.int64)
        instead = np.arange(len(seen), len(seen) + 3)  # SENT, BEFORE and UNRECORDED, the last rows
        which = np.append(which, instead)
        found = [_activity(*row) for row in seen]
        found += [Activity("", peer=row) for row in (SENT, BEFORE, UNRECORDED)]
        self._exact, what = _numbered(found)
        self._broad, kind = _numbered([one.broadly for one in found])
        self._what, self._kind = what[which], kind[which]
        weights = [*(_weight(*row) for row in seen), NOTHING, NOTHING, NOTHING]
        self._weights = np.array(weights)[which]

    def during(
        self,
        rank: int,
        since: np.ndarray,
        until: np.ndarray,
        over: np.ndarray,
        lane: str | None = None,
    ) -> list[Filled]:
        """What filled each interval from `since` to `over`: what `rank`, or that lane of it, did
        until it sent its message at `until`, and then the message's transit."""
        of, row, lasted = self._pieces(rank, since, np.clip(until, since, over), over, lane)
        whole, what, kind = over - since, self._what[row], self._kind[row]
        alike, of_kind = _together(of, what, lasted), _together(of, kind, lasted)
        top, broad = _greatest(of, alike), _greatest(of, of_kind)
        by_kind = (alike[top] <= whole / 2) & (of_kind[broad] > whole / 2)
        top, took = np.where(by_kind, broad, top), np.where(by_kind, of_kind[broad], alike[top])
        most = np.where(by_kind[of], kind == kind[top][of], what == what[top][of])
        longest = _greatest(of, np.where(most, _together(of, row, lasted), -1.0))

        last = np.flatnonzero(np.append(np.diff(of), 1))
        last -= (row[top] == SENT) & (took < whole)  # the activity before its message left
        then = np.where(~most[last] & (alike[last] >= LITTLE * whole), what[last], -1)
        columns = (by_kind, kind[top], what[top], took, whole, then, row[longest])
        return [
            Filled(self._broad[general] if broadly else self._exact[exact], part, all_of_it,
                   self._exact[at] if at >= 0 else None, max(span, UNRECORDED))
            for broadly, general, exact, part, all_of_it, at, span in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]  # fmt: skip

    def _pieces(
        self, rank: int, since: np.ndarray, until: np.ndarray, over: np.ndarray, lane: str | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pieces of the intervals in the order of time: the interval, the span (or UNRECORDED,
        BEFORE, SENT), the seconds."""
        edges, course = self._course(rank, lane)
        first = np.searchsorted(edges, since, side="right") - 1
        count = np.maximum(np.searchsorted(edges, until, side="left") - first, 0)
        of = np.repeat(np.arange(len(since)), count)
        at = np.arange(len(of)) + np.repeat(first - np.cumsum(count) + count, count)
        lasted = np.minimum(edges[at + 1], until[of]) - np.maximum(edges[at], since[of])
        sent = np.full(len(since), SENT)
        of, row = np.append(of, np.arange(len(since))), np.append(course[at], sent)
        lasted = np.append(lasted, over - until)
        order = np.argsort(of, kind="stable")
        order = order[lasted[order] > 0]
        return of[order], row[order], lasted[order]

    def _course(self, rank: int, lane: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Times, and what `rank` did, on `lane` or on any, from each of them to the next."""
        spans = self._spans
        own = np.flatnonzero((spans.rank == rank) & (self._end > self._start))
        if lane is not None:
            own = own[spans.lane[own] == lane]
        edges = np.unique(np.concatenate([self._start[own], self._end[own]]))
        rows = self._at(own, (edges[:-1] + edges[1:]) / 2)
        if not len(own):
            return np.array([-np.inf, np.inf]), np.array([UNRECORDED])
        return np.concatenate([[-np.inf], edges, [np.inf]]), np.concatenate(
            [[BEFORE], rows, [UNRECORDED]]
        )

    def _at(self, own: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The most informative of the spans `own` at each of the times `at`; UNRECORDED where none
        is open."""
        spans, start, end = self._spans, self._start, self._end
        answer = np.full(len(at), UNRECORDED)
        for lane in lanes(spans.lane[own].tolist()):
            inner = np.full(len(at), UNRECORDED)
            here = own[spans.lane[own] == lane]
            for depth in np.unique(spans.depth[here])[::-1]:  # those of one depth are disjoint
                level = here[spans.depth[here] == depth]
                level = level[np.argsort(start[level], kind="stable")]
                row = level[np.maximum(np.searchsorted(start[level], at, side="right") - 1, 0)]
                inside = (start[row] <= at) & (at < end[row]) & (inner < 0)
                inner[inside] = row[inside]
            better = self._weights[inner] > self._weights[answer]
            answer[better] = inner[better]
        return answer


def _activity(kind: str, name: str, peer: int, microbatch: int) -> Activity:
    if kind in WAITING:
        return Activity("wait", name if peer < 0 and name.startswith("for ") else "", peer)
    if (kind, name) == LOCKED_OUT:
        return Activity("wait")
    if kind in HOLDERS:
        return Activity("step", name)
    if name and name != kind:
        return Activity(kind, name)
    return Activity(kind, microbatch=microbatch)


def _weight(kind: str, name: str, *_: int) -> int:
    """How informative a span is: most if it works, less if it waits for a rank, still less if it is
    a collective, and least if it waits for a lane or encloses others."""
    if kind in HOLDERS or name.startswith(FOR_LANE):
        return LEAST
    waits = kind in WAITING or (kind, name) == LOCKED_OUT
    return SOME if kind == "collective" else MUCH if waits else MOST


def _together(of: np.ndarray, what: np.ndarray, lasted: np.ndarray) -> np.ndarray:
    """For each piece, the seconds of all equal pieces of its interval."""
    numbers = what - what.min(initial=0)
    _, group = np.unique(of * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)
    return np.bincount(group, lasted)[group]


def _greatest(of: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each interval, the piece of the greatest value."""
    order = np.lexsort((values, of))
    return order[np.flatnonzero(np.append(np.diff(of[order]), 1))]


def _numbered(found: list[Activity]) -> tuple[list[Activity], np.ndarray]:
    """The distinct activities, and the number of each activity among them."""
    number: dict[Activity, int] = {}
    numbers = np.array([number.setdefault(one, len(number)) for one in found])
    return [*number], numbers
