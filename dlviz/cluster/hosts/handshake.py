"""How hosts that connect make sure of each other, and where they come in.

    one      hello: number, what it has drawn  -->        other
             <--        hello: number, what it has drawn
             a first frame, sealed             -->
             <--                    a first frame, sealed

The keys follow from the run's secret and what both have drawn: a frame sealed by them shows that
who sends it knows the secret, and sends it now.
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

GLANCE = 0.2  # s to wait for somebody who comes in
UNIDENTIFIED = 64  # connections that may have said too little to be known
HELLO = struct.Struct("=8si16s")  # magic, number of the host, what it has drawn
MAGIC = b"dlviz 2\n"
HANDSHAKE = 127  # kind of the first frame


class Listener:
    """Where the `others`, the hosts (or ranks) that connect to this one, come in: `wires` gets
    theirs. Whoever else connects is sent away, and holds up nobody while he says nothing or
    something else."""

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
        """Go on with those who have connected or said more, if any do soon."""
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
        if len(self._handshakes) > UNIDENTIFIED:  # a host says at once who it is
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
    """How a host makes sure of the other end of a connection, without waiting for it: each says its
    `number` and what it has drawn, then seals a frame by the keys that follow from both and the
    secret. `called`: the other end has connected to this one."""

    number: int
    wire: Wire

    def __init__(self, sock: socket.socket, own: int, secret: bytes, called: bool):
        self._sock, self._own, self._secret, self._called = sock, own, secret, called
        self._drawn = secrets.token_bytes(16)
        self._needs, self._come = HELLO.size, b""
        sock.setblocking(False)
        sock.sendall(HELLO.pack(MAGIC, own, self._drawn))  # a new connection has room for it

    def go_on(self) -> bool:
        """Take in what has come; whether the other end is known now. ConnectionError where it knows
        no secret, or has gone."""
        try:
            data = self._sock.recv(self._needs - len(self._come))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionError(str(error)) from None
        if not data:
            raise ConnectionError("it closed its connection")
        self._come += data
        if len(self._come) < self._needs:
            return False
        said, self._come = self._come, b""
        return self._hello(said) if self._needs == HELLO.size else self._sealed(said)

    def _hello(self, said: bytes) -> bool:
        magic, self.number, its = HELLO.unpack(said)
        if magic != MAGIC:
            raise Forged("it speaks another language")
        both = (self._drawn, its) if self._called else (its, self._drawn)
        self.wire = Wire(self._sock, wire.keys(self._secret, both, self._called))
        self.wire.send(HANDSHAKE, self._own)
        self._needs = wire.FRAME.size + wire.HEADER.size
        return False

    def _sealed(self, said: bytes) -> bool:
        frames = [frame[:2] for frame in self.wire.cut(said)]
        if frames != [(HANDSHAKE, self.number)]:
            raise Forged("it is not who it says it is")
        return True


def shake_hands(sock: socket.socket, own: int, secret: bytes, called: bool) -> tuple[int, Wire]:
    """The number of the host at the other end, and the wire to it; ConnectionError where it does
    not know the secret or says nothing."""
    handshake = Handshake(sock, own, secret, called)
    until = monotonic() + PATIENCE
    while not handshake.go_on():
        if not select.select([sock], [], [], max(until - monotonic(), 0.0))[0]:
            raise ConnectionError(f"it said too little for {PATIENCE:g} s")
    return handshake.number, handshake.wire
