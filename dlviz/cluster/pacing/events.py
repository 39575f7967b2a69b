"""The clock of a rank that computes on a GPU: a span starts and ends when the GPU reaches it.

Python only launches what the GPU does; by its clock a forward would last as long as its launch, and
the next wait as long as the forward. So each end of a span is an event in the stream of the thread
that records it. The GPU records when it passes the event, and the Trace gets these times after the
run.

    Python   |F|B|     wait      |
    GPU      |----F---|-----B-----|      F and B as the Trace has them, the wait after B

An event's time is the GPU's, seconds from another event. That other one is recorded, and waited
for, when the rank joins the run, so that its time by the rank's clock is known too, to some 10 µs.
(CUDA returns milliseconds in 32 bits: an hour from the start that is a quarter of a millisecond.)
Messages have the time at which Python handed them over, or found that they had arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from dlviz.cluster.pacing.pace import NoDevice, NoPace
from dlviz.trace.recorder import PacedSpan

TRIES = 10  # first events, of which the one counts whose time is known best


class TimedEvent(Protocol):
    """An event in the stream of the thread that made it."""

    def query(self) -> bool:
        """Whether the GPU has passed it."""
        ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds from this one to the other one."""
        ...


def event_on(device: torch.device) -> Any:
    """Record an event in the calling thread's stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


class EventClock(NoDevice):
    """`record` makes an event."""

    def __init__(self, record: Callable[[], TimedEvent]):
        self.record = record
        # Events that no time was read of yet, with the times of their span, as which of which.
        self._open: deque[tuple[TimedEvent, list[Any], int]] = deque()
        self._zero, self._zero_at = self._first()

    def lane(self, name: str) -> EventPace:
        return EventPace(self)

    def mark(self, times: list[Any], end: int) -> None:
        """A span starts (0) or ends (1)."""
        times[end] = perf_counter_ns()
        self._open.append((self.record(), times, end))

    def finish(self) -> None:
        """Wait until the GPU has done what was recorded."""
        for event, _, _ in list(self._open):
            event.synchronize()

    def read_times(self) -> None:
        """Read when the GPU passed the events. What it has not passed lasts until now at least. No
        event is earlier than its recording by Python: a time that is shows the error of two
        clocks."""
        now = perf_counter_ns()
        for _ in range(len(self._open)):
            event, times, end = self._open.popleft()
            if event.query():
                passed = self._zero_at + int(self._zero.elapsed_time(event) * 1e6)
                times[end] = max(times[end], passed)
            else:
                times[end] = now
                self._open.append((event, times, end))

    def _first(self) -> tuple[TimedEvent, int]:
        """An event, and its time by perf_counter_ns."""
        found = []
        for _ in range(TRIES):
            before = perf_counter_ns()
            event = self.record()
            event.synchronize()
            after = perf_counter_ns()
            found.append((after - before, event, (before + after) // 2))
        _, event, time = min(found, key=lambda each: each[0])
        return event, time


class EventPace(NoPace):
    """The pace of a lane whose spans the GPU times."""

    span = PacedSpan

    def __init__(self, device: EventClock):
        super().__init__(device)
        self._mark = device.mark

    def start(self) -> list[Any]:
        times = [0, 0, None, None]
        self._mark(times, 0)
        return times

    def end(self, times: list[Any]) -> None:
        self._mark(times, 1)
