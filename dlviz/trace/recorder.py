"""The Recorder: what one rank did, appended to lists while it runs and turned into a Trace
afterwards.

Recording must not disturb what it records, so the hot path is two clock reads and one append: no
lock and no string building; rows are made when the run is over. Every thread of a rank writes to a
`Lane` of its own (spans of one lane nest, spans of two lanes may overlap):

    lane compute   |--forward--||--backward----------||--update--|
    lane comm                       |-bucket 0-||-bucket 1-|

Fields given to a span (step, microbatch, bucket, ...) hold for everything recorded inside it,
messages included. On a paced run a boundary has two times, device and wall; the lane's clock
fills in both, the wall one only after the lane's debt was slept off (see dlviz/cluster/clock.py).

Times here are integers, nanoseconds of `time.perf_counter_ns`; seconds from the run's start
appear in the Trace alone.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from time import perf_counter_ns
from types import FrameType
from typing import Any

_getframe = sys._getframe

PACKAGE = __file__.rpartition("trace")[0]
TORCH = f"site-packages{os.sep}torch{os.sep}"
# What starts a thread or a rank.
STARTERS = re.compile(r"threading\.py$|multiprocessing[\\/]\w+\.py$")
NO_SPAN = ("", None, "", 0, False)
_inside: dict[str, bool] = {}


def caller(depth: int) -> tuple[str, int]:
    """File and line of the first frame, `depth` calls up or more, that is the user's."""
    return user_line(sys._getframe(depth + 1))


def user_line(frame: FrameType) -> tuple[str, int]:
    """File and line of the first frame from `frame` up that is neither dlviz's nor torch's own.

    A thread that runs dlviz's code alone (a communication lane) answers with where it stands.
    """
    first, at = frame, frame
    while at is not None:
        file = at.f_code.co_filename
        if not is_inside(file):
            if STARTERS.search(file):
                break
            return file, at.f_lineno
        at = at.f_back
    return first.f_code.co_filename, first.f_lineno


def is_inside(file: str) -> bool:
    inside = _inside.get(file)
    if inside is None:
        inside = _inside[file] = file.startswith(PACKAGE) or TORCH in file
    return inside


class Lane:
    """What one thread of a rank does. `spans` are those that have ended, `open` those that have
    begun and not ended; `context` are the fields that hold now.

    `clock` is None on the wall clock, else the device clock of this lane.
    """

    def __init__(self, name: str, clock: Any = None):
        self.name = name
        self.clock = clock
        self.make = Span if clock is None else PacedSpan
        self.spans: list[Span] = []
        self.open: list[Span] = []
        self.context: dict[str, Any] = {}

    def rows(self) -> list[tuple]:
        """The spans as plain data: kind, name, wall start and end (ns), device start and end
        (seconds, None on the wall clock), depth, fields, file, line. Open ones end now, unfinished:
        their run failed."""
        now = perf_counter_ns()
        ended = [span.row(span.times(), span.depth) for span in self.spans]
        return ended + [
            span.row(span.times_until(now), depth, unfinished=True)
            for depth, span in enumerate(list(self.open))
        ]


