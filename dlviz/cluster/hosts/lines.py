"""Lines: a sealed connection of every two ranks on different hosts, for message headers, with the
bytes of short messages, and completions.

    rank 0  ----header---->  rank 2     one process wakes up; through the parents of both hosts it
            <--completion--             would be three, which is most of a short message's time

A line is a Wire, so all that arrives on it is sealed with the run's secret. What a rank does not
read stays in the connection; a full one takes no header, as a full pipe takes none. To send
anything takes about as long as all else that is done for a short message. So the completion of a
message for which nobody surely waits goes with the next header to its rank, before this one sleeps,
or after LATER, on a separate thread, whichever is first.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from dlviz.cluster.control.board import WHEN, Board
from dlviz.cluster.control.pipes import CHUNK, HEAD, Pipes, bell
from dlviz.cluster.hosts.handshake import Listener, shake_hands
from dlviz.cluster.hosts.network import Network
from dlviz.cluster.hosts.records import COMPLETION
from dlviz.cluster.hosts.rendezvous import SECRET
from dlviz.cluster.hosts.wire import Forged, Wire

LATER = 1e-3  # s that a completion may wait for a header to go with


def connect(network: Network, rank: int, store: Any) -> dict[int, Wire]:
    """The lines of `rank`, by the rank at the other end: it connects to lower ranks, and higher
    ranks connect to it. All ranks call this."""
    secret = os.environ[SECRET].encode() if SECRET in os.environ else store.get("secret")
    elsewhere = [each for each in network.host_of if each not in network.near]
    lines: dict[int, Wire] = {}
    address = network.here.address
    with socket.create_server((address, 0), backlog=len(elsewhere)) as server:
        store.set(f"line {rank}", f"{address} {server.getsockname()[1]}")
        for peer in elsewhere:
            if peer < rank:
                host, port = store.get(f"line {peer}").decode().split()
                sock = socket.create_connection((host, int(port)), source_address=(address, 0))
                _, lines[peer] = shake_hands(sock, rank, secret, called=False)
        after = [peer for peer in elsewhere if peer > rank]
        with Listener(server, rank, secret, after, lines) as listener:
            while len(lines) < len(elsewhere):
                listener.look()
    return lines


class HostPipes(Pipes):
    """The pipe of a rank and its lines to ranks of other hosts, read as one. `thread` sends delayed
    completions."""

    def __init__(self, folder: str, rank: int, board: Board, lines: dict[int, Wire]):
        super().__init__(folder, rank, board.ranks)
        self._board, self._lines = board, lines
        self._peers = {line.sock.fileno(): peer for peer, line in lines.items()}
        self._arrivals = select.poll()  # read by one thread while another sleeps on the other
        for line in self._peers:
            self._arrivals.register(line, select.POLLIN)
            self._poll.register(line, select.POLLIN)
        self._later: dict[int, bytes] = {}  # completions, by rank
        self._later_lock = threading.Lock()
        self._pending = threading.Event()
        self.thread = threading.Thread(target=self._send_late, name="dlviz", daemon=True)
        self.thread.start()

    # -- out -----------------------------------------------------------------------------------
    def writer(self, rank: int) -> Callable[[bytes], int]:
        return partial(self._put, rank) if rank in self._lines else super().writer(rank)

    def _put(self, rank: int, record: bytes) -> int:
        if not self.has_room(rank):
            raise BlockingIOError
        self.send(rank, record)
        return len(record)

    def has_room(self, rank: int) -> bool:
        if rank not in self._lines:
            return super().has_room(rank)
        line = self._lines[rank]
        if line.backlog:
            line.flush()
        return not line.backlog

    def send(self, rank: int, record: bytes) -> bool:
        if rank not in self._lines:
            return super().send(rank, record)
        with self._later_lock:  # delayed completions go first
            data = self._later.pop(rank, b"") + record
            if data:
                self._lines[rank].send(0, 0, data)
        return True

    def send_later(self, rank: int, record: bytes) -> None:
        """Send it to a rank of another host, soon."""
        with self._later_lock:
            self._later[rank] = self._later.get(rank, b"") + record
        if not self._pending.is_set():
            self._pending.set()

    def _send_pending(self) -> None:
        for rank in list(self._later):
            self.send(rank, b"")

    def _send_late(self) -> None:
        while self._pending.wait():
            time.sleep(LATER)
            self._pending.clear()
            self._send_pending()

    # -- in ------------------------------------------------------------------------------------
    def read(self) -> bytes:
        data = super().read()
        if len(data) == CHUNK:  # the last record may go on in the pipe
            return data
        for line, _ in self._arrivals.poll(0):
            data += self._hear(line)
        return data

    def _hear(self, line: int) -> bytes:
        """The headers that have arrived on a line, and a bell for its completions."""
        peer, found = self._peers[line], b""
        try:
            for _, _, data in self._lines[peer].receive():
                found += self._after_completions(data) or bell(peer)
        except (EOFError, Forged):  # its host's parent handles it
            self._arrivals.unregister(line)
            self._poll.unregister(line)
            del self._peers[line]
        return found

    def _after_completions(self, data: bytes) -> bytes:
        """Put the completions at a frame's start on the board; returns what follows them."""
        at = 0
        while data.startswith(COMPLETION, at):
            _, state, _, slot, _, _, when, _ = HEAD.unpack_from(data, at)
            self._board.times[slot + WHEN] = when
            self._board.cells[slot] = state
            at += HEAD.size
        return data[at:]

    def sleep(self, seconds: float | None) -> None:
        if self._later:
            self._send_pending()
        full = [line for line in self._lines.values() if line.backlog]
        if not full and seconds is None:
            self._poll.poll()
            return
        select.select([self.own, *self._peers], [line.sock for line in full], [], seconds)
        for line in full:
            line.flush()
