"""Which message has a shared link when: one ledger for all ranks, in shared memory (paced runs).

Where pairs of ranks share links (racks, a tree, a ring) a message is entered when it is sent and
booked later, when it is clear that none comes before it. The messages of a rank queue at its port
in the order in which they were sent; the first of them comes to its links when it is ready and the
port is free, and those of all ranks are booked in the order in which they come, at the same moment
by rank:

    sent    = max(ready, port free, each shared link on its path free)
    stamp   = sent + latency + bytes/bandwidth, until when the port is busy
    a link  is busy from sent on, for bytes/bandwidth of its own

Two ranks may send in another order by the wall clock than by the device clock. So nobody asks for a
booking before the wall clock has passed the earliest stamp that the message can have: whatever
comes to the links before it has then been entered, unless a rank is late by as long as the message
takes. Its receiver or its sender asks, when it waits for the message: no process does the
bookkeeping.

The ledger holds no history: of a link and a port the time from which on it is free, of each rank
the latest ENTRIES messages, a place being used again when the receiver has read what is in it.
dlviz/sim/collective.py follows the same rule."""

from __future__ import annotations

import fcntl
import math
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import IO

from dlviz.machine import Machine
from dlviz.machine.topology import PICOSECONDS, Path, moment

ENTRIES = 1024  # messages of one rank in transit at the same time
LINK = struct.Struct("=d")  # free
PORT = struct.Struct("=d2q")  # free; messages entered, booked
ENTRY = struct.Struct("=2q3d")  # destination, nbytes; ready, sent, stamp
READ = -1  # the destination of an entry that its receiver has read
RANK = PORT.size + ENTRIES * ENTRY.size  # bytes


def bytes_of(machine: Machine | None, ranks: int) -> int:
    """Bytes of the ledger of a run; none where no link is shared."""
    return 0 if machine is None else size(ranks, len(machine.topology.links))


def size(ranks: int, links: int) -> int:
    """Bytes of a ledger; none where nothing is shared."""
    return links * LINK.size + ranks * RANK if links else 0


class Departure:
    """When a message leaves its sender's port and when it is at its receiver's (device seconds).

    While it has a place in the ledger, `entry` (else -1), `sent` is not known and `stamp` is the
    earliest that it can be. `gone` is when it has left its sender's port, where that is before the
    slower link of its receiver has carried it, else NaN: at `stamp`.
    """

    __slots__ = ("entry", "gone", "sent", "src", "stamp")

    def __init__(self, src: int, entry: int, sent: float, stamp: float, gone: float = math.nan):
        self.src = src
        self.entry = entry
        self.sent = sent
        self.stamp = stamp
        self.gone = gone


class Ledger:
    """`memory` from `start` on, of `ranks` ranks and `links` links; `file` is what a process locks
    while it reads or writes, `path` says what a message from one rank to another crosses."""

    def __init__(
        self,
        memory: mmap,
        start: int,
        ranks: int,
        links: int,
        file: IO[str],
        path: Callable[[int, int], Path],
    ):
        self._memory = memory
        self._links = start
        self._ranks = [start + links * LINK.size + rank * RANK for rank in range(ranks)]
        self._file = file
        self._path = path
        self._lock = threading.Lock()

    def enter(self, src: int, dst: int, nbytes: int, ready: float) -> Departure:
        """Enter a message that `src` sends at `ready`."""
        with self._alone():
            free, entered, booked = self._port(src)
            self._write(src, entered, dst, nbytes, ready, math.nan, math.nan)
            PORT.pack_into(self._memory, self._ranks[src], free, entered + 1, booked)
            stamp = max(free, ready) + self._seconds(src, entered)
            return Departure(src, entered, math.nan, stamp)

    def look(self, message: Departure, now: float, reader: int) -> None:
        """Bring a message up to date: book it, and all that come before it, if that is certain at
        device time `now`. Its `reader` is its sender or its receiver."""
        with self._alone():
            src, number = message.src, message.entry
            if number < 0:  # another lane has looked
                return
            while self._port(src)[2] <= number:
                come, rank = min(self._first_of_each_port())
                if come > (now - self._seconds(src, number)) * PICOSECONDS:  # now may be infinite
                    message.stamp = self._earliest(src, number)
                    return
                self._book(rank)
            _, *rest, message.sent, message.stamp = self._read(src, number)
            message.entry = -1
            if reader != src:
                self._write(src, number, READ, *rest, message.sent, message.stamp)

    def full(self, src: int, lost: Collection[int]) -> bool:
        """Whether the place of the next message of `src` holds an unread one, whose receiver is not
        `lost`."""
        with self._alone():
            number = self._port(src)[1] - ENTRIES
            return number >= 0 and self._read(src, number)[0] not in (READ, *lost)

    def _book(self, src: int) -> None:
        """Book the first message that waits in the port of `src`."""
        free, entered, number = self._port(src)
        dst, nbytes, ready, *_ = self._read(src, number)
        sent = max(ready, free)
        shared = self._path(src, dst).shared
        for link, _ in shared:
            sent = max(sent, *LINK.unpack_from(self._memory, self._links + link * LINK.size))
        for link, how in shared:
            until = sent + nbytes / how.bandwidth
            LINK.pack_into(self._memory, self._links + link * LINK.size, until)
        stamp = sent + self._seconds(src, number)
        self._write(src, number, dst, nbytes, ready, sent, stamp)
        PORT.pack_into(self._memory, self._ranks[src], stamp, entered, number + 1)

    def _first_of_each_port(self) -> Iterator[tuple[int, int]]:
        """When it reaches its links, and the rank."""
        for rank in range(len(self._ranks)):
            free, entered, booked = self._port(rank)
            if booked < entered:
                yield moment(max(free, self._read(rank, booked)[2])), rank

    def _earliest(self, src: int, number: int) -> float:
        """The stamp that a message gets if no link delays it or those before it."""
        stamp, _, booked = self._port(src)
        for each in range(booked, number + 1):
            stamp = max(stamp, self._read(src, each)[2]) + self._seconds(src, each)
        return stamp

    def _seconds(self, src: int, number: int) -> float:
        """What a message takes that has not been read yet."""
        dst, nbytes, *_ = self._read(src, number)
        return self._path(src, dst).seconds(nbytes)

    def _port(self, rank: int) -> tuple[float, int, int]:
        return PORT.unpack_from(self._memory, self._ranks[rank])

    def _read(self, src: int, number: int) -> tuple[int, int, float, float, float]:
        return ENTRY.unpack_from(self._memory, self._at(src, number))

    def _write(self, src: int, number: int, *values: float) -> None:
        ENTRY.pack_into(self._memory, self._at(src, number), *values)

    def _at(self, src: int, number: int) -> int:
        return self._ranks[src] + PORT.size + number % ENTRIES * ENTRY.size

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Inside, neither another rank nor another lane of this one uses the ledger."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
