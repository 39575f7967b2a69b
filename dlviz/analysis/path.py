"""The critical path: what decides how long a run takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.columns import (
    NO_WORK,
    TIE,
    WAITING,
    by_rank,
    calls,
    codes,
    for_a_lock,
    of_kinds,
    times_of,
)
from dlviz.analysis.steps import spans_in
from dlviz.trace import Table, Trace


def critical_path(trace: Trace, clock: str = "device") -> Table:
    """What decides the makespan, in the order of time: columns span (its row in `trace.spans`),
    start and end (s by `clock`). If one of these intervals were longer, so would the makespan be.

    Found backwards from the span that ends last, each time to what it waited for: the later of what
    its rank did before and the span whose message (`flow`) it needed. A backend's own collective
    waits for the rank that entered it last, a wait for a lock for the rank that held it. A receive
    or a wait that something else ended is not on the path; its cause and the message are. A span
    that encloses others counts only where none of them is open, and one that sends without a send
    span until the message left; steps and phases do not count. So the intervals follow each other,
    and their sum is never longer than the makespan: the rest is messages and gaps. For a simulated
    schedule they and the latencies of its messages add up to it.

    On a wall clock, where no link is modelled, a message counts as arrived when it was sent.
    Source: Yang and Miller, "Critical path analysis", ICDCS 1988.
    """
    spans, start, end = times_of(trace.spans, clock)
    intervals = _intervals(spans, start, end)
    if not intervals.row:
        return _as_table([])
    causes = _Causes(trace, spans, start, end, intervals)
    _, row, begin, finish, _ = intervals
    at = int(np.argmax(finish))
    path, seen, counts = [], set(), True
    now = finish[at]  # everything after it is explained
    while at >= 0 and at not in seen:
        seen.add(at)
        entered = causes.entered_last(at, now)
        if entered >= 0:
            at = entered
            continue
        cause = causes.latest(at, seen)
        ended_by_it = causes.waits(at) and cause.until > begin[at]
        if counts and not ended_by_it and begin[at] <= now + TIE:
            path.append((row[at], min(begin[at], now), min(finish[at], now)))
        now = min(now, cause.until if ended_by_it else begin[at], cause.left)
        counts = not cause.sent_as_it_began
        at = cause.interval
    return _as_table(path[::-1])


def path_with_messages(trace: Trace) -> list[int]:
    """The spans of the critical path, in the order of time, and with them the sends and receives of
    the messages in its gaps."""
    spans, path = trace.spans, critical_path(trace).span.tolist()
    gaps = [(a, b) for a, b in pairwise(path) if spans.start[b] > spans.end[a] + TIE]
    waited = {int(spans.flow[after]) for _, after in gaps} - {-1}
    moves = np.isin(spans.lane, ("send", "recv")) & np.isin(spans.flow, [*waited])
    rows = {*path, *np.flatnonzero(moves).tolist()}
    return sorted(rows, key=lambda row: (spans.start[row], spans.end[row]))


def path_of_step(
    trace: Trace, step: int | None, clock: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The critical path of `step` (of all where it is None) over the spans with times by `clock`:
    spans (rows of the Trace), start and end of each interval, and the seconds of the whole. A step
    is as long as its path: before it, some ranks wait for the previous step."""
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


class _Intervals(NamedTuple):
    """What each lane did, in order of lanes and of time: `lane` (a number), `row` of the span,
    `begin` and `finish` (s); `first` of each lane, and the end of the last."""

    lane: list[int]
    row: list[int]
    begin: list[float]
    finish: list[float]
    first: list[int]

    def ended(self, lane: int, moment: float) -> int:
        """The last interval of `lane` ended by `moment`; less than its first if there is none."""
        low, high = self.first[lane], self.first[lane + 1]
        return bisect_right(self.finish, moment + TIE, low, high) - 1

    def begun(self, lane: int, moment: float) -> int:
        """The last interval of `lane` begun by `moment`; less than its first if there is none."""
        low, high = self.first[lane], self.first[lane + 1]
        return bisect_right(self.begin, moment + TIE, low, high) - 1


class _Cause(NamedTuple):
    """What an interval waited for: until when, and the interval to continue from (-1: none); for a
    message also when it `left`, and whether that was as its send began."""

    until: float
    interval: int
    left: float = np.inf
    sent_as_it_began: bool = False


