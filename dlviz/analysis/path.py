"""The critical path: what decides how long a run takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.columns import (
    NO_WORK,
    TIE,
    WAITING,
    by_rank,
    codes,
    for_a_lock,
    of_kinds,
    times_of,
)
from dlviz.analysis.steps import spans_in
from dlviz.trace import Table, Trace


def critical_path(trace: Trace, clock: str = "device") -> Table:
    """What decides the makespan, in the order of time: columns span (its row in `trace.spans`),
    start and end (s by `clock`). Were one of these stretches longer, the makespan would be longer.

    From the span that ends last back, each time to what it waited for: whichever came later of what
    its rank did before and the span whose message (`flow`) it needed. A backend's own collective
    waits for the rank that entered it last, a wait for a lock for the rank that held it. A receive
    or a wait that something else ended is not on the path: that, and its message, are. A span that
    holds others counts only where none of them is open, one that sends without a span of its own
    until the message left; one that only holds others has no part. So the stretches follow each
    other, and together they are never longer than the makespan: the rest is messages and gaps. Of a
    simulated schedule they and the latencies of its messages add up to it.

    On a wall clock, where no link is modelled, a message counts as there when it was sent.
    Source: Yang and Miller, "Critical path analysis", ICDCS 1988.
    """
    spans, start, end = times_of(trace.spans, clock)
    lane, row, begin, finish, first = _stretches(spans, start, end)
    if not row:
        return _as_table([])
    stretch_at = _by_span(len(spans), row, begin)
    sender, leaves, lands = (column.tolist() for column in _senders(trace, start, end))
    latest, freed_by = entered_last(spans, start), held_before(spans, start, end)
    rank, kind = spans.rank.tolist(), spans.kind.tolist()
    beside: dict[int, list[int]] = {}  # the lanes of a rank
    lane_of: dict[tuple[int, str], int] = {}
    for number, at in enumerate(first[:-1]):
        beside.setdefault(rank[row[at]], []).append(number)
        lane_of[rank[row[at]], spans.lane[row[at]]] = number

    path, seen, at, counts = [], set(), int(np.argmax(finish)), True
    now = finish[at]  # all from here on has been explained
    while at >= 0 and at not in seen:
        seen.add(at)
        span = row[at]
        last = stretch_at(latest.get(span, span), now)
        if last >= 0 and row[last] != span:
            at = last
            continue
        waits = kind[span] in WAITING or span in freed_by
        asks = finish[at] if waits and sender[span] < 0 else begin[at]
        previous = at - 1 if at > first[lane[at]] else -1
        until, to, message = finish[previous] if previous >= 0 else -np.inf, previous, -1
        needs = [span]
        for other in beside[rank[span]]:
            if other == lane[at]:
                continue
            low, high = first[other], first[other + 1]
            found = bisect_right(finish, asks + TIE, low, high) - 1
            while found in seen:  # two lanes that end together would ask each other for ever
                found -= 1
            if found >= low and finish[found] > until:
                until, to = finish[found], found
            twin = bisect_right(begin, begin[at] + TIE, low, high) - 1
            if twin >= low and abs(begin[twin] - begin[at]) + abs(finish[twin] - finish[at]) < TIE:
                needs.append(row[twin])  # the other half of an overlap
        for one in needs:
            if sender[one] >= 0 and lands[one] > until:
                until, to, message = lands[one], stretch_at(sender[one], leaves[one]), one
        if span in freed_by:  # what the other rank was at when it let go of the lock
            hold = freed_by[span]
            other = lane_of[rank[hold], spans.lane[hold]]
            low, high = first[other], first[other + 1]
            found = bisect_right(finish, end[hold] + TIE, low, high) - 1
            if found >= low and end[hold] > until:
                until, to, message = end[hold], found, -1
        ended_by_it = waits and until > begin[at]
        if counts and not ended_by_it and begin[at] <= now + TIE:
            path.append((span, min(begin[at], now), min(finish[at], now)))
        now = min(now, until if ended_by_it else begin[at])
        counts = True
        if message >= 0:
            now = min(now, leaves[message])
            counts = kind[row[to]] != "send"  # it left as that began
        at = to
    return _as_table(path[::-1])


def path_of_step(
    trace: Trace, step: int | None, clock: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The critical path of `step` (of all where it is None) by what has times by `clock`: spans
    (rows of the Trace), start and end of each stretch, and the seconds of the whole. A step is as
    long as its path: before that, some ranks wait for the step before it."""
    start, end = span_times(trace, clock)
    timed = spans_in(trace, step)
    timed = timed[np.isfinite(end - start)[timed]]
    part = trace
    if len(timed) < len(trace.spans):
        part = Trace(trace.spans[timed], trace.messages, meta=trace.meta)
    path = critical_path(part, clock)
    if not len(path):
        return path.span, path.start, path.end, 0.0
    began = start[timed].min() if step is None else path.start[0]
    return timed[path.span], path.start, path.end, float(end[timed].max() - began)


