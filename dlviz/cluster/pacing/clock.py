"""The device clock of a paced run: real math and real messages, modelled durations.

Eight ranks on two cores contend for them, so wall times show the contention and not the
algorithm. On a paced run each lane of a rank keeps `free`, the device time (seconds from the
run's start) at which it is next free:

    a computation of s seconds     free <- free + s    (its inputs have moved free to their arrival)
    a message that arrives at t    free <- max(free, t)
    another lane's work            free <- max(free, its end)

The wall clock follows: a lane that is ahead of it owes *debt*, which is slept off before the next
computation or receive and at the end of the run, never before a send, so that moving the bytes
hides inside the sleep. An operation starts where the one before it ended, never at a late wall
clock: one late wake-up does not delay the rest.

Ports follow the lectures' (and MPICH's) model: full duplex, busy for latency + nbytes/bandwidth
of each message. A sending port takes messages in the order in which they are sent, a receiving one
in the order of their stamps, at the same moment by source. A link that several pairs share is busy
for nbytes/bandwidth (ledger.py).
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import Any

from dlviz import sim
from dlviz.cluster.control.board import Board
from dlviz.cluster.control.envelope import Envelope
from dlviz.cluster.control.form import size_of
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.pacing.ledger import ENTRIES, Departure, Ledger, moment
from dlviz.machine import Machine
from dlviz.trace.recorder import PacedSpan, Recorder, Span, caller

# A collective that is a lane's first operation is the start line: all ranks leave it together,
# this many seconds after the last one came, when each of them has long got there.
START_LINE = 0.02
OWN_TIME = 500_000  # ns: what Comm, and a strategy on it, may take between two operations


def sharpen_sleep() -> None:
    """Let this thread's sleeps end within some 20 µs of their time rather than 75 (Linux)."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)


