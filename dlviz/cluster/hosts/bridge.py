"""The bridge: on each host the thread that forwards its ranks' collective calls to other hosts, and
notices when a host has gone.

    pipe of a rank elsewhere --> wire ~~> wire --> file of its group
    board: states of the ranks --> wire ~~> wire --> board of host 0
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter, perf_counter_ns

from dlviz.cluster.control.board import STATE, WANTS, Board
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.hosts.clocks import PingPong, Reading, read
from dlviz.cluster.hosts.network import Network
from dlviz.cluster.hosts.records import CELL, Cutter
from dlviz.cluster.hosts.stalled import stalled
from dlviz.cluster.hosts.wire import Forged, Wire

# Kinds of frames: those of the bridge itself, and those for `take`.
RECORDS, CELLS, PING, PONG = range(4)
CONTROL, OUTPUT, ENDED, STACKS, OVER, INTERRUPT, LOST, STALLED = range(4, 12)
BEAT = 0.02  # s between two looks at the states of this host's ranks
PULSE = 0.5  # s between two pings
SILENCE = 5.0  # s after which a silent host counts as gone
GAP = 3 * PULSE  # s without a frame that are a gap
LAST = 1.0  # s for what is left to send at the end
ROUNDS = 60  # of ping-pong, of which the shortest counts
ENOUGH = 2.0  # s for them: on a slow network fewer have to do
MOMENT = struct.Struct("=3q")

Take = Callable[[int, int, int, bytes], None]


class Bridge:
    """Of one host. `take(host, kind, rank, data)` gets the frames that are not its own, `lose(host,
    how)` is called once when a host has gone; both in its thread. `pids` are the processes of this
    host's ranks, by rank."""

    def __init__(
        self,
        network: Network,
        folder: str,
        board: Board,
        wires: dict[int, Wire],
        take: Take,
        lose: Callable[[int, str], object],
    ):
        self.network = network
        self.wires = wires
        self._folder = folder
        self._board = board
        self._take, self._lose = take, lose
        elsewhere = [rank for rank in range(board.ranks) if rank not in network.near]
        self._pipes = {rank: Pipes(folder, rank, board.ranks) for rank in elsewhere}
        self._cutters = {(a, b): Cutter() for a in wires for b in network.near}
        self._states = dict.fromkeys(network.near, bytes(STATE * 8))
        self._files: dict[str, mmap.mmap] = {}
        self._heard = dict.fromkeys(wires, perf_counter())
        self._steady = dict(self._heard)  # since when without a gap
        self._pongs: dict[int, SimpleQueue[PingPong]] = {host: SimpleQueue() for host in wires}
        self._waker, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        for wire in wires.values():
            wire.stir = self.stir
        self._fence, self._states_lock = threading.Lock(), threading.Lock()
        self._over = False
        self.pids: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name="dlviz bridge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Send what is left, and release everything but the wires."""
        self._over = True
        self.stir()
        self._thread.join()
        for pipes in self._pipes.values():
            pipes.close()
        for memory in self._files.values():
            memory.close()
        os.close(self._waker)
        os.close(self._wake)

    def stir(self) -> None:
        """Have the thread look again."""
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    # -- the loop ------------------------------------------------------------------------------
    def _run(self) -> None:
        """Without it nobody hears the other hosts: if it fails, they count as gone."""
        try:
            self._loop()
        except Exception as error:
            for host in list(self.wires):
                self._gone(host, f"what it said could not be passed on ({error!r})")
            raise

    def _loop(self) -> None:
        pulse = summary = 0.0
        while not self._over:
            self._turn()
            now = perf_counter()
            if now - summary >= BEAT:  # not with every message
                summary = now
                self.send_states()
            if now - pulse >= PULSE:
                pulse = now
                self._pulse()
        until = perf_counter() + LAST
        while (left := [w for w in self.wires.values() if w.backlog]) and perf_counter() < until:
            select.select([], [wire.sock for wire in left], [], BEAT)
            for wire in left:
                wire.flush()

    def _turn(self) -> None:
        """Forward what has arrived, or arrives within BEAT."""
        readers = {p.own: rank for rank, p in self._pipes.items() if not self._full(rank)}
        sockets = {wire.sock.fileno(): host for host, wire in self.wires.items()}
        full = [wire.sock.fileno() for wire in self.wires.values() if wire.backlog]
        ready, room, _ = select.select([*readers, *sockets, self._waker], full, [], BEAT)
        for source in ready:
            if source in readers:
                rank = readers[source]
                self._send(self.network.host_of[rank], RECORDS, rank, self._pipes[rank].read())
            elif source in sockets:
                self._hear(sockets[source])
            else:
                os.read(self._waker, 4096)
        if room:
            for wire in list(self.wires.values()):
                wire.flush()

    def _full(self, rank: int) -> bool:
        """Whether records for that rank should stay in its pipe, so that their writers wait."""
        wire = self.wires.get(self.network.host_of[rank])
        return wire is not None and wire.full

    def _send(self, host: int, kind: int, rank: int, data: bytes) -> None:
        if host in self.wires and data:
            self.wires[host].send(kind, rank, data)

    def _hear(self, host: int) -> None:
        """Take in what another host has sent."""
        try:
            for kind, rank, data in self.wires[host].receive():
                self._take_in(host, kind, rank, data)
        except (EOFError, Forged) as error:
            self._gone(host, str(error))
        else:
            now = perf_counter()
            if now - self._heard[host] > GAP:
                self._steady[host] = now
            self._heard[host] = now

    def _take_in(self, host: int, kind: int, rank: int, data: bytes) -> None:
        if kind == RECORDS:
            self._deliver(host, rank, data)
        elif kind == CELLS:
            at = rank * STATE
            self._board.cells[at : at + STATE] = memoryview(data).cast("q")
        elif kind == PING:
            came = perf_counter_ns()
            (sent,) = struct.unpack("=q", data)
            self.wires[host].send(PONG, rank, MOMENT.pack(sent, came, perf_counter_ns()))
        elif kind == PONG:
            if rank:  # somebody asked for it
                t0, t1, t2 = MOMENT.unpack(data)
                self._pongs[host].put(PingPong(t0, t1, t2, perf_counter_ns()))
        else:
            self._take(host, kind, rank, data)

    # -- who is there --------------------------------------------------------------------------
    def _pulse(self) -> None:
        for host, wire in list(self.wires.items()):
            wire.send(PING, 0, struct.pack("=q", perf_counter_ns()))
            silent = perf_counter() - self._heard[host]
            if silent > SILENCE:
                self._gone(host, f"nothing was heard of it for {silent:.0f} s")
        self._look_for_stalled()

    def _look_for_stalled(self) -> None:
        """Report to host 0 a rank here that gets no answer from a host which is heard all the time:
        a network that was cut as a whole may come back."""
        now = perf_counter()
        steady = [
            h for h in self.wires if now - self._heard[h] < GAP < SILENCE < now - self._steady[h]
        ]
        names = {self.network.hosts[host].address: host for host in steady}
        names.pop(self.network.here.address, None)
        found = stalled(dict(self.pids), names)
        if found is not None:
            rank, address = found
            if self.network.own:
                self._send(0, STALLED, rank, address.encode())
            else:
                self._take(0, STALLED, rank, address.encode())

    def _gone(self, host: int, how: str) -> None:
        self.wires.pop(host).close()
        self._lose(host, how)

    # -- the clock of another host -------------------------------------------------------------
    def read_clock(self, host: int) -> Reading | None:
        """The reading of up to ROUNDS of ping-pong, None if the host has gone; for any thread but
        the bridge's."""
        rounds: list[PingPong] = []
        pongs, until = self._pongs[host], perf_counter() + ENOUGH
        while len(rounds) < ROUNDS and host in self.wires:
            if rounds and perf_counter() > until:
                break
            with suppress(KeyError, Empty):
                if pongs.empty():
                    self.wires[host].send(PING, 1, struct.pack("=q", perf_counter_ns()))
                rounds.append(pongs.get(timeout=PULSE))
        return read(rounds) if rounds else None

    # -- states, for host 0 --------------------------------------------------------------------
    def send_states(self) -> None:
        """Send host 0 the changed states of this host's ranks; from any thread. Called before an
        answer of a rank is sent, so that host 0's state of it is never older than the answer."""
        if not self.network.own:
            return
        with self._states_lock:
            for rank, before in self._states.items():
                start = rank * STATE * 8
                state = bytes(self._board.memory[start : start + STATE * 8])
                if state != before:
                    self._states[rank] = state
                    self._send(0, CELLS, rank, state)

    # -- records -------------------------------------------------------------------------------
    def _deliver(self, host: int, rank: int, data: bytes) -> None:
        """Write into this host's group files what ranks of another host have published, in the pipe
        of `rank`."""
        cutter = self._cutters[host, rank]
        for number, first, size, at, shown in cutter.shown(data):
            memory = self._file(f"group-{number}-{first}", size)
            if len(shown) > CELL:  # a concurrent reader finds no call rather than half of one
                memory[at : at + CELL] = bytes(CELL)
                memory[at + CELL : at + len(shown)] = shown[CELL:]
            with self._fence:  # first write, then look
                memory[at : at + CELL] = shown[:CELL]
        for near in self.network.near:
            if self._board.cells[near * STATE + WANTS]:
                next(iter(self._pipes.values())).ring(near)

    def _file(self, name: str, size: int) -> mmap.mmap:
        if name not in self._files:
            path = os.path.join(self._folder, name)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(handle, size)
                self._files[name] = mmap.mmap(handle, size)
            finally:
                os.close(handle)
        return self._files[name]
