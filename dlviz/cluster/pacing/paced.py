"""The pace of one lane on a paced run: when it is next free, and what its operations do to that."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from dlviz.cluster.control.pipes import Header
from dlviz.cluster.pacing.ledger import Departure
from dlviz.cluster.pacing.load import queued
from dlviz.cluster.pacing.pace import Earliest
from dlviz.machine.machine import slowdown
from dlviz.machine.topology import moment
from dlviz.trace.recorder import PacedSpan, Recorder, Span

# Device s from the run's start: no operation is earlier, so that ranks that a busy host starts one
# after the other begin alike.
READY = 0.02
AGAIN = 1e-3  # s between two looks at how far the other ranks have come
OWN_TIME = 500_000  # ns: what Comm, and a strategy on it, may take between two operations


def sharpen_sleep() -> None:
    """Let this thread's sleeps end within some 20 µs of their time rather than 75 (Linux)."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)


class Pace:
    """The pace of one lane: when it is next free, and the span boundaries whose wall time is still
    to come."""

    span = PacedSpan

    def __init__(self, device: Any, name: str):
        self.device = device
        self.name = name
        self.free = READY
        self.late: list[int] = []  # ns, one for each time the debt was slept off
        self.overruns = 0
        self.operations = 0
        self._begun = False
        self._queued = queued()
        self._read = 0
        self._gave = 0  # ns after that reading, for which other ranks had the core
        self._pending: list[tuple[list, int]] = []
        thread = threading.current_thread()
        self._over = self._idle = lambda: not thread.is_alive()
        sharpen_sleep()

    # -- recording -----------------------------------------------------------------------------
    @property
    def time(self) -> float:
        return self.free

    def start(self) -> list[Any]:
        """The times of a span that begins: wall start and end (ns), device start and end (s)."""
        times = [0, 0, 0.0, 0.0]
        self._mark(times, 0)
        return times

    def end(self, times: list[Any]) -> None:
        self._mark(times, 1)

    def until(self, times: list[Any], now: int) -> tuple[Any, ...]:
        """The times of what is still open, if it ended now."""
        return times[0], now, times[2], max(self.free, self._reached())

    def begin(self, ahead: float = 0.0) -> None:
        """The lane's first operation starts when the program reaches it, not before READY, or
        `ahead` seconds later; its setup takes no device time. Nor does what the thread waited for a
        processor until then: the operation is as much later than planned."""
        if not self._begun:
            self.wait_until(max(self.free, self._reached()) + ahead)

    def _reached(self) -> float:
        """How far the lane's program has come, in device time."""
        now = self.device.now()
        return now if self._begun else now - (queued() - self._queued)

    def run_begins(self) -> None:
        """The run's clock has just been set: what came before it does not count."""
        self._queued = queued()

    def _mark(self, times: list[Any], end: int) -> None:
        """Put the lane's wall and device time into a span's times, as its start (0) or end (1)."""
        times[2 + end] = self.free if self._begun else max(self.free, self._reached())
        if perf_counter_ns() < self.device.wall(self.free):
            self._pending.append((times, end))
        else:
            self._read_clock()
            times[end] = self._read

    def _read_clock(self) -> None:
        """Read the wall clock for the device time that the lane has reached.

        What Comm does between two operations (some 20 µs, and some hundreds where messages are sent
        and receives posted on a shared core) belongs to neither, nor does the moment for which it
        let others go first: the end of one and the start of the next are one reading. A longer gap
        is read afresh, and shows.
        """
        now = perf_counter_ns()
        if self._read < self.device.wall(self.free) or now - self._read > OWN_TIME + self._gave:
            self._read, self._gave = now, 0
        for times, end in self._pending:
            times[end] = self._read
        self._pending.clear()

    # -- operations ----------------------------------------------------------------------------
    def compute(
        self, recorder: Recorder, kind: str, name: str | None, seconds: float | None, fields: Any
    ) -> Compute:
        """The span of an operation that takes `seconds`, by default what the machine says."""
        takes = self.device.machine.seconds(kind) if seconds is None else seconds
        return Compute(recorder, kind, name, takes, fields)

    def computed(self, seconds: float, math_ns: int) -> None:
        """The lane computed what takes a device `seconds`, and a slow rank's longer; its math took
        `math_ns` of the wall clock. (What it took within OWN_TIME did not hold up the pace.)"""
        seconds *= slowdown(self.device.machine.factors, self.device.rank, self.operations)
        self._move(self.free + seconds)
        self.operations += 1
        self.overruns += math_ns > max(seconds * 1e9, OWN_TIME)

    def restart(self, ahead: float = 0.0) -> None:
        """What follows starts now, or `ahead` seconds later, however long its setup took."""
        if self._begun:
            self.wait_until(self.device.now() + ahead)
        self.begin(ahead)

    def now(self) -> float:
        return self.free

    def wait_until(self, seconds: float) -> None:
        """The lane can use what it waits for from device time `seconds` on."""
        self._begun = True
        self._move(max(self.free, seconds))

    def _move(self, seconds: float) -> None:
        self.free = seconds
        self.stir()

    def stir(self) -> None:
        self.device.horizon.moved()

    def idles(self, idle: Callable[[], bool] | None = None) -> None:
        self._idle = idle or self._over
        self.stir()

    @property
    def bound(self) -> float:
        """The device time before which the lane sends nothing."""
        return self.free if self._begun and not self._idle() else math.inf

    def settle(self, slept: bool = False) -> None:
        """Sleep off the debt before the next operation, and record how late that one begins.
        `slept`: the lane has just slept, until about that moment."""
        self.pay(slept)
        self.late.append(self._read - self.device.wall(self.free))

    def pay(self, slept: bool = False) -> None:
        """Sleep off the debt."""
        slept = self.device.rest(self.device.wall(self.free)) or slept
        self._read_clock()
        if slept:  # ranks wake at the same moments: let each read its clock before any goes on
            os.sched_yield()
            self._gave = perf_counter_ns() - self._read

    # -- messages ------------------------------------------------------------------------------
    @property
    def ahead(self) -> float:
        """The device time of a receive that is posted now and not waited for."""
        return self.free

    def depart(self, peer: int, nbytes: int) -> Departure:
        """A message is ready: when it leaves, and when it is at its receiver's port."""
        self.begin()
        return self.device.send(peer, nbytes, self.free)

    def sent(self, departure: Departure) -> None:
        """A send was waited for."""
        if math.isnan(departure.gone):
            self.taken(departure, -math.inf)
        else:
            self.wait_until(departure.gone)
            self.settle()

    def taken(self, departure: Departure, when: float) -> None:
        """A synchronous send was waited for; its message was taken at device time `when`."""
        self.wait_until(departure.stamp)  # at least
        slept = self.device.wait_for(departure)
        self.wait_until(max(departure.stamp, when))
        self.settle(slept)

    def arrived(self, header: Header) -> tuple[float, float]:
        """A message was waited for: when this rank's port had it, and when the lane goes on."""
        device = self.device
        device.collect()
        self.wait_until(header.stamp)  # at least
        slept = device.wait_for(header)
        device.collect()
        arrived = device.arrival(header)
        self.wait_until(arrived)
        self.settle(slept)
        return arrived, self.free

    def reduced(self, nbytes: int) -> None:
        """A message was added to what was there."""
        self._move(self.free + self.device.gamma * nbytes)

    def earliest(self, come: Callable[[], Sequence[Header]], deadline: float | None) -> Earliest:
        """The first to be delivered of those that have `come()` from several ranks, once the wall
        clock has reached it, since an earlier one may come meanwhile. With a deadline, once it is
        certain that none will."""
        device, first = self.device, _first(come())
        if deadline is None:
            if first is None or device.has_come(first):
                return Earliest(first)
            return Earliest(None, left=self._ahead(first.stamp), until=first.stamp)
        limit = deadline if first is None else min(first.stamp, deadline)
        if device.now() < limit:
            return Earliest(None, left=self._ahead(limit), until=limit)
        again = Earliest(None, left=AGAIN, until=limit)
        if not device.horizon.passed(limit, self, device.lost):
            return again
        first = _first(come())  # all are known now that are here by then
        if first is None or moment(first.stamp) > moment(limit):
            return Earliest(None, over=True) if limit == deadline else again
        if not device.has_come(first):  # a shared link delays it
            return again
        on_time = moment(device.arrival(first)) <= moment(deadline)
        return Earliest(first) if on_time else Earliest(None, over=True)

    def _ahead(self, seconds: float) -> float:
        """Until the wall clock has reached that device time."""
        return max(seconds - self.device.now(), 0.0) + 1e-9

    def collective(self, start: float, op: str, members: Sequence[int], nbytes: int) -> None:
        """One of the backend's own collectives is over, that began at the latest rank's `start`."""
        if len(members) > 1:
            self.wait_until(start + self.device.price(op, members, nbytes))


def _first(headers: Sequence[Header]) -> Header | None:
    return min(headers, key=lambda each: (moment(each.stamp), each.src), default=None)


class Compute(PacedSpan):
    """An operation of a paced run: it starts when the device is free and takes its modelled
    seconds."""

    __slots__ = ("begun", "seconds")

    def __init__(
        self,
        recorder: Recorder,
        kind: str,
        name: str | None,
        seconds: float,
        fields: dict[str, Any],
    ):
        lane = recorder.lane
        super().__init__(lane, (kind, name, *lane.place(2), False), fields)
        self.seconds = seconds

    def __enter__(self) -> Span:
        self.lane.pace.begin()
        self.lane.pace.settle()
        super().__enter__()
        self.begun = perf_counter_ns()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lane.pace.computed(self.seconds, perf_counter_ns() - self.begun)
        super().__exit__(kind, error, trace)