def _stretches(
    spans: Table, start: np.ndarray, end: np.ndarray
) -> tuple[list[int], list[int], list[float], list[float], list[int]]:
    """What each lane was at, from when to when: the innermost of its spans that do something.

    Columns lane (a number), span (its row), begin and finish, in order of lanes and of time; and
    where each lane begins among them, with the end of the last.
    """
    lane = codes(zip(spans.rank.tolist(), spans.lane.tolist(), strict=True))
    order = np.lexsort((end, spans.depth, start, lane))
    works = ~of_kinds(spans, NO_WORK)
    here, after = order[:-1], order[1:]
    if not ((lane[here] == lane[after]) & (end[here] > start[after] + TIE)).any():  # none nests
        order = order[works[order]]
        edges = np.flatnonzero(np.diff(lane[order])) + 1
        columns = (column[order].tolist() for column in (lane, np.arange(len(lane)), start, end))
        return *columns, [0, *edges.tolist(), len(order)]  # pyright: ignore[reportReturnType]
    works = works.tolist()
    of, begins, ends = lane.tolist(), start.tolist(), end.tolist()
    held: list[tuple[int, int, float, float]] = []
    around: list[int] = []  # the spans that hold this moment, outermost first
    since = -np.inf

    def hold(span: int, until: float) -> None:
        if works[span] and (until > since or ends[span] == begins[span]):
            held.append((of[span], span, since, until))

    for span in [*order.tolist(), -1]:
        while around:
            inner = around[-1]
            inside = span >= 0 and of[span] == of[inner]
            if inside and ends[inner] > begins[span] + TIE:
                hold(inner, begins[span])
                break
            hold(inner, ends[inner])
            since = ends[around.pop()]
        if span >= 0:
            around.append(span)
            since = begins[span]
    columns = [list(column) for column in zip(*held, strict=True)] or [[], [], [], []]
    edges = np.flatnonzero(np.diff(columns[0])) + 1
    return *columns, [0, *edges.tolist(), len(held)]  # pyright: ignore[reportReturnType]


def _as_table(path: list[tuple[int, float, float]]) -> Table:
    times = np.array([times for _, *times in path]).reshape(-1, 2)
    spans = np.array([span for span, *_ in path], np.int64)
    return Table({"span": spans, "start": times[:, 0], "end": times[:, 1]})


def _by_span(spans: int, row: list[int], begin: list[float]) -> Callable[[int, float], int]:
    """Finds the stretch (its number) in which a span was at a moment: its last that had begun, or
    else its first; -1 of a span that has none."""
    order = np.lexsort((begin, row))
    edges = np.searchsorted(np.array(row)[order], np.arange(spans + 1)).tolist()
    starts, numbers = np.array(begin)[order].tolist(), order.tolist()

    def stretch_at(span: int, moment: float) -> int:
        low, high = edges[span], edges[span + 1]
        found = max(bisect_right(starts, moment + TIE, low, high) - 1, low)
        return numbers[found] if low < high else -1

    return stretch_at