class Span:
    """What a `with` records on the wall clock."""

    __slots__ = ("before", "depth", "end", "fields", "lane", "start", "what")

    def __init__(self, lane: Lane, what: tuple, fields: dict[str, Any]):
        self.lane = lane
        # kind, name, the user's file and line, whether that line covers all that is inside
        self.what = what
        self.fields = fields

    def __enter__(self) -> Span:
        lane = self.lane
        self.before = before = lane.context
        if before:
            self.fields = {**before, **self.fields}
        lane.context = self.fields
        self.start = perf_counter_ns()
        lane.open.append(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.end = perf_counter_ns()
        lane = self.lane
        opened = lane.open
        opened.pop()
        self.depth = len(opened)
        lane.spans.append(self)
        lane.context = self.before

    def annotate(self, **fields: Any) -> None:
        """Give the span fields while it is open."""
        self.lane.context = self.fields = {**self.fields, **fields}

    def times(self) -> tuple:
        """Wall start and end (ns), device start and end (s)."""
        return self.start, self.end, None, None

    def times_until(self, now: int) -> tuple:
        """Its times if it ended now."""
        return self.start, now, None, None

    def row(self, times: tuple, depth: int, **more: Any) -> tuple:
        kind, name, file, line, _ = self.what
        fields = {**self.fields, **more} if more else self.fields
        return (kind, name, *times, depth, fields, file, line)


class PacedSpan(Span):
    """What a `with` records on a paced run: the lane's clock gives both its times, the wall's once
    the lane's debt was slept off."""

    __slots__ = ("marks",)

    def __enter__(self) -> Span:
        self.marks: list[Any] = [0, 0, 0.0, 0.0]
        self.lane.clock.mark(self.marks, 0)
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lane.clock.mark(self.marks, 1)
        super().__exit__(kind, error, trace)

    def times(self) -> tuple:
        return tuple(self.marks)

    def times_until(self, now: int) -> tuple:
        clock = self.lane.clock
        return self.marks[0], now, self.marks[2], max(clock.free, clock.device.now())


class _Nothing:
    """The span of a Recorder that is off."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass

    def annotate(self, **fields: Any) -> None:
        pass


NOTHING = _Nothing()


class Recorder:
    """All lanes of one rank. `on=False` records nothing (and `span` costs next to nothing).

    The thread that makes the Recorder writes to the lane `compute`; any other thread gets a lane
    of its own the first time it records, named after the thread.
    """

    def __init__(self, rank: int, on: bool = True, clock: Any = None):
        self.rank = rank
        self.on = on
        self.lanes: list[Lane] = []
        self._clock = clock
        self._second: dict[Lane, Lane] = {}
        self._mine = _Mine(self)
        self.open_lane("compute")

    def open_lane(self, name: str) -> Lane:
        """Make a lane called `name` and let the calling thread write to it."""
        taken = {lane.name for lane in self.lanes}
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}{number}", number + 1
        lane = Lane(unique, None if self._clock is None else self._clock(unique))
        self.lanes.append(lane)
        self._mine.lane = lane
        return lane

    @property
    def lane(self) -> Lane:
        """The calling thread's lane."""
        return self._mine.lane

    def beside(self, kind: str, name: str | None, fields: dict[str, Any]) -> Any:
        """`open` for what runs at the same time as that which is recorded inside: the span lies on
        a second lane of the calling thread, called compute2 where its own is compute."""
        if not self.on:
            return NOTHING
        own = self.lane
        if own not in self._second:
            second = self._second[own] = self.open_lane(f"{own.name}2")
            second.clock, self._mine.lane = own.clock, own
        second = self._second[own]
        second.context = own.context
        return second.make(second, (kind, name, *caller(2), False), fields)

    def span(self, kind: str, name: str | None = None, **fields: Any) -> Any:
        """Record what runs inside the `with` as one span of `kind`."""
        if not self.on:
            return NOTHING
        frame = _getframe(1)
        file = frame.f_code.co_filename
        if _inside.get(file, True) and is_inside(file):  # the first spares a call
            return self.open(kind, name, fields)
        lane = self._mine.lane
        return lane.make(lane, (kind, name, file, frame.f_lineno, False), fields)

    def open(self, kind: str, name: str | None, fields: dict[str, Any], whole: bool = True) -> Any:
        """`span` for dlviz's own code: it is the user's line that is recorded. `whole`: nothing of
        the user's runs inside, so that all inside has the same line."""
        if not self.on:
            return NOTHING
        lane = self._mine.lane
        around = lane.open[-1].what if lane.open else NO_SPAN
        where = around[2:4] if around[4] else caller(2)
        return lane.make(lane, (kind, name, *where, whole), fields)

    def label(self, **fields: Any) -> None:
        """Give fields to all that this thread records from now on, until the span around ends."""
        lane = self.lane
        lane.context = {**lane.context, **fields}


class _Mine(threading.local):
    """The calling thread's lane; a thread's first use makes it one."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def __getattr__(self, name: str) -> Lane:
        if name != "lane":
            raise AttributeError(name)
        return self._recorder.open_lane(threading.current_thread().name)
