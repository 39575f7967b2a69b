"""How hosts that connect authenticate each other.

    one      hello: number, nonce    -->           other
             <--           hello: number, nonce
             a first frame, sealed   -->
             <--           a first frame, sealed

The keys follow from the run's secret and both nonces: a frame sealed with them proves that its
sender knows the secret, and sends it now.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
from collections.abc import Collection
from contextlib import ExitStack, suppress
from time import monotonic

from dlviz.cluster.hosts import wire
from dlviz.cluster.hosts.network import PATIENCE
from dlviz.cluster.hosts.wire import Forged, Wire

GLANCE = 0.2  # s to wait for a connection, or for more from one
UNIDENTIFIED = 64  # connections that have not identified themselves, at most
HELLO = struct.Struct("=8si16s")  # magic, number of the host, nonce
MAGIC = b"dlviz 2\n"
HANDSHAKE = 127  # kind of the first frame


class Listener:
    """Accepts the `others`, the hosts (or ranks) that connect to this one: `wires` gets theirs. Any
    other connection is closed, and delays nobody."""

    def __init__(
        self,
        server: socket.socket,
        own: int,
        secret: bytes,
        others: Collection[int],
        wires: dict[int, Wire],
    ):
        self.own, self.others, self.wires = own, others, wires
        self._server, self._secret = server, secret
        self._handshakes: dict[socket.socket, Handshake] = {}  # oldest first

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        for sock in self._handshakes:
            sock.close()

    def look(self) -> None:
        """Continue the handshakes of those who connect or send more within GLANCE."""
        for sock in select.select([self._server, *self._handshakes], [], [], GLANCE)[0]:
            if sock is self._server:
                self._accept()
            elif sock in self._handshakes:
                self._hear(sock)

    def _accept(self) -> None:
        with suppress(OSError), ExitStack() as left:  # it may have gone already
            sock = self._server.accept()[0]
            left.callback(sock.close)
            self._handshakes[sock] = Handshake(sock, self.own, self._secret, called=True)
            left.pop_all()
        if len(self._handshakes) > UNIDENTIFIED:  # a host identifies itself immediately
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.close()

    def _hear(self, sock: socket.socket) -> None:
        handshake, known = self._handshakes[sock], False
        try:
            if not handshake.go_on():
                return
            known = handshake.number in self.others and handshake.number not in self.wires
        except ConnectionError:
            pass
        del self._handshakes[sock]
        if known:
            self.wires[handshake.number] = handshake.wire
        else:
            sock.close()


class Handshake:
    """Authenticates the other end of a connection, without blocking: each end sends its `number`
    and a nonce, then a frame sealed with the keys that follow from both and the secret. `called`:
    the other end has connected to this one."""

    number: int
    wire: Wire

    def __init__(self, sock: socket.socket, own: int, secret: bytes, called: bool):
        self._sock, self._own, self._secret, self._called = sock, own, secret, called
        self._nonce = secrets.token_bytes(16)
        self._needs, self._received = HELLO.size, b""
        sock.setblocking(False)
        sock.sendall(HELLO.pack(MAGIC, own, self._nonce))  # a new connection has room for it

    def go_on(self) -> bool:
        """Take in what has arrived; whether the other end is authenticated now. ConnectionError if
        it does not know the secret, or has gone."""
        try:
            data = self._sock.recv(self._needs - len(self._received))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionError(str(error)) from None
        if not data:
            raise ConnectionError("it closed its connection")
        self._received += data
        if len(self._received) < self._needs:
            return False
        said, self._received = self._received, b""
        return self._hello(said) if self._needs == HELLO.size else self._sealed(said)

    def _hello(self, said: bytes) -> bool:
        magic, self.number, its = HELLO.unpack(said)
        if magic != MAGIC:
            raise Forged("it speaks another protocol")
        both = (self._nonce, its) if self._called else (its, self._nonce)
        self.wire = Wire(self._sock, wire.keys(self._secret, both, self._called))
        self.wire.send(HANDSHAKE, self._own)
        self._needs = wire.FRAME.size + wire.HEADER.size
        return False

    def _sealed(self, said: bytes) -> bool:
        frames = [frame[:2] for frame in self.wire.cut(said)]
        if frames != [(HANDSHAKE, self.number)]:
            raise Forged("it is not the host that it claims to be")
        return True


def shake_hands(sock: socket.socket, own: int, secret: bytes, called: bool) -> tuple[int, Wire]:
    """The number of the host at the other end, and the wire to it; ConnectionError if it does not
    know the secret or stays silent."""
    handshake = Handshake(sock, own, secret, called)
    until = monotonic() + PATIENCE
    while not handshake.go_on():
        if not select.select([sock], [], [], max(until - monotonic(), 0.0))[0]:
            raise ConnectionError(f"it did not identify itself for {PATIENCE:g} s")
    return handshake.number, handshake.wire
