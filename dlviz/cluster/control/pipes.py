"""Message headers, and the named pipes that carry them from rank to rank.

Every rank reads a pipe of its own; the others open it when they first write to it. A write of up to
PIPE_BUF bytes is atomic, in order, and wakes the reader, who then also sees what was written to
memory before. So a header, its place in the queue and the bell are one call, and so are the bytes
of a short message, which follow its header.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import nan as NAN
from time import perf_counter_ns

import torch

from dlviz.cluster.control.form import FORM, form_of, size_of
from dlviz.cluster.pacing.ledger import Departure

CHUNK = 1 << 16  # bytes read at a time
SPACE = 1 << 18  # bytes that a pipe holds, where the system lets it
# channel, flags, wall, slot, address, entry; stamp; form
HEAD = struct.Struct(f"=6qd{FORM.size}s")
# Flags: the sender waits until the message is taken; its bytes follow the head; they are on a GPU.
SYNC, INLINE, ON_DEVICE = 1, 2, 4
LONGEST = select.PIPE_BUF - HEAD.size  # bytes of a message that can follow its header
SOURCE = 1 << 48  # a channel's number is its source times this, plus its key
TAKEN, REFUSED = 1, 2  # values of a completion flag
# In place of a channel:
CLEAR_TO_SEND = -4  # the receiver takes the message in that slot next
LOSS = -3  # the run has lost the rank in place of a slot; how follows
IN_VAIN = 1  # its flag: what this rank waits for cannot come without that one
REFUSAL = -2  # the message in that slot does not fit its posted receive
BELL = -1  # look again, from the rank in place of a slot


class Header(Departure):
    """`key` is group and tag in one (see stuck/waits.py), `wall` when the message was sent
    (perf_counter_ns), `slot` where its completion flag is, `address` where its bytes are (a matter
    of the transport), or `data` those of a short one; `form` its dtype and shape. As a Departure it
    says when the message arrives, on a paced run; `arrived` is when this rank's port had taken
    it."""

    __slots__ = ("address", "arrived", "data", "flags", "form", "key", "slot", "wall")

    def __init__(
        self,
        channel: int,
        flags: int,
        wall: int,
        slot: int,
        address: int,
        entry: int,
        stamp: float,
        form: bytes,
    ):
        self.src, self.key = divmod(channel, SOURCE)
        self.flags = flags
        self.wall = wall
        self.slot = slot
        self.address = address
        self.entry = entry
        self.sent = NAN
        self.stamp = stamp
        self.form = form
        self.arrived = NAN
        self.data: bytes | None = None


def bell(rank: int) -> bytes:
    """The record that makes another rank look again, from `rank`."""
    return HEAD.pack(BELL, 0, perf_counter_ns(), rank, 0, 0, NAN, b"")


def refusal(slot: int, posted: bytes) -> bytes:
    """The record that refuses a message which does not fit a receive of the form `posted`."""
    return HEAD.pack(REFUSAL, 0, 0, slot, 0, 0, NAN, posted)


def clear_to_send(slot: int) -> bytes:
    """The record that clears a message to be sent: it is received next (see
    transport/devices.py)."""
    return HEAD.pack(CLEAR_TO_SEND, 0, 0, slot, 0, 0, NAN, b"")


def loss(rank: int, how: str, flags: int = 0) -> bytes:
    """The record that reports a lost rank. Written when that rank's process has ended, it follows
    everything that it has sent."""
    text = how.encode()[:LONGEST]
    form = form_of((len(text),), torch.uint8)
    return HEAD.pack(LOSS, flags, 0, rank, 0, 0, NAN, form) + text


def write_to(folder: str, rank: int, record: bytes) -> bool:
    """Write a record to `rank` from the launching process; False if its pipe has no room now."""
    with suppress(OSError):  # it has ended
        handle = os.open(os.path.join(folder, f"pipe-{rank}"), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(handle, record)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
    return True


class Inbox:
    """What was read from a pipe. `refused` are the forms of the receives that refused this rank's
    messages, by slot; `lost` says how the run lost ranks; `heard` counts the headers and bells of
    each rank; `written` is when the first of the latest read was written (perf_counter_ns), if it
    is one of these; `on_clear_to_send` is called with the slot of each message that is to be sent
    now, `on_in_vain` with the lost rank without which this rank's waits cannot end."""

    on_clear_to_send: Callable[[int], None]
    on_in_vain: Callable[[int], None]

    def __init__(self) -> None:
        self.lost: dict[int, str] = {}
        self.refused: dict[int, bytes] = {}
        self.heard: Counter[int] = Counter()
        self.written = 0
        self._rest = b""  # the beginning of a record that is not complete yet

    def headers(self, data: bytes) -> Iterator[Header]:
        """The message headers in `data`, read next; its other records take effect here."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= HEAD.size:
            fields = HEAD.unpack_from(data, at)
            if not at:
                self.written = fields[2]
            after = at + HEAD.size
            if fields[0] >= 0:
                header = Header(*fields)
                if header.flags & INLINE:
                    head, after = after, after + size_of(header.form)
                    if after > end:
                        break
                    header.data = data[head:after]
                self.heard[header.src] += 1
                yield header
            elif fields[0] == BELL:
                self.heard[fields[3]] += 1
            elif fields[0] == REFUSAL:
                self.refused[fields[3]] = fields[7]
            elif fields[0] == LOSS:
                head, after = after, after + size_of(fields[7])
                if after > end:
                    break
                self._lose(fields[3], data[head:after], fields[1])
            elif fields[0] == CLEAR_TO_SEND:
                self.on_clear_to_send(fields[3])
            at = after
        self._rest = data[at:]

    def _lose(self, rank: int, how: bytes, flags: int) -> None:
        self.lost[rank] = how.decode(errors="replace")
        if flags == IN_VAIN:
            self.on_in_vain(rank)


class Pipes:
    """The pipe of `rank`, and the writing ends of the others', in `folder`. On a paced run
    `written` counts the headers and bells to each rank."""

    written: memoryview | None = None

    def __init__(self, folder: str, rank: int, ranks: int):
        self._name = os.path.join(folder, "pipe-{}").format
        self.own = self._open(rank)
        self._rank = rank
        self._lock = threading.Lock()
        with suppress(AttributeError, OSError):  # not on macOS, nor for a user with many pipes
            fcntl.fcntl(self.own, fcntl.F_SETPIPE_SZ, SPACE)
        self._others = [-1] * ranks
        self._poll = select.poll()
        self._poll.register(self.own, select.POLLIN)

    def to(self, rank: int) -> int:
        """The descriptor to write to `rank`. A full pipe raises BlockingIOError."""
        if self._others[rank] < 0:
            self._others[rank] = self._open(rank)
        return self._others[rank]

    def _open(self, rank: int) -> int:
        """Open a pipe that its rank may not have made yet. For reading and writing: a pipe without
        writers would be at its end, and one without readers would lose what is in it."""
        with suppress(FileExistsError):
            os.mkfifo(self._name(rank), 0o600)
        return os.open(self._name(rank), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def writer(self, rank: int) -> Callable[[bytes], int]:
        """A function that writes a record to `rank`. A full pipe raises BlockingIOError."""
        return partial(os.write, self.to(rank))

    def ring(self, rank: int) -> None:
        """Wake `rank`; one whose pipe is full has enough to read, and will look then."""
        with suppress(BlockingIOError):
            os.write(self.to(rank), bell(self._rank))
            self.wrote(rank)

    def wrote(self, rank: int) -> None:
        """Count a header or bell written to that rank's pipe."""
        if self.written is not None:
            with self._lock:  # lanes of one rank write at the same time
                self.written[rank] += 1

    def send(self, rank: int, record: bytes) -> bool:
        """Write to `rank`, waiting a second at most for room in its pipe; whether there was any."""
        select.select([], [self.to(rank)], [], 1.0)
        with suppress(BlockingIOError):
            return os.write(self.to(rank), record) > 0
        return False

    def read(self) -> bytes:
        """What has arrived, b"" for nothing."""
        try:
            return os.read(self.own, CHUNK)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for handle in [self.own, *self._others]:
            if handle >= 0:
                os.close(handle)

    def has_room(self, rank: int) -> bool:
        """Whether a record can be written to `rank`."""
        return bool(select.select([], [self.to(rank)], [], 0)[1])

    def sleep(self, seconds: float | None) -> None:
        """Sleep until something can be read, for so many seconds at most. One thread at a time."""
        if seconds is None:
            self._poll.poll()
        else:  # a poll's would be whole milliseconds
            select.select([self.own], [], [], seconds)
