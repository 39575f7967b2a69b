"""The Recorder: what one rank did, appended to lists while it runs and made into a Trace
afterwards.

Recording must not disturb what it records, so the hot path is two clock reads and one append: no
lock and no string building; rows are made when the run is over. Every thread of a rank writes to
its own `LaneSpans` (spans of one lane nest, spans of two lanes may overlap):

    lane compute   |--forward--||--backward----------||--update--|
    lane comm                       |-bucket 0-||-bucket 1-|

Fields given to a span (step, microbatch, bucket, ...) hold for everything recorded inside it,
messages included. On a paced run a boundary has two times, device and wall; the lane's clock fills
in both, the wall one only after the lane has slept its debt off (see
dlviz/cluster/pacing/clock.py).

Times here are integers, nanoseconds of `time.perf_counter_ns`; only the Trace has seconds from the
run's start.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import takewhile
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

_getframe = sys._getframe

PACKAGE = __file__.rpartition("trace")[0]
STDLIB = os.path.dirname(os.__file__) + os.sep
INSTALLED_IN = re.compile(r"[\\/](site|dist)-packages[\\/](torch[\\/])?")
STARTER_FILE = re.compile(r"multiprocessing[\\/]process\.py$")  # it starts a rank
CELL = r"(?:ipykernel_\d+[/\\]|<ipython-input-)"  # in the file name of a notebook's cell
NO_SPAN = ("", None, "", 0, False)
# Sides: dlviz's own, torch's or Python's; another package's; what starts a rank; the user's.
INSIDE, INSTALLED, STARTER, USER = 1, 2, 3, 4
_sides: dict[str, int] = {}  # by file
_users: set[str] = set()  # files that are the USER's, for the hot path


def user_line(calls: Iterable[tuple[str, int]]) -> tuple[str, int]:
    """File and line of the first of `calls`, innermost first, that is the user's: not in dlviz,
    torch, the standard library or (if there is another) an installed package. The first call where
    only dlviz's code runs, ("", 0) where there are none."""
    own = list(takewhile(lambda call: _side(call[0]) != STARTER, calls))
    for side in (USER, INSTALLED):
        for call in own:
            if _side(call[0]) == side:
                return call
    return own[0] if own else ("", 0)


def is_inside(file: str) -> bool:
    """Whether the file is not the user's: dlviz's, Python's, or an installed package's."""
    return _side(file) != USER


def _side(file: str) -> int:
    side = _sides.get(file)
    if side is None:
        side = _sides[file] = _side_of(file)
        if side == USER:
            _users.add(file)
    return side


def _side_of(file: str) -> int:
    if installed := INSTALLED_IN.search(file):
        return INSIDE if installed[2] or file.startswith(PACKAGE) else INSTALLED
    if STARTER_FILE.search(file):
        return STARTER
    return INSIDE if file.startswith((PACKAGE, STDLIB, "<frozen ")) else USER


def line_at(where: Any, at: int) -> tuple[str, int]:
    """File and line of a place, which is given as these, or as a code object and an instruction."""
    return (where, at) if isinstance(where, str) else (where.co_filename, line_of(where, at))