class DeviceClock:
    """One rank's device: its epoch (perf_counter_ns at device time 0), its ports and its lanes'
    paces."""

    defers = True  # a synchronous sender's message is taken when it has arrived by this clock

    def __init__(self, rank: int, machine: Machine, board: Board, ledger: str):
        self.rank = rank
        self.machine = machine
        self.gamma = machine.device.gamma
        self.epoch = perf_counter_ns()  # moved to the common start before the worker runs
        self.lanes: list[Pace] = []
        self._topology = machine.topology
        self._paths: dict[tuple[int, int], Any] = {}
        self._ledger = None
        if links := len(machine.topology.links):
            lock = open(ledger, "w")  # noqa: SIM115 (held for the rank's life)
            start, ranks = board.ledger, board.ranks
            self._ledger = Ledger(board.memory, start, ranks, links, lock, self.path)
        self._lock = threading.Lock()
        self._left: deque[Departure] = deque()  # this rank's messages that the ledger has to book
        self._out = 0.0
        self._in = 0.0
        self._order = itertools.count()
        # What the port has yet to take, by stamp and source.
        self._inbound: list[tuple[int, int, int, Envelope]] = []

    def serve_with(self, waiting: Waiting) -> None:
        """Sleep as `waiting` does: a rank that sleeps serves the others meanwhile."""
        self.rest = waiting.rest
        self.collect = waiting.collect

    def lane(self, name: str) -> Pace:
        pace = Pace(self, name)
        self.lanes.append(pace)
        return pace

    def path(self, src: int, dst: int) -> Any:
        found = self._paths.get((src, dst))
        if found is None:
            found = self._paths[src, dst] = self._topology.path(src, dst)
        return found

    def price(self, op: str, members: Sequence[int], nbytes: int) -> float:
        """What one of the backend's own collectives takes, by its slowest link."""
        links = [self.path(a, b) for a in members for b in members if a != b]
        alpha = max(path.latency for path in links)
        beta = 1 / min(path.bandwidth for path in links)
        return sim.collective_seconds(op, len(members), nbytes, alpha, beta, self.gamma)

    def send(self, dst: int, nbytes: int, ready: float) -> Departure:
        """When a message that is ready at `ready` leaves and when it is at `dst`'s port."""
        with self._lock:
            if self._ledger is not None:
                while self._left and (self._left[0].entry < 0 or len(self._left) == ENTRIES):
                    self.booked(self._left.popleft())
                self._left.append(self._ledger.enter(self.rank, dst, nbytes, ready))
                return self._left[-1]
            path = self.path(self.rank, dst)
            start = max(ready, self._out)
            self._out = start + path.latency + nbytes / path.bandwidth
            return Departure(self.rank, -1, start, self._out)

    def full(self) -> bool:
        """Whether too many of this rank's messages are on their way for one more."""
        if self._ledger is None or not self._ledger.full(self.rank):
            return False
        for message in self._left:  # so that their receivers can read them
            self.booked(message)
        return True

    def has_come(self, message: Departure) -> bool:
        """Whether the wall clock has reached the message's stamp; every message with a smaller one
        is then known. Its stamp moves on where a shared link keeps it waiting."""
        now = self.now()
        if message.entry >= 0 and now >= message.stamp:
            self._look(message, now)
        return message.entry < 0 and now >= message.stamp

    def wait_for(self, message: Departure) -> bool:
        """Sleep until it has come; whether there was anything to sleep off."""
        slept = False
        while not self.has_come(message):
            slept = self.rest(self.wall(message.stamp) + 1)
        return slept

    def booked(self, message: Departure) -> tuple[float, float]:
        """When a message was sent and had arrived (device seconds). The ledger books it whether or
        not another could come before it."""
        self._look(message, math.inf)
        return message.sent, message.stamp

    def finish(self) -> None:
        """Wait until all that this rank has sent has left its port."""
        while self._left:
            self.wait_for(self._left.popleft())

    def _look(self, message: Departure, now: float) -> None:
        if self._ledger is not None and message.entry >= 0:
            self._ledger.look(message, now, self.rank)

    def expect(self, envelope: Envelope) -> None:
        """An envelope has come: its message will want this rank's port."""
        with self._lock:
            self._queue(envelope)

    def _queue(self, envelope: Envelope) -> None:
        place = moment(envelope.stamp), envelope.src, next(self._order), envelope
        heapq.heappush(self._inbound, place)

    def arrival(self, envelope: Envelope) -> float:
        """When this rank's port has taken a message that has come."""
        with self._lock:
            last = moment(envelope.stamp), envelope.src
            while self._inbound and self._inbound[0][:2] <= last:
                place, _, _, first = heapq.heappop(self._inbound)
                self._look(first, self.now())
                if first.entry >= 0 or moment(first.stamp) > place:
                    self._queue(first)  # a shared link keeps it waiting
                    continue
                path = self.path(first.src, self.rank)
                seconds = path.latency + size_of(first.form) / path.bandwidth
                first.arrived = self._in = max(first.stamp, self._in + seconds)
        return envelope.arrived

    def take_stock(self) -> None:
        """Read what the ledger has booked of the messages to this rank, which makes room in it."""
        with self._lock:
            for *_, envelope in self._inbound:
                self._look(envelope, -math.inf)

    def now(self) -> float:
        """The wall clock in seconds from the run's start."""
        return (perf_counter_ns() - self.epoch) * 1e-9

    def wall(self, seconds: float) -> int:
        return self.epoch + int(seconds * 1e9)

    def report(self) -> dict[str, Any]:
        """How well the pace was kept: lateness in seconds."""
        late = sorted(value for lane in self.lanes for value in lane.late) or [0]
        return {
            "lateness": {"worst": late[-1] * 1e-9, "median": late[len(late) // 2] * 1e-9},
            "operations": sum(lane.operations for lane in self.lanes),
            "overruns": sum(lane.overruns for lane in self.lanes),
        }


class Pace:
    """The pace of one lane: when it is next free, and the span boundaries whose wall time is still
    to come."""

    span = PacedSpan

    def __init__(self, device: DeviceClock, name: str):
        self.device = device
        self.name = name
        self.free = 0.0
        self.late: list[int] = []  # ns, one for each time the debt was slept off
        self.overruns = 0
        self.operations = 0
        self._begun = False
        self._read = 0
        self._gave = 0  # ns after that reading, for which other ranks had the core
        self._pending: list[tuple[list, int]] = []
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
        return times[0], now, times[2], max(self.free, self.device.now())

    def begin(self, ahead: float = 0.0) -> None:
        """The lane's first operation starts when the program reaches it, or `ahead` seconds later;
        what set it up takes no device time."""
        if not self._begun:
            self._begun = True
            self.free = max(self.free, self.device.now() + ahead)

    def _mark(self, times: list[Any], end: int) -> None:
        """Put the lane's wall and device time into a span's times, as its start (0) or end (1)."""
        times[2 + end] = self.free if self._begun else self.device.now()
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
        if seconds is None:
            seconds = self.device.machine.seconds(kind)
        return Compute(recorder, kind, name, seconds, fields)

    def computed(self, seconds: float, math_ns: int) -> None:
        """The lane computed for `seconds` of device time; its math took `math_ns` of the wall
        clock."""
        self.free += seconds
        self.operations += 1
        self.overruns += math_ns > seconds * 1e9

    def restart(self) -> None:
        """What comes next starts now, however long setting it up has taken."""
        self.wait_until(self.device.now())

    def now(self) -> float:
        return self.free

    def wait_until(self, seconds: float) -> None:
        """The lane can use what it waits for from device time `seconds` on."""
        self._begun = True
        self.free = max(self.free, seconds)

    def settle(self, slept: bool = False) -> None:
        """Sleep off the debt before the next operation, and note how late that one begins. `slept`:
        the lane has just slept, until about that moment."""
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
        self.taken(departure, -math.inf)

    def taken(self, departure: Departure, when: float) -> None:
        """A synchronous send was waited for; its message was taken at device time `when`."""
        slept = self.device.wait_for(departure)
        self.wait_until(max(departure.stamp, when))
        self.settle(slept)

    def arrived(self, envelope: Envelope) -> tuple[float, float]:
        """A message was waited for: when this rank's port had it, and when the lane goes on."""
        device = self.device
        device.collect()
        slept = device.wait_for(envelope)
        device.collect()
        arrived = device.arrival(envelope)
        self.wait_until(arrived)
        self.settle(slept)
        return arrived, self.free

    def reduced(self, nbytes: int) -> None:
        """A message was added to what was there."""
        self.free += self.device.gamma * nbytes

    def earliest(self, envelopes: Iterable[Envelope]) -> tuple[Envelope | None, float | None]:
        """The first to be delivered of those that have come from several ranks; None where that is
        not clear before so many seconds are over, since an earlier one may come meanwhile."""
        first = min(envelopes, key=lambda each: (moment(each.stamp), each.src), default=None)
        if first is None or self.device.has_come(first):
            return first, None
        return None, max(first.stamp - self.device.now(), 0.0) + 1e-9

    def collective(self, start: float, op: str, members: Sequence[int], nbytes: int) -> None:
        """One of the backend's own collectives is over, that began at the latest rank's `start`."""
        if len(members) > 1:
            self.wait_until(start + self.device.price(op, members, nbytes))


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
        super().__init__(recorder.lane, (kind, name, *caller(3), False), fields)
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
