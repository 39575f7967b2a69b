"""The Recorder: what one rank did, appended to lists while it runs and turned into a Trace
afterwards.

Recording must not disturb what it records, so the hot path is two clock reads and one append: no
lock, no string building, no object kept per span. Every thread of a rank writes to a `Lane` of
its own (spans of one lane nest, spans of two lanes may overlap):

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
import sys
import threading
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

PACKAGE = __file__.rpartition("trace")[0]
TORCH = f"site-packages{os.sep}torch{os.sep}"
_inside: dict[CodeType, bool] = {}


def caller(depth: int) -> tuple[str, int]:
    """File and line of the first frame, `depth` calls up or more, that is the user's."""
    return user_line(sys._getframe(depth + 1))


def user_line(frame: FrameType) -> tuple[str, int]:
    """File and line of the first frame from `frame` up that is neither dlviz's nor torch's own.

    A thread that runs dlviz's code alone (a communication lane) answers with where it stands.
    """
    first, at = frame, frame
    while at is not None:
        code = at.f_code
        if not is_inside(code):
            if code.co_filename.endswith("threading.py"):
                break
            return code.co_filename, at.f_lineno
        at = at.f_back
    return first.f_code.co_filename, first.f_lineno


def is_inside(code: CodeType) -> bool:
    inside = _inside.get(code)
    if inside is None:
        file = code.co_filename
        inside = _inside[code] = file.startswith(PACKAGE) or TORCH in file
    return inside


class Lane:
    """What one thread of a rank does. `rows` are span rows (see `Span`), appended when a span ends.

    `clock` is None on the wall clock, else the device clock of this lane. `open` are the spans that
    have begun and not ended.
    """

    def __init__(self, name: str, clock: Any = None):
        self.name = name
        self.rows: list[Any] = []
        self.open: list[Span] = []
        self.depth = 0
        self.context: dict[str, Any] = {}
        self.where: tuple[str, int] | None = None  # the user's line, while it cannot change
        self.clock = clock


class Span:
    """One open span; a context manager. Its row: kind, name, wall start and end (ns), device
    start and end (seconds, None on the wall clock), depth, fields, file, line.

    `inner`: it was opened by dlviz's own code, so that the user's line stays the same inside it.
    """

    __slots__ = (
        "before", "fields", "file", "inner", "kind", "lane", "line", "name", "outer", "row",
        "start",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        kind: str,
        name: str | None,
        fields: dict[str, Any],
        file: str,
        line: int,
        inner: bool = False,
    ):
        self.lane = lane
        self.kind = kind
        self.name = name
        self.fields = fields
        self.file = file
        self.line = line
        self.inner = inner

    def __enter__(self) -> Span:
        lane = self.lane
        self.before = lane.context
        self.outer = lane.where
        lane.where = (self.file, self.line) if self.inner else None
        lane.context = self.fields = {**lane.context, **self.fields}
        if lane.clock is not None:
            self.row = [
                self.kind, self.name, 0, 0, 0.0, 0.0, lane.depth, self.fields, self.file, self.line
            ]  # fmt: skip
            lane.clock.mark(self.row, 0)
        lane.open.append(self)
        lane.depth += 1
        self.start = perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        end = perf_counter_ns()
        lane = self.lane
        lane.depth -= 1
        if lane.clock is None:
            lane.rows.append(
                (self.kind, self.name, self.start, end, None, None, lane.depth, self.fields,
                 self.file, self.line)
            )  # fmt: skip
        else:
            lane.clock.mark(self.row, 1)
            self.row[1], self.row[7] = self.name, self.fields
            lane.rows.append(self.row)
        lane.open.pop()
        lane.context = self.before
        lane.where = self.outer

    def so_far(self, depth: int, now: int) -> tuple:
        """The row of a span that has not ended, as if it ended now: its run failed."""
        clock, begun, device = self.lane.clock, self.start, (None, None)
        if clock is not None:
            begun = self.row[2]
            device = (self.row[4], max(clock.free, clock.device.now()))
        what = (depth, self.fields, self.file, self.line)
        return (self.kind, self.name, begun, now, *device, *what)

    def annotate(self, **fields: Any) -> None:
        """Give the span fields while it is open."""
        self.lane.context = self.fields = {**self.fields, **fields}


class _Nothing:
    """The span of a Recorder that is off."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
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
        self._mine = threading.local()
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
        try:
            return self._mine.lane
        except AttributeError:
            return self.open_lane(threading.current_thread().name)

    def span(self, kind: str, name: str | None = None, **fields: Any) -> Any:
        """Record what runs inside the `with` as one span of `kind`."""
        if not self.on:
            return NOTHING
        frame = sys._getframe(1)
        code = frame.f_code
        if is_inside(code):
            return self.open(kind, name, fields)
        return Span(self.lane, kind, name, fields, code.co_filename, frame.f_lineno)

    def open(self, kind: str, name: str | None, fields: dict[str, Any]) -> Any:
        """`span` for dlviz's own code: it is the user's line that is recorded."""
        if not self.on:
            return NOTHING
        lane = self.lane
        file, line = lane.where or caller(2)
        return Span(lane, kind, name, fields, file, line, inner=True)

    def label(self, **fields: Any) -> None:
        """Give fields to all that this thread records from now on, until the span around ends."""
        lane = self.lane
        lane.context = {**lane.context, **fields}