@lru_cache(maxsize=4096)
def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def _lines(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """File and line of this thread's calls, from `frame` up."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


class LaneSpans:
    """What one thread of a rank does. `spans`: those that have ended; `open`: those that have not;
    `context`: the fields that hold now; `pace`: the clock; `origin`: the user's code, as `line_at`
    takes it, that gave this thread its work."""

    origin: tuple[Any, int] | None = None

    def __init__(self, name: str, pace: Any):
        self.name = name
        self.pace = pace
        self.make = pace.span
        self.spans: list[Any] = []
        self.open: list[Span] = []
        self.context: dict[str, Any] = {}

    def add(self, kind: str, name: str | None, times: list[Any], fields: dict[str, Any]) -> None:
        """Record what dlviz did between two `times` of the lane's pace, without running the user's
        code."""
        opened = self.open
        around = opened[-1].what if opened else NO_SPAN
        place = around[2:4] if around[4] else self.place(1)
        if self.context:
            fields = {**self.context, **fields}
        self.spans.append((kind, name, place, times, len(opened), fields))

    def place(self, depth: int) -> tuple[Any, int]:
        """The user's code (see `user_line`), from `depth` calls up, and the instruction in it; its
        line is looked up when the run is over. Where only dlviz's code runs, as on a communication
        lane, the `origin`."""
        first = frame = _getframe(depth + 1)
        # The dict spares a call.
        while (side := _sides.get(file := frame.f_code.co_filename) or _side(file)) < STARTER:
            if frame.f_back is None:
                break
            frame = frame.f_back
        if side == USER:
            return frame.f_code, frame.f_lasti
        return self.origin or user_line(_lines(first))

    def unfinished(
        self,
        kind: str,
        name: str | None,
        times: list[Any],
        fields: dict[str, Any],
        place: tuple[str, int],
    ) -> Row:
        """The unfinished span of dlviz's work for this line, begun at `times`: the run failed."""
        fields = {**self.context, **fields, "unfinished": True}
        until = self.pace.until(times, perf_counter_ns())
        return Row._make((kind, name, *until, len(self.open), fields, *place))

    def rows(self) -> list[Row]:
        """The spans. Open ones end now, unfinished: their run failed."""
        ended = [row_of(*each) if type(each) is tuple else each.row() for each in list(self.spans)]
        now = perf_counter_ns()  # after them: open spans may enclose ended ones
        return ended + [span.row_until(now, depth) for depth, span in enumerate(list(self.open))]


class Row(NamedTuple):
    """A span as plain data. Wall times in ns, the device's in s (None on the wall clock)."""

    kind: str
    name: str | None
    wall_start: int
    wall_end: int
    start: float | None
    end: float | None
    depth: int
    fields: dict[str, Any]
    file: str
    line: int


def row_of(
    kind: str,
    name: str | None,
    place: tuple[Any, int],
    times: list[Any],
    depth: int,
    fields: dict[str, Any],
) -> Row:
    """The row of a span of dlviz's own, a plain tuple until the run is over: making that takes a
    third of a named one's time. `place` is as `line_at` takes it."""
    return Row._make((kind, name, *times, depth, fields, *line_at(*place)))


class Span:
    """The span of a `with` on the wall clock."""

    __slots__ = ("before", "depth", "end", "fields", "lane", "start", "what")

    def __init__(self, lane: LaneSpans, what: tuple, fields: dict[str, Any]):
        self.lane = lane
        # kind, name, the user's place as `line_at` takes it, whether all inside has that place
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

    def row(self) -> Row:
        kind, name, *place, _ = self.what
        times = self.start, self.end, None, None
        return Row(kind, name, *times, self.depth, self.fields, *line_at(*place))

    def row_until(self, now: int, depth: int) -> Row:
        """The row if it ended now, unfinished."""
        kind, name, *place, _ = self.what
        fields = {**self.fields, "unfinished": True}
        return Row(kind, name, self.start, now, None, None, depth, fields, *line_at(*place))


class PacedSpan(Span):
    """The span of a `with` on a paced run: the lane's pace gives both its times, the wall's once
    the lane has slept its debt off."""

    __slots__ = ("times",)

    def __enter__(self) -> Span:
        self.times = self.lane.pace.start()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lane.pace.end(self.times)
        super().__exit__(kind, error, trace)

    def row(self) -> Row:
        return super().row()._replace(**dict(zip(TIMES, self.times, strict=True)))

    def row_until(self, now: int, depth: int) -> Row:
        times = self.lane.pace.until(self.times, now)
        return super().row_until(now, depth)._replace(**dict(zip(TIMES, times, strict=True)))


TIMES = Row._fields[2:6]


class WallPace:
    """The pace of a lane on the wall clock: real time."""

    span = Span

    def start(self) -> list[Any]:
        """The times of a new span: wall start and end (ns), device start and end (s)."""
        return [perf_counter_ns(), 0, None, None]

    def end(self, times: list[Any]) -> None:
        times[1] = perf_counter_ns()

    def until(self, times: list[Any], now: int) -> tuple[Any, ...]:
        """The times of an open span, if it ended now."""
        return times[0], now, None, None


class _Nothing:
    """The span of a Recorder that is off."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass


NOTHING = _Nothing()


class Recorder:
    """All lanes of one rank. `on=False` records nothing (and `span` costs next to nothing).

    The thread that makes the Recorder writes to the lane `compute`; any other thread gets its own
    lane the first time it records, named after the thread.
    """

    def __init__(
        self, rank: int, on: bool = True, pace: Callable[[str], Any] = lambda name: WallPace()
    ):
        self.rank = rank
        self.on = on
        self.lanes: list[LaneSpans] = []
        self._pace = pace
        self._second: dict[LaneSpans, LaneSpans] = {}
        self._mine = _Mine(self)
        self.open_lane("compute")

    def open_lane(self, name: str) -> LaneSpans:
        """Make a lane called `name` and let the calling thread write to it."""
        taken = {lane.name for lane in self.lanes}
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}{number}", number + 1
        lane = LaneSpans(unique, self._pace(unique))
        self.lanes.append(lane)
        self._mine.lane = lane
        return lane

    @property
    def lane(self) -> LaneSpans:
        """The calling thread's lane."""
        return self._mine.lane

    @property
    def opened(self) -> LaneSpans | None:
        """The calling thread's lane if it has one already."""
        return vars(self._mine).get("lane")

    @contextmanager
    def writing_to(self, lane: LaneSpans) -> Iterator[None]:
        """The calling thread writes to `lane`, which no other thread writes to meanwhile."""
        own, self._mine.lane = self.lane, lane
        try:
            yield
        finally:
            self._mine.lane = own

    def beside(self, kind: str, name: str | None, fields: dict[str, Any]) -> Any:
        """`open` for work that overlaps what is recorded inside: the span lies on a second lane of
        the calling thread, called compute2 where its own is compute."""
        if not self.on:
            return NOTHING
        own = self.lane
        if own not in self._second:
            second = self._second[own] = self.open_lane(f"{own.name}2")
            second.pace, self._mine.lane = own.pace, own
        second = self._second[own]
        second.context = own.context
        return second.make(second, (kind, name, *own.place(1), False), fields)

    def span(self, kind: str, name: str | None = None, **fields: Any) -> Any:
        """Record what runs inside the `with` as one span of `kind`."""
        if not self.on:
            return NOTHING
        frame = _getframe(1)
        code = frame.f_code
        file = code.co_filename
        if file not in _users and is_inside(file):  # the set spares a call
            return self.open(kind, name, fields)
        lane = self._mine.lane
        return lane.make(lane, (kind, name, code, frame.f_lasti, False), fields)

    def open(self, kind: str, name: str | None, fields: dict[str, Any], whole: bool = True) -> Any:
        """`span` for dlviz's own code: it records the user's line. `whole`: none of the user's code
        runs inside, so all inside has the same line."""
        if not self.on:
            return NOTHING
        lane = self._mine.lane
        around = lane.open[-1].what if lane.open else NO_SPAN
        where = around[2:4] if around[4] else lane.place(1)
        return lane.make(lane, (kind, name, *where, whole), fields)

    def label(self, **fields: Any) -> None:
        """Add fields to all that this thread records from now on, until the enclosing span ends."""
        lane = self.lane
        lane.context = {**lane.context, **fields}


class _Mine(threading.local):
    """The calling thread's lane, created at its first use."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def __getattr__(self, name: str) -> LaneSpans:
        if name != "lane":
            raise AttributeError(name)
        return self._recorder.open_lane(threading.current_thread().name)
