"""The device clock of a paced run: real math and real messages, modelled durations.

Eight ranks on two cores contend for them, so wall times show the contention and not the
algorithm. On a paced run each lane of a rank has `free`, the device time (seconds from the run's
start) at which it is next free:

    a computation of s seconds     free <- free + s    (its inputs have moved free to their arrival)
    a message that arrives at t    free <- max(free, t)
    another lane's work            free <- max(free, its end)

The wall clock follows: a lane that is ahead of it owes *debt*, which is slept off before the next
computation or receive and at the end of the run, never before a send, so that moving the bytes
hides inside the sleep. An operation starts where the one before it ended, never at a late wall
clock: one late wake-up does not delay the rest.

Ports follow the lectures' (and MPICH's) model: full duplex, busy for latency + nbytes/bandwidth
of each message. A sending port takes messages in the order in which they are sent, a receiving one
in the order of their stamps, at the same moment by source. Where ranks have links of their own, a
port is busy for what its rank's takes (machine/topology.py). A link that several pairs share is
busy for nbytes/bandwidth (ledger.py).
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from dlviz import sim
from dlviz.cluster.control.board import Board
from dlviz.cluster.control.form import size_of
from dlviz.cluster.control.pipes import Header
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.pacing.horizon import Horizon
from dlviz.cluster.pacing.ledger import ENTRIES, Departure, Ledger
from dlviz.cluster.pacing.load import Use
from dlviz.cluster.pacing.paced import Pace
from dlviz.machine import Machine
from dlviz.machine.topology import moment

# A collective that is a lane's first operation is the start line: all ranks leave it together,
# this many seconds after the last one arrived, when each process is ready.
START_LINE = 0.02


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
        self.horizon = Horizon(
            board.memory, board.horizon, board.ranks, rank, self.lanes, self._latency_from
        )
        self._lock = threading.Lock()
        self._left: deque[Departure] = deque()  # this rank's messages that the ledger has to book
        self._out = 0.0
        self._in = 0.0
        self._use = Use()
        self._newest: dict[int, float] = {}  # stamp of the newest message, by destination
        self._order = itertools.count()
        # What the port has yet to take, by stamp and source.
        self._inbound: list[tuple[int, int, int, Header]] = []

    def serve_with(self, waiting: Waiting) -> None:
        """Sleep as `waiting` does: a rank that sleeps serves the others meanwhile."""
        self.rest = waiting.rest
        self.collect = waiting.collect
        self.lost = waiting.lost
        waiting.publish(self.horizon)

    def lane(self, name: str) -> Pace:
        pace = Pace(self, name)
        self.lanes.append(pace)
        return pace

    def path(self, src: int, dst: int) -> Any:
        found = self._paths.get((src, dst))
        if found is None:
            found = self._paths[src, dst] = self._topology.path(src, dst)
        return found

    def _latency_from(self, src: int) -> float:
        return self.path(src, self.rank).latency

    def price(self, op: str, members: Sequence[int], nbytes: int) -> float:
        """What one of the backend's own collectives takes, by its slowest link."""
        links = [self.path(a, b) for a in members for b in members if a != b]
        alpha = max(path.latency for path in links)
        beta = 1 / min(path.bandwidth for path in links)
        op = "barrier" if op == "shared" else op  # memory that ranks share is not sent
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
            self._out = start + path.sending(nbytes)
            stamp = max(start + path.seconds(nbytes), self._newest.get(dst, 0.0))
            self._newest[dst] = stamp
            gone = self._out if self._out < stamp else math.nan
            return Departure(self.rank, -1, start, stamp, gone)

    def full(self) -> bool:
        """Whether too many of this rank's messages are in transit for one more."""
        if self._ledger is None or not self._ledger.full(self.rank, self.lost):
            return False
        for message in self._left:  # so that their receivers can read them
            self.booked(message)
        return True

    def has_come(self, message: Departure) -> bool:
        """Whether the wall clock has reached the message's stamp: every message with a smaller one
        is then known. Its stamp grows while a shared link delays it."""
        now = self.now()
        if message.entry >= 0 and now >= message.stamp:
            self._look(message, now)
        return message.entry < 0 and now >= message.stamp

    def wait_for(self, message: Departure) -> bool:
        """Sleep until it has come; whether that took any sleep."""
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
        self.horizon.leave()
        while self._left:
            self.wait_for(self._left.popleft())

    def _look(self, message: Departure, now: float) -> None:
        if self._ledger is not None and message.entry >= 0:
            self._ledger.look(message, now, self.rank)

    def expect(self, header: Header) -> None:
        """A header has arrived: its message will need this rank's port."""
        with self._lock:
            self._queue(header)

    def _queue(self, header: Header) -> None:
        place = moment(header.stamp), header.src, next(self._order), header
        heapq.heappush(self._inbound, place)

    def arrival(self, header: Header) -> float:
        """When this rank's port has taken a message that has arrived."""
        with self._lock:
            last = moment(header.stamp), header.src
            while self._inbound and self._inbound[0][:2] <= last:
                place, _, _, first = heapq.heappop(self._inbound)
                self._look(first, self.now())
                if first.entry >= 0 or moment(first.stamp) > place:
                    self._queue(first)  # a shared link delays it
                    continue
                seconds = self.path(first.src, self.rank).taking(size_of(first.form))
                first.arrived = self._in = max(first.stamp, self._in + seconds)
        return header.arrived

    def take_stock(self) -> None:
        """Read what the ledger has booked of the messages to this rank, which makes room in it."""
        with self._lock:
            for *_, header in self._inbound:
                self._look(header, -math.inf)

    def now(self) -> float:
        """The wall clock in seconds from the run's start."""
        return (perf_counter_ns() - self.epoch) * 1e-9

    def wall(self, seconds: float) -> int:
        return self.epoch + int(seconds * 1e9)

    def read_times(self) -> None:
        """A lane completes them when its debt is slept off."""

    def report(self) -> dict[str, Any]:
        """How late the run was (s), and who used the processors."""
        late = sorted(value for lane in self.lanes for value in lane.late) or [0]
        return {
            "lateness": {"worst": late[-1] * 1e-9, "median": late[len(late) // 2] * 1e-9},
            "operations": sum(lane.operations for lane in self.lanes),
            "overruns": sum(lane.overruns for lane in self.lanes),
            "use": self._use.report(),
        }
