"""The times at which Perfetto draws each span and each arrow, so that its importer loses none.

Perfetto counts in whole nanoseconds, and its importer (google/perfetto: json_trace_tokenizer.cc,
slice_tracker.cc, flow_tracker.cc) needs more than nested spans in a thread: of two that overlap by
a nanosecond it drops one or moves it away, a span without length becomes a part of the next, and an
arrow is bound to the span that began last. So here every span has a nanosecond or more and ends
before the next begins, one that encloses another is longer, and an arrow begins and ends before any
later span has begun:

    recorded  |---- F0 ----|                     a send and a wait that take no time
                           |---- B0 ----|
    drawn     |---- F0 ----|s|w|-- B0 --|        take a nanosecond each

Nothing moves by more than a few nanoseconds, and the file has the exact times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlviz.trace.table import Table

TOLERANCE = 1e-9  # s: times of a lane closer than this are one moment
ROUNDS = 50  # at most, until each message is sent before it is received


@dataclass(frozen=True)
class Drawn:
    """Start and end of each span in nanoseconds; for each arrow its message (a row), the span and
    time where it begins, the span and time where it ends."""

    start: np.ndarray
    end: np.ndarray
    message: np.ndarray
    sender: np.ndarray
    sent: np.ndarray
    receiver: np.ndarray
    received: np.ndarray


@dataclass(frozen=True)
class Track:
    """The spans (rows) of a lane in order, and how many others enclose each."""

    rows: list[int]
    heights: list[int]


def drawn(spans: Table, messages: Table) -> Drawn:
    """The times of the spans, and an arrow for each message that spans of both its ranks carry."""
    begin, finish, lanes = _moments(spans)
    message, sender, receiver = _carriers(spans, messages)
    carries = np.zeros(len(spans), bool)
    carries[sender] = carries[receiver] = True
    until = np.full(len(spans), begin.min(initial=0))  # before then nothing begins in a span
    start, end, others = (np.zeros(len(spans), np.int64) for _ in range(3))

    def lay_out(lane: Track) -> None:
        at = lane.rows
        columns = [column[at].tolist() for column in (begin, finish, until, carries)]
        start[at], end[at], others[at] = _laid_out(columns, lane.heights)

    for lane in lanes:
        lay_out(lane)
    # An arrow cannot go back in time: spans that it ends in are extended until it has begun.
    in_time = others[receiver] >= begin[sender]
    message, sender, receiver = message[in_time], sender[in_time], receiver[in_time]
    for _ in range(ROUNDS):
        late = others[receiver] <= start[sender]
        if not late.any():
            break
        np.maximum.at(until, receiver[late], start[sender[late]] + 1)
        moved = {*receiver[late].tolist()}
        for lane in lanes:
            if not moved.isdisjoint(lane.rows):
                lay_out(lane)

    def within(span: np.ndarray, moment: np.ndarray) -> np.ndarray:
        known = np.where(np.isnan(moment), spans.end[span], moment)
        return np.clip(np.rint(known * 1e9).astype(np.int64), start[span], others[span] - 1)

    sent = within(sender, messages.sent[message])
    received = np.maximum(within(receiver, messages.received[message]), sent)
    received = np.minimum(received, others[receiver] - 1)
    sent = np.maximum(np.minimum(sent, received), start[sender])
    return Drawn(start, end, message, sender, sent, receiver, received)


def _carriers(spans: Table, messages: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The messages with an arrow, and for each the first span on its sender and the last on its
    receiver."""
    rows = np.flatnonzero(spans.flow >= 0)
    flow, rank = spans.flow[rows], spans.rank[rows]
    sender, receiver = np.full(len(messages), -1), np.full(len(messages), -1)
    at_sender, at_receiver = rank == messages.src[flow], rank == messages.dst[flow]
    sender[flow[at_sender][::-1]] = rows[at_sender][::-1]
    receiver[flow[at_receiver]] = rows[at_receiver]
    arrows = np.flatnonzero((sender >= 0) & (receiver >= 0) & (sender != receiver))
    return arrows, sender[arrows], receiver[arrows]


