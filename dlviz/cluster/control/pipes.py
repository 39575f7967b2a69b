"""Envelopes, and the named pipes that carry them from rank to rank.

Every rank reads a pipe of its own; the others open it when they first have something to say. A
write of up to PIPE_BUF bytes goes whole, in order, and wakes who sleeps on the pipe; nobody reads
it before what was written earlier, to memory too, can be seen. So an envelope, its place in the
queue and the bell are one call, and so are the bytes of a short message, which go with it.
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

import torch

from dlviz.cluster.control.form import FORM, form_of, size_of
from dlviz.cluster.pacing.ledger import Departure

CHUNK = 1 << 16  # bytes read at a time
SPACE = 1 << 18  # bytes that a pipe holds, where the system lets it
# channel, flags, wall, tick, address, entry; stamp; form
HEAD = struct.Struct(f"=6qd{FORM.size}s")
# Flags: the sender waits until the message is taken; its bytes follow the head; they are on a GPU.
SYNC, INLINE, ON_DEVICE = 1, 2, 4
LONGEST = select.PIPE_BUF - HEAD.size  # bytes of a message that can
SOURCE = 1 << 48  # a channel's number is its source times this, plus its key
TAKEN, REFUSED = 1, 2  # what a receiver puts into a tick
CLEAR_TO_SEND = (
    -4
)  # in place of a channel: the receiver takes the message with that tick next, so send it
LOSS = -3  # in place of a channel: the run has lost the rank in place of a tick, how follows
REFUSAL = -2  # in place of a channel: the message with that tick does not fit what was posted
BELL = -1  # in place of a channel: look again, says the rank in place of a tick


class Header(Departure):
    """`key` is group and tag in one (see stuck/waits.py), `wall` when the message was sent
    (perf_counter_ns), `tick` where its receiver ticks it off, `address` where its bytes are (what
    that means is the transport's), or `data` those of a short one; `form` its dtype and shape. As a
    Departure it says when the message arrives, on a paced run; `arrived` is when this rank's port
    had taken it."""

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
    """What tells another rank to look again, from `rank`."""
    return HEAD.pack(BELL, 0, 0, rank, 0, 0, NAN, b"")


def refusal(slot: int, posted: bytes) -> bytes:
    """What tells a sender that its message does not fit a tensor of the form `posted`."""
    return HEAD.pack(REFUSAL, 0, 0, slot, 0, 0, NAN, posted)


def clear_to_send(slot: int) -> bytes:
    """What tells a sender that its message with that tick is received next (see
    transport/devices.py)."""
    return HEAD.pack(CLEAR_TO_SEND, 0, 0, slot, 0, 0, NAN, b"")


def loss(rank: int, how: str) -> bytes:
    """What tells a rank that the run has lost another one. Written when that one's process has
    ended, it comes after all that it has sent."""
    text = how.encode()[:LONGEST]
    form = form_of((len(text),), torch.uint8)
    return HEAD.pack(LOSS, 0, 0, rank, 0, 0, NAN, form) + text


def write_to(folder: str, rank: int, record: bytes) -> bool:
    """Write a record to `rank`, in the process that launched it; False where its pipe has no room
    now."""
    with suppress(OSError):  # it has gone itself
        handle = os.open(os.path.join(folder, f"pipe-{rank}"), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(handle, record)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
    return True


class Inbox:
    """What was read from a pipe. `refused` are the forms that messages of this rank were refused
    for, by tick; `lost` says of ranks that the run has lost how; `heard` counts the envelopes and
    bells of each rank; `obey` is called with the tick of each message that is to be sent now."""

    on_clear_to_send: Callable[[int], None]

    def __init__(self) -> None:
        self.lost: dict[int, str] = {}
        self.refused: dict[int, bytes] = {}
        self.heard: Counter[int] = Counter()
        self._rest = b""  # what was read of the last record, where the end was not

    def headers(self, data: bytes) -> Iterator[Header]:
        """Those that `data`, read next, brings; what else is in it is kept or left out."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= HEAD.size:
            fields = HEAD.unpack_from(data, at)
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
                self.lost[fields[3]] = data[head:after].decode(errors="replace")
            elif fields[0] == CLEAR_TO_SEND:
                self.on_clear_to_send(fields[3])
            at = after
        self._rest = data[at:]


class Pipes:
    """The pipe of `rank`, and those of the others from this side. They lie in `folder`. On a paced
    run `written` counts the envelopes and bells to each rank."""

    written: memoryview | None = None

    def __init__(self, folder: str, rank: int, ranks: int):
        self._name = os.path.join(folder, "pipe-{}").format
        self.own = self._open(rank)
        self._bell = bell(rank)
        self._lock = threading.Lock()
        with suppress(AttributeError, OSError):  # not on macOS, nor for a user who has many
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
        """What writes a record to `rank`. Where there is no room it raises BlockingIOError."""
        return partial(os.write, self.to(rank))

    def ring(self, rank: int) -> None:
        """Wake `rank`; one whose pipe is full has enough to read, and will look then."""
        with suppress(BlockingIOError):
            os.write(self.to(rank), self._bell)
            self.wrote(rank)

    def wrote(self, rank: int) -> None:
        """An envelope or a bell is in that rank's pipe."""
        if self.written is not None:
            with self._lock:  # lanes of one rank write at the same time
                self.written[rank] += 1

    def send(self, rank: int, record: bytes) -> bool:
        """Write to `rank`; waits until its pipe has room, a second at most. Whether it had."""
        select.select([], [self.to(rank)], [], 1.0)
        with suppress(BlockingIOError):
            return os.write(self.to(rank), record) > 0
        return False

    def read(self) -> bytes:
        """What has come, b"" for nothing."""
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
