"""The threads of a rank that wait: for a message, a completion flag, the other members of a group,
or a time of the device clock.

One of them reads the rank's pipe; the others sleep until it has done what they wait for, or stops
reading. Whoever waits serves the whole rank: it matches headers that arrive, and takes messages
that their senders still hold, so that no sender waits for a rank that waits; then it wakes the
others, one of which may wait for these. A thread that sleeps registers its wait, for the parent to
see.

Before it sleeps it looks for as long as a wake takes, and yields its core between two looks: what
comes by then costs no wake, and what comes later costs twice a wake at most. How long that is
depends on the machine and its load: the latest sleeps of the rank show it, and it looks for 10 µs
at least and 100 at most. On a paced run, whose waits the Machine decides, it sleeps at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from os import sched_yield
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from dlviz.cluster.control.board import ACTIVITY, ASLEEP, STATE, WAITING, WANTS, Board
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.pipes import Inbox, Pipes
from dlviz.cluster.errors import RankLost
from dlviz.cluster.pacing.horizon import Horizon

SHORTEST, LONGEST = 10_000, 100_000  # ns to look before a sleep
AT_MOST = 1_000_000  # ns that a wake takes
SOON = 2_000_000_000  # ns to wait for the report that a rank is lost


class Awaited(Protocol):
    """What a thread waits for."""

    @property
    def done(self) -> bool: ...

    @property
    def left(self) -> float | None:
        """Seconds after which to look again, None to wait without limit."""

    def details(self) -> dict[str, Any]: ...

    def give_up(self, lost: dict[int, str]) -> None:
        """Raise RankLost if only ranks that are `lost` could have completed it."""


class Time:
    """A time, perf_counter_ns, as something to wait for."""

    def __init__(self, until: int):
        self._until = until

    @property
    def done(self) -> bool:
        return perf_counter_ns() >= self._until

    @property
    def left(self) -> float:
        return max(self._until - perf_counter_ns(), 0) * 1e-9

    def give_up(self, lost: dict[int, str]) -> None:
        """Time passes by itself."""


class LossReport(Time):
    """The report that one of `peers` is lost: the launching process sends it soon, or never."""

    def __init__(self, peers: Iterable[int], details: Callable[[], dict[str, Any]]):
        super().__init__(perf_counter_ns() + SOON)
        self.details = details
        self._peers = peers

    def give_up(self, lost: dict[int, str]) -> None:
        raise_if_lost(self._peers, lost)


def raise_if_lost(peers: Iterable[int], lost: dict[int, str]) -> None:
    """Raise RankLost if one of `peers` is lost."""
    for peer in peers:
        if peer in lost:
            raise RankLost(peer, lost[peer]) from None


class OpenWait(NamedTuple):
    """One thread's wait; `times` are those of the span that will record it."""

    op: str
    lane: Any
    since: int  # perf_counter_ns
    what: Any  # Awaited, or None: a lane's work
    times: list[Any] | None