def _moments(spans: Table) -> tuple[np.ndarray, np.ndarray, list[Track]]:
    """Start and end of each span in nanoseconds, with equal times for one moment; and the lanes."""
    begin, finish = np.zeros(len(spans), np.int64), np.zeros(len(spans), np.int64)
    lanes: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(zip(spans.rank.tolist(), spans.lane.tolist(), strict=True)):
        lanes.setdefault(key, []).append(row)
    for rows in lanes.values():
        times = np.concatenate([spans.start[rows], spans.end[rows]])
        order = np.argsort(times, kind="stable")
        new = np.append(True, np.diff(times[order]) > TOLERANCE)
        moments = np.rint(times[order][new] * 1e9).astype(np.int64)
        whole = np.empty(len(times), np.int64)
        whole[order] = moments[np.cumsum(new) - 1]
        begin[rows], finish[rows] = whole[: len(rows)], whole[len(rows) :]
    columns = begin.tolist(), finish.tolist(), spans.depth.tolist()
    return begin, finish, [_nested(rows, *columns) for rows in lanes.values()]


def _nested(rows: list[int], begin: list[int], finish: list[int], depth: list[int]) -> Track:
    """The spans of a lane in order, enclosing ones first.

    One without length lies in the span open at that moment; or in one that ends then, if it is
    deeper and was recorded before it (rows are in the order of the spans' ends); else in one that
    begins then, if it is deeper.
    """
    beginning: dict[int, tuple[list[int], list[int]]] = {}  # by moment: long ones, short ones
    ending: dict[int, list[int]] = {}
    for row in rows:
        short = begin[row] == finish[row]
        beginning.setdefault(begin[row], ([], []))[short].append(row)
        if not short:
            ending.setdefault(finish[row], []).append(row)
    ordered: list[int] = []
    heights: list[int] = []
    around: list[int] = []

    def still_in(one: int, row: int) -> bool:
        return depth[one] < depth[row] and row < one

    def add(row: int, last: bool = False) -> None:
        while around and finish[around[-1]] <= begin[row]:
            if last and still_in(around[-1], row):
                break
            around.pop()
        ordered.append(row)
        heights.append(len(around))
        if begin[row] < finish[row]:
            around.append(row)

    for moment in sorted(beginning):
        long, short = beginning[moment]
        ended = ending.get(moment, ())
        last = [row for row in short if any(still_in(one, row) for one in ended)]
        rest = sorted({*short}.difference(last), key=lambda row: (depth[row], row))
        for row in last:
            add(row, last=True)
        for row in sorted(long, key=lambda row: (-finish[row], depth[row], -row)):
            while rest and depth[rest[0]] <= depth[row]:
                add(rest.pop(0))
            add(row)
        for row in rest:
            add(row)
    return Track(ordered, heights)


def _laid_out(
    columns: list[list[int]], heights: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """For the spans of a lane, in order: start, end, and when the first enclosed span begins (the
    end if there is none). `columns`: begin and end, until when nothing may begin inside, and how
    much later the first inside has to begin."""
    begin, finish, until, carries = columns
    start, end, longer = begin.copy(), finish.copy(), begin.copy()
    others, alone = begin.copy(), [True] * len(begin)
    around: list[int] = []  # the spans open at this moment, outermost first
    free = min(begin, default=0)  # from here on nothing is drawn yet

    def close() -> None:
        nonlocal free
        span = around.pop()
        free = end[span] = max(finish[span], free, longer[span])
        if alone[span]:
            others[span] = free
        if around and start[around[-1]] == start[span]:
            longer[around[-1]] = free + 1

    for span, at in enumerate(begin):
        while len(around) > heights[span]:
            close()
        start[span] = max(at, free)
        if around and alone[around[-1]]:
            others[around[-1]], alone[around[-1]] = start[span], False
        longer[span] = start[span] + 1
        free = max(start[span] + carries[span], until[span])
        around.append(span)
    while around:
        close()
    return start, end, others
