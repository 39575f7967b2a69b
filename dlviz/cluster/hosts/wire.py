"""A wire: the connection of two hosts, on which each frame is sealed.

    frame    length | seal | kind, rank | data

Data longer than a PART goes in several frames: a longer frame is refused before it is read, so that
nobody without the secret can fill this host's memory.

The seal is an HMAC-SHA256 of the frame and its number, by a key that follows from the run's secret,
from a nonce of each end, and from the direction. So nobody without the secret can send a frame, or
repeat, change or swap those of others, and nothing is unpickled that has no seal. Eavesdroppers can
read what is sent: it is not encrypted.
"""

from __future__ import annotations

import hmac
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

FRAME = struct.Struct("=I16s")  # bytes of what follows; seal
HEADER = struct.Struct("=Bi")  # kind, rank
CHUNK = 1 << 18  # bytes read at a time
PART = 1 << 20  # bytes of data in one frame at most
MORE = 128  # in a kind: the data goes on in the next frame
FULL = 1 << 22  # bytes left to send, from which on records that can wait should wait
NUMBER = struct.Struct("=Q")


class Forged(ConnectionError):
    """A frame whose sender does not know the run's secret."""


class Wire:
    """One end. `keys` are for sending and for receiving; `stir` is called when a frame could not be
    sent immediately, so that somebody calls `flush` once there is room."""

    def __init__(self, sock: socket.socket, keys: tuple[bytes, bytes]):
        self.sock = sock
        self.stir: Callable[[], None] = lambda: None
        self._out, self._in = map(Seal, keys)
        self._left: deque[memoryview] = deque()
        self._parts: list[bytes] = []  # received, of data that goes on in the next frame
        self._rest = b""
        self._read = memoryview(bytearray(CHUNK))
        self._lock = threading.Lock()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def backlog(self) -> bool:
        """Whether there is something left to send."""
        return bool(self._left)

    @property
    def full(self) -> bool:
        """Whether records that can wait should wait."""
        return sum(map(len, list(self._left))) > FULL

    def send(self, kind: int, rank: int = 0, data: bytes = b"") -> None:
        """Send data, in order, from any thread. On a broken connection it is lost: the reader
        notices."""
        with self._lock:
            for at in range(0, len(data) or 1, PART):
                more = MORE if at + PART < len(data) else 0
                body = HEADER.pack(kind | more, rank) + data[at : at + PART]
                frame = FRAME.pack(len(body), self._out.next(body)) + body
                self._left.append(memoryview(frame))
            self._flush()
        if self._left:
            self.stir()

    def flush(self) -> None:
        """Send as much of the backlog as there is room for."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        with suppress(BlockingIOError):
            while self._left:
                try:
                    done = self.sock.send(self._left[0])
                except BlockingIOError:
                    raise
                except OSError:
                    self._left.clear()
                    return
                if done == len(self._left[0]):
                    self._left.popleft()
                else:
                    self._left[0] = self._left[0][done:]

    def receive(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, rank and data of each frame that has arrived. EOFError if the other end has gone,
        Forged for an invalid frame."""
        try:
            length = self.sock.recv_into(self._read)
        except BlockingIOError:
            return
        except ConnectionResetError:
            length = 0
        except OSError as error:
            raise EOFError(str(error)) from None
        if not length:
            raise EOFError("it closed its connection")
        yield from self.cut(bytes(self._read[:length]))

    def cut(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The frames that `data`, received next, completes."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= FRAME.size:
            length, found = FRAME.unpack_from(data, at)
            if not HEADER.size <= length <= HEADER.size + PART:
                raise Forged(f"a frame of {length} bytes came, and no host sends such a frame")
            start, end = at + FRAME.size, at + FRAME.size + length
            if end > len(data):
                break
            body = data[start:end]
            if not hmac.compare_digest(found, self._in.next(body)):
                raise Forged("a frame is not sealed with the run's secret")
            at = end
            kind, rank = HEADER.unpack_from(body)
            part = body[HEADER.size :]
            if kind & MORE:
                self._parts.append(part)
                continue
            if self._parts:
                part, self._parts = b"".join([*self._parts, part]), []
            yield kind, rank, part
        self._rest = data[at:]

    def close(self) -> None:
        self.sock.close()


class Seal:
    """Seals the frames of one direction in order: each with a copy of an HMAC that has the key
    already, as a new one takes longer."""

    def __init__(self, key: bytes):
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def next(self, body: bytes) -> bytes:
        begun = self._keyed.copy()
        begun.update(NUMBER.pack(self._number) + body)
        self._number += 1
        return begun.digest()[:16]


def keys(secret: bytes, nonces: tuple[bytes, bytes], first: bool) -> tuple[bytes, bytes]:
    """An end's keys for sending and for receiving, from the `nonces` of both ends; `first`: the
    first is this end's."""
    both = b"".join(nonces)
    down = hmac.digest(secret, b"dlviz down" + both, "sha256")
    up = hmac.digest(secret, b"dlviz up" + both, "sha256")
    return (down, up) if first else (up, down)
