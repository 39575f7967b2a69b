"""Named pipes: what one rank tells another, and the bell that wakes it.

Every rank reads a pipe of its own; the others open it when they first have something to say. A
write of up to PIPE_BUF bytes goes whole, in order, and wakes who sleeps on the pipe; nobody reads
it before what was written earlier, to memory too, can be seen. So an envelope, its place in the
queue and the bell are one call.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

CHUNK = 1 << 16  # bytes read at a time


class Pipes:
    """The pipe of `rank`, and those of the others from this side. They lie in `folder`."""

    def __init__(self, folder: str, rank: int, ranks: int):
        self._name = os.path.join(folder, "pipe-{}").format
        os.mkfifo(self._name(rank), 0o600)
        # Open for writing too: a pipe without writers would be at its end.
        self.own = os.open(self._name(rank), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._others = [-1] * ranks

    def to(self, rank: int) -> int:
        """The descriptor to write to `rank`. A full pipe raises BlockingIOError."""
        if self._others[rank] < 0:
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            self._others[rank] = os.open(self._name(rank), flags)
        return self._others[rank]

    def ring(self, rank: int, bell: bytes) -> None:
        """Wake `rank`; one whose pipe is full has enough to read, and will look then."""
        with suppress(BlockingIOError):
            os.write(self.to(rank), bell)

    def say(self, rank: int, words: bytes) -> None:
        """Tell `rank`; waits until its pipe has room, a second at most."""
        select.select([], [self.to(rank)], [], 1.0)
        self.ring(rank, words)

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

    def room(self, pipe: int) -> bool:
        """Whether a pipe takes more."""
        return bool(select.select([], [pipe], [], 0)[1])

    def sleep(self, seconds: float | None) -> None:
        """Sleep until something can be read, for so many seconds at most."""
        select.select([self.own], [], [], seconds)