def _senders(
    trace: Trace, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each span that received its `flow` the span that sent it (its row; -1 for the others),
    when that left and when it landed by the clock of `start` and `end`.

    Its sender is the one that carries it, else whichever span of that rank ended as it was sent, of
    several that of the microbatch that it is for.
    """
    spans, messages = trace.spans, trace.messages
    sender = np.full(len(messages), -1)
    carries = np.flatnonzero(spans.flow >= 0)
    sends = spans.rank[carries] == messages.src[spans.flow[carries]]
    sender[spans.flow[carries[sends]]] = carries[sends]
    works = np.flatnonzero(~of_kinds(spans, NO_WORK))
    works = works[np.lexsort((works, spans.start[works], spans.end[works], spans.rank[works]))]
    gets = carries[~sends]
    of = np.full(len(messages), -1)
    of[spans.flow[gets]] = spans.microbatch[gets]
    missing = np.flatnonzero((sender < 0) & np.isfinite(messages.sent))
    for rank, rows in by_rank(spans.rank[works], trace.meta["ranks"]):
        asked = missing[messages.src[missing] == rank]
        ends, sent = spans.end[works[rows]], messages.sent[asked]
        after = np.minimum(np.searchsorted(ends, sent), len(ends) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(sent - ends[before] < ends[after] - sent, before, after)
        first, last = (np.searchsorted(ends, ends[nearest], side) for side in ("left", "right"))
        sender[asked] = works[rows][first]
        for i in np.flatnonzero(last - first > 1).tolist():
            for one in works[rows][first[i] : last[i]][::-1].tolist():
                if spans.microbatch[one] == of[asked[i]]:
                    sender[asked[i]] = one

    left = spans.kind[sender] == "send"
    ready = np.where(left, spans.start[sender], spans.end[sender])
    clocked = np.where(left, start[sender], end[sender])
    modelled = (trace.meta["clock"] != "wall") & np.isfinite(messages.arrived)
    lands = clocked + np.where(modelled, messages.arrived, messages.sent) - ready
    leaves = np.where(left, clocked, clocked + messages.sent - ready)
    from_whom, went, when = (np.full(len(spans), missing) for missing in (-1, np.nan, np.nan))
    from_whom[gets] = sender[spans.flow[gets]]
    went[gets], when[gets] = leaves[spans.flow[gets]], lands[spans.flow[gets]]
    return from_whom, went, when


def held_before(spans: Table, start: np.ndarray, end: np.ndarray) -> dict[int, int]:
    """Of each wait for a lock (a span's row) the last hold of another rank that ended meanwhile:
    others may have come before."""
    rank = spans.rank.tolist()
    held = np.flatnonzero((spans.kind == "lock") & (spans.name == "hold"))
    held = held[np.argsort(end[held], kind="stable")].tolist()
    until, found = end[held].tolist(), {}
    for row in np.flatnonzero(for_a_lock(spans)).tolist():
        at = bisect_right(until, end[row] + TIE) - 1
        while at >= 0 and rank[held[at]] == rank[row]:
            at -= 1
        if at >= 0 and until[at] > start[row]:
            found[row] = held[at]
    return found


def entered_last(spans: Table, start: np.ndarray) -> dict[int, int]:
    """Of each call of a backend's collective (a span's row) the call of the rank that came last."""
    calls: dict[tuple[str, int], list[int]] = {}
    together = np.flatnonzero((spans.kind == "collective") & (spans.sequence >= 0))
    keys = zip(spans.group[together].tolist(), spans.sequence[together].tolist(), strict=True)
    for key, call in zip(keys, together.tolist(), strict=True):
        calls.setdefault(key, []).append(call)
    return {call: max(of, key=lambda one: start[one]) for of in calls.values() for call in of}