class _Causes:
    """What each interval may have waited for."""

    def __init__(
        self, trace: Trace, spans: Table, start: np.ndarray, end: np.ndarray, intervals: _Intervals
    ):
        self._intervals = intervals
        self._interval_at = _by_span(len(spans), intervals.row, intervals.begin)
        senders = _senders(trace, start, end)
        self._sender, self._leaves, self._lands = (column.tolist() for column in senders)
        self._last_call, self._freed_by = entered_last(spans, start), held_before(spans, start, end)
        self._end, self._kind, self._rank = end, spans.kind.tolist(), spans.rank.tolist()
        self._lanes_of: dict[int, list[int]] = {}  # of a rank
        self._lane_called: dict[tuple[int, str], int] = {}
        self._lane_name = spans.lane
        for number, at in enumerate(intervals.first[:-1]):
            span = intervals.row[at]
            self._lanes_of.setdefault(self._rank[span], []).append(number)
            self._lane_called[self._rank[span], spans.lane[span]] = number

    def waits(self, at: int) -> bool:
        """Whether something else may have ended the interval: it computes nothing."""
        span = self._intervals.row[at]
        return self._kind[span] in WAITING or span in self._freed_by

    def entered_last(self, at: int, now: float) -> int:
        """For a backend's collective the interval, at `now`, of the rank that entered last; -1
        where it is this one, and for all other spans."""
        span = self._intervals.row[at]
        call = self._last_call.get(span, span)
        return self._interval_at(call, now) if call != span else -1

    def latest(self, at: int, seen: set[int]) -> _Cause:
        """The latest of all that it may have waited for; a path does not continue from `seen`."""
        others = self._other_lanes(at, seen)
        found = [self._own_lane(at), *others, *self._messages(at), *self._lock(at)]
        return max(found, key=attrgetter("until"))

    def _own_lane(self, at: int) -> _Cause:
        """What its lane did before."""
        lane, _, _, finish, first = self._intervals
        return _Cause(finish[at - 1], at - 1) if at > first[lane[at]] else _Cause(-np.inf, -1)

    def _other_lanes(self, at: int, seen: set[int]) -> Iterator[_Cause]:
        """What the other lanes of its rank did before it began, or ended if it only waits."""
        lane, row, begin, finish, first = self._intervals
        asks = finish[at] if self.waits(at) and self._sender[row[at]] < 0 else begin[at]
        for other in self._beside(at):
            found = self._intervals.ended(other, asks)
            while found in seen:  # two lanes that end together would cause each other for ever
                found -= 1
            if found >= first[other]:
                yield _Cause(finish[found], found)

    def _messages(self, at: int) -> Iterator[_Cause]:
        """The message that its span received, and that of the other half of an overlap."""
        for span in self._halves(at):
            sender = self._sender[span]
            if sender >= 0:
                left = self._leaves[span]
                sent_as_it_began = self._kind[sender] == "send"
                interval = self._interval_at(sender, left)
                yield _Cause(self._lands[span], interval, left, sent_as_it_began)

    def _halves(self, at: int) -> Iterator[int]:
        """Its span, and those of other lanes of its rank that begin and end with it."""
        _, row, begin, finish, first = self._intervals
        yield row[at]
        for other in self._beside(at):
            twin = self._intervals.begun(other, begin[at])
            if twin >= first[other]:
                apart = abs(begin[twin] - begin[at]) + abs(finish[twin] - finish[at])
                if apart < TIE:
                    yield row[twin]

    def _lock(self, at: int) -> Iterator[_Cause]:
        """What the rank that released the lock did then."""
        hold = self._freed_by.get(self._intervals.row[at])
        if hold is not None:
            lane = self._lane_called[self._rank[hold], self._lane_name[hold]]
            found = self._intervals.ended(lane, self._end[hold])
            if found >= self._intervals.first[lane]:
                yield _Cause(self._end[hold], found)

    def _beside(self, at: int) -> Iterator[int]:
        """The other lanes of its rank."""
        own = self._intervals.lane[at]
        return (lane for lane in self._lanes_of[self._rank[self._intervals.row[at]]] if lane != own)


def _intervals(spans: Table, start: np.ndarray, end: np.ndarray) -> _Intervals:
    """What each lane did: the innermost of its spans that do something."""
    lane = codes(zip(spans.rank.tolist(), spans.lane.tolist(), strict=True))
    order = np.lexsort((end, spans.depth, start, lane))
    works = ~of_kinds(spans, NO_WORK)
    here, after = order[:-1], order[1:]
    if not ((lane[here] == lane[after]) & (end[here] > start[after] + TIE)).any():  # none nests
        order = order[works[order]]
        edges = np.flatnonzero(np.diff(lane[order])) + 1
        columns = (column[order].tolist() for column in (lane, np.arange(len(lane)), start, end))
        return _Intervals._make([*columns, [0, *edges.tolist(), len(order)]])
    works = works.tolist()
    of, begins, ends = lane.tolist(), start.tolist(), end.tolist()
    held: list[tuple[int, int, float, float]] = []
    around: list[int] = []  # the spans open at this moment, outermost first
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
    return _Intervals._make([*columns, [0, *edges.tolist(), len(held)]])


def _as_table(path: list[tuple[int, float, float]]) -> Table:
    times = np.array([times for _, *times in path]).reshape(-1, 2)
    spans = np.array([span for span, *_ in path], np.int64)
    return Table({"span": spans, "start": times[:, 0], "end": times[:, 1]})


def _by_span(spans: int, row: list[int], begin: list[float]) -> Callable[[int, float], int]:
    """Finds the interval (its number) of a span at a moment: its last that had begun, or else its
    first; -1 for a span without intervals."""
    order = np.lexsort((begin, row))
    edges = np.searchsorted(np.array(row)[order], np.arange(spans + 1)).tolist()
    starts, numbers = np.array(begin)[order].tolist(), order.tolist()

    def interval_at(span: int, moment: float) -> int:
        low, high = edges[span], edges[span + 1]
        found = max(bisect_right(starts, moment + TIE, low, high) - 1, low)
        return numbers[found] if low < high else -1

    return interval_at


def _senders(
    trace: Trace, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each span that received its `flow` the span that sent it (its row; -1 for the others),
    when the message left and when it arrived by the clock of `start` and `end`.

    The sender is the span that carries the message, else the span of that rank that ended as it was
    sent, of several that of its microbatch.
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
    """For each wait for a lock (a span's row) the last hold of another rank that ended during it;
    earlier ones are possible."""
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
    """For each call of a backend's collective (a span's row) the call of the last rank to enter."""
    return {call: max(of, key=lambda one: start[one]) for of in calls(spans) for call in of}
