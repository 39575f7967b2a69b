"""Whether a message that would be here by some device time can still be sent (paced runs).

A rank whose process is late by the wall clock still sends what its device has sent in time. So a
rank that waits for messages until a deadline asks how far the others have come, and gives up when
none of them can still send one that would be here by then. Each rank has a row in shared memory:

    clock     the device time of its slowest lane: it sends nothing before
    asleep    how many records it had read when it last looked and went to sleep, -1 while awake
    taker     whom it waits for to take a message, as rank + 1; 0 if it waits for anything else
    until     the device time at which it goes on by itself
    sent      how many records it has written to each rank
    heard     how many it has read of each rank

A rank that is awake sends at its clock at the earliest. One that sleeps, and has read all that was
written to it, sends nothing before another one wakes it. So any message traces back to one that is
awake, or wakes by itself; if all of those are too late to send one in time, every rank is.

Source: K. M. Chandy and J. Misra, "Distributed Simulation: A Case Study in Design and Verification
of Distributed Programs", IEEE Transactions on Software Engineering, 1979 (a process's clock bounds
what it has yet to send).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from mmap import mmap
from typing import Any

import numpy as np

from dlviz.machine.topology import moment

CLOCK, UNTIL, ASLEEP, TAKER = range(4)  # cells of a row; the first two are doubles
COUNTS = 4  # where sent begins, then heard, a cell a rank each
AWAKE = -1


def size(ranks: int) -> int:
    """Bytes of the rows of all ranks."""
    return ranks * _cells(ranks) * 8


def _cells(ranks: int) -> int:
    return COUNTS + 2 * ranks


class Horizon:
    """Of one rank: its row, and the others' to look at. `memory` has the rows from `start` on;
    `lanes` are this rank's, `latency` says what a message from another rank takes at least."""

    def __init__(
        self,
        memory: mmap,
        start: int,
        ranks: int,
        rank: int,
        lanes: Sequence[Any],
        latency: Callable[[int], float],
    ):
        self._memory = memory
        self._span = slice(start, start + size(ranks))
        self._shape = ranks, _cells(ranks)
        self._rank = rank
        self._lanes = lanes
        self._latency = latency
        self._lock = threading.Lock()
        row = memoryview(memory)[start + rank * _cells(ranks) * 8 :][: _cells(ranks) * 8]
        self._cells, self._times = row.cast("q"), row.cast("d")
        self.sent = self._cells[COUNTS : COUNTS + ranks]
        self._heard = self._cells[COUNTS + ranks :]
        self.wake()
        self.leave()  # until its first operation, which begins when the program reaches it

    # -- what this rank says -------------------------------------------------------------------
    def moved(self) -> None:
        """A lane's clock has moved, or it has something to do, or nothing more."""
        with self._lock:
            self._times[CLOCK] = min(lane.bound for lane in self._lanes)

    def leave(self) -> None:
        """This rank sends nothing (more)."""
        self._times[CLOCK] = math.inf

    def hear(self, counts: Mapping[int, int]) -> None:
        """So many records of each rank have been read, and have taken effect."""
        for src, count in counts.items():
            self._heard[src] = count

    def sleep(self, what: Any, heard: int) -> None:
        """The calling thread sleeps on `what`, which was not done when it had looked, after so many
        records in all."""
        until = getattr(what, "until", None)
        if until is None and what.left is None:
            until = math.inf
        if until is None or sum(lane.bound < math.inf for lane in self._lanes) > 1:
            return  # it looks now and then, or another lane may send
        self._cells[TAKER] = what.peer + 1 if hasattr(what, "slot") else 0
        self._times[UNTIL] = until
        self._cells[ASLEEP] = heard

    def wake(self) -> None:
        self._cells[ASLEEP] = AWAKE

    # -- what it sees of the others ------------------------------------------------------------
    def passed(self, limit: float, waiter: Any, lost: Collection[int]) -> bool:
        """Whether no message can still be sent to this rank, whose lane `waiter` sleeps until
        `limit`, that would be here by then; all that were sent have been read."""
        rows = self._memory[self._span]
        if rows != self._memory[self._span]:  # some rank is writing: no consistent snapshot
            return False
        cells = np.frombuffer(rows, np.int64).reshape(self._shape)
        ranks = len(cells)
        heard = cells[:, COUNTS + ranks :]
        has_read = np.all(cells[:, COUNTS : COUNTS + ranks].T <= heard, axis=1)
        others = min((lane.bound for lane in self._lanes if lane is not waiter), default=math.inf)
        if not has_read[self._rank] or others < limit:
            return False
        asleep = has_read & (cells[:, ASLEEP] == heard.sum(axis=1))
        asleep[self._rank] = True
        clocks = np.frombuffer(rows).reshape(self._shape)
        return all(
            self._too_late(rank, limit, cells[rank], clocks[rank], asleep)
            for rank in range(ranks)
            if rank != self._rank and rank not in lost
        )

    def _too_late(
        self, rank: int, limit: float, cells: np.ndarray, times: np.ndarray, asleep: np.ndarray
    ) -> bool:
        """Whether what that rank sends by itself arrives after `limit`; at the same moment the
        waits of lower ranks end first."""
        taker = int(cells[TAKER])
        # A rank that is awake takes a message at any time, into a receive that it has posted ahead.
        rests = bool(asleep[rank] and (not taker or asleep[taker - 1]))
        start = float(max(times[CLOCK], times[UNTIL]) if rests else times[CLOCK])
        if start == math.inf:
            return True
        first = moment(start + self._latency(rank)), rank if rests else -1
        return first > (moment(limit), self._rank)