class Waiting:
    """Of one rank. `registered` are the waits of its threads, by thread; `lost` says how the run
    lost ranks, `may_lose` which it may lose, `met` those of which RankLost was raised here; `wake`
    is what a wake has taken lately (ns)."""

    may_lose: frozenset[int] = frozenset()
    wake = 50_000
    _horizon: Horizon | None = None

    def __init__(self, rank: int, board: Board, pipes: Pipes, matching: Matching):
        self.registered: dict[int, OpenWait] = {}
        self._rank = rank
        self._cells = board.cells
        self._ranks = board.ranks
        self._mine = rank * STATE
        self._pipes = pipes
        self._inbox = Inbox()
        self._inbox.on_in_vain = self._end_waits
        self.lost = self._inbox.lost
        self.met: set[int] = set()
        self._in_vain: dict[Any, int] = {}  # what is waited for: the lost rank that it misses
        self._matching = matching
        self._fence = threading.Lock()
        self._activity_lock = threading.Lock()
        self._handling = threading.Lock()
        self._reading = threading.Lock()  # held by the thread that reads the pipe
        self._reader = 0  # its ident
        self._heard = 0  # records that have been read and delivered, on a paced run
        self._sleepers: list[SimpleQueue] = []  # of the threads that sleep meanwhile

    def publish(self, horizon: Horizon) -> None:
        """Let the other ranks of a paced run see what this one has read, and whether it sleeps."""
        self._horizon, self._pipes.written = horizon, horizon.sent

    def send_when_clear(self, send: Callable[[int], None]) -> None:
        """Call `send` with the slot of each message that its receiver has cleared."""
        self._inbox.on_clear_to_send = send

    # -- registering ---------------------------------------------------------------------------
    def register(self, op: str, lane: Any, what: Awaited | None, times: Any = None) -> None:
        """Register what the calling thread waits for from now on."""
        entry = OpenWait(op, lane, perf_counter_ns(), what, times)
        self.registered[threading.get_ident()] = entry
        self._count_activity()

    def unregister(self) -> None:
        self._in_vain.pop(self.registered.pop(threading.get_ident()).what, None)
        if self._horizon is not None:
            self._horizon.wake()
        self._count_activity()

    def _count_activity(self) -> None:
        with self._activity_lock:  # two lanes' counts must not overwrite each other
            self._cells[self._mine + ACTIVITY] += 1
            self._cells[self._mine + WAITING] = len(self.registered)

    # -- waiting -------------------------------------------------------------------------------
    def wait(
        self, what: Awaited, op: str, lane: Any, times: Any = None, serves: bool = False
    ) -> None:
        """Return when `what` is done; registered if the thread has to sleep for it. If it `serves`,
        it takes messages for later receives even before it sleeps."""
        if what.done:
            return
        self.collect()
        if what.done or self._comes_soon(what, serves):
            return
        self.register(op, lane, what, times)
        try:
            while not what.done:
                self._sleep(what)
        except RankLost as error:
            self._end_by_loss(error, lane, times)
            raise
        self.unregister()

    def _comes_soon(self, what: Awaited, serves: bool) -> bool:
        """Whether `what` is done within the time that a wake takes."""
        if self._horizon is not None or self._reading.locked():  # another thread reads the pipe
            return False
        until = perf_counter_ns() + self.wake
        while perf_counter_ns() < until:
            sched_yield()
            self.collect()
            if serves:
                self._take_late()
            if what.done:
                return True
        return False

    def _end_by_loss(self, error: RankLost, lane: Any, times: Any) -> None:
        """End a wait with this error, on a paced run at the current time."""
        self.unregister()
        self.met.add(error.rank)
        lane.pace.restart()
        if times is not None:  # else an outer span records it
            lane.pace.end(times)
            lane.add("wait", None, times, {"peer": error.rank})

    def _end_waits(self, rank: int) -> None:
        """What this rank waits for now cannot come without that lost rank, as the launching process
        has seen."""
        self._in_vain = {entry.what: rank for entry in [*self.registered.values()]}

    def _give_up(self, what: Awaited) -> None:
        """Raise RankLost if only lost ranks could have completed `what`, or ranks that have stopped
        because of one."""
        what.give_up(self.lost)
        if (rank := self._in_vain.get(what)) is not None:
            try:
                what.give_up(dict.fromkeys(range(self._ranks), ""))
            except RankLost:
                raise_if_lost([rank], self.lost)

    def ask_why(
        self, peers: Iterable[int], details: Callable[[], dict[str, Any]], op: str, lane: Any
    ) -> None:
        """After a failure with `peers`: raise RankLost if one of them turns out to be lost."""
        if self.may_lose.intersection(peers):
            self.wait(LossReport(peers, details), op, lane)

    def wait_for_completion(self, what: Any, op: str, lane: Any, times: Any) -> None:
        """`wait_for_others` until the message `what` has its completion flag."""
        self._cells[what.slot + ASLEEP] = 1
        self.wait_for_others(what, op, lane, times)

    def complete(self, peer: int, slot: int, state: int, soon: bool) -> None:
        """Set the completion flag of a message of `peer`, and wake it if it sleeps on that; `soon`
        if it surely does."""
        with self._fence:  # first write, then look
            self._cells[slot] = state
        if self._cells[slot + ASLEEP]:
            self._pipes.ring(peer)

    def wait_for_others(self, what: Awaited, op: str, lane: Any, times: Any = None) -> None:
        """`wait` for what other ranks write in shared memory: they ring when they have. They may
        wait for the same of this rank, which serves them meanwhile."""
        wants = self._mine + WANTS
        with self._fence:  # first ask, then look
            self._cells[wants] += 1
        try:
            self.wait(what, op, lane, times, serves=True)
        finally:
            with self._fence:
                self._cells[wants] -= 1

    def want(self, more: int) -> None:
        """So many more threads of this rank need other ranks to read their pipes."""
        with self._fence:
            self._cells[self._mine + WANTS] += more

    def notify(self, *peers: int) -> None:
        """Ring those of `peers` that wait for what this rank has written."""
        with self._fence:  # first write, then look
            pass
        for peer in peers:
            if self._cells[peer * STATE + WANTS] and peer != self._rank:
                self._pipes.ring(peer)

    def ring(self, peer: int) -> None:
        """Have `peer`, or another thread of this rank, look again."""
        self._pipes.ring(peer)

    def rest(self, until: int) -> bool:
        """Sleep until perf_counter_ns is `until`, serving the others; False if that was past."""
        time_up = Time(until)
        slept = not time_up.done
        while not time_up.done:
            self._sleep(time_up)
        return slept

    def _sleep(self, what: Any) -> None:
        """Sleep until something arrives for this rank, or the thread that reads the pipe wakes this
        one; for `what.left` seconds at most."""
        if self.lost and not what.done:
            self._give_up(what)
        if self._reading.acquire(False):
            self._reader = threading.get_ident()
            try:
                while not what.done:
                    heard = self._heard
                    self._take_late()
                    if what.done:
                        break
                    if self.lost and not what.done:
                        self._give_up(what)
                    if self._horizon is not None:
                        self._horizon.sleep(what, heard)
                    self._pipes.sleep(what.left)
                    woken = perf_counter_ns()
                    self.collect()
                    self._average_in(woken - self._inbox.written)
            finally:
                self._leave()
            return
        wakeup: SimpleQueue = SimpleQueue()
        self._sleepers.append(wakeup)
        if self._reading.locked() and not what.done:
            with suppress(Empty):
                wakeup.get(timeout=what.left)
        self._sleepers.remove(wakeup)

    def _leave(self) -> None:
        """Stop reading the pipe: another thread may."""
        self._reading.release()
        self._wake()

    def _wake(self) -> None:
        for wakeup in list(self._sleepers):
            wakeup.put(None)

    def _wake_others(self) -> None:
        """Have the other threads look again: one of them may wait for what this one has done."""
        if self._sleepers:
            self._wake()
        if self._reading.locked() and self._reader != threading.get_ident():
            self._pipes.ring(self._rank)  # it may sleep on a pipe that is empty now

    def _average_in(self, wake: int) -> None:
        """A sleep has ended so many ns after the record was written that has ended it."""
        if 0 < wake < AT_MOST:  # else its time was over, or another host's clock says when
            self.wake += (min(max(wake, SHORTEST), LONGEST) - self.wake) // 8

    def why(self, slot: int) -> bytes | None:
        """The form of the receive that refused this rank's message in that slot; None if this
        rank's pipe had no room for the refusal."""
        self.collect()
        return self._inbox.refused.get(slot)

    def ends_by_loss(self, entry: OpenWait) -> bool:
        """Whether only lost ranks could have completed what a thread waits for."""
        try:
            if entry.what is not None:
                self._give_up(entry.what)
        except RankLost:
            return True
        return False

    # -- serving -------------------------------------------------------------------------------
    def collect(self) -> None:
        """Read what has arrived for this rank, and match it."""
        with self._handling:
            data = self._pipes.read()
            if not data:
                return
            self._matching.deliver(self._inbox.headers(data))
            if self._horizon is not None:
                self._horizon.hear(self._inbox.heard)
                self._heard = self._inbox.heard.total()
        self._wake_others()

    def _take_late(self) -> None:
        """Take the messages that their senders still hold, each for whichever thread waits for
        it."""
        while self._matching.late and self._matching.take_late():
            self._wake_others()

    def serve(self) -> None:
        """For a rank whose threads all compute: take messages for its posted receives, so that
        their senders may go on."""
        if self._reading.acquire(False):
            self._reader = threading.get_ident()
            try:
                self.collect()
                self._take_late()
            finally:
                self._leave()

    @property
    def wanted(self) -> bool:
        """Whether another rank waits for what this one may write."""
        others = (rank for rank in range(self._ranks) if rank != self._rank)
        return any(self._cells[rank * STATE + WANTS] for rank in others)
