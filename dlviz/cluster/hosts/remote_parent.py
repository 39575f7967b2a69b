"""The parent of a host other than host 0: it starts this host's ranks, forwards what they say to
host 0, and obeys it."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from typing import Any

from dlviz.cluster.errors import RunError
from dlviz.cluster.hosts.bridge import CONTROL, ENDED, INTERRUPT, LOST, OUTPUT, OVER, STACKS
from dlviz.cluster.hosts.coordinator import ENDS
from dlviz.cluster.hosts.supervise import HostSupervisor, Left
from dlviz.cluster.hosts.torchrun_ranks import error_of
from dlviz.cluster.parent.remote import GRACE, Remote, write_stacks
from dlviz.cluster.rank import Place
from dlviz.cluster.stuck.watch import TICK

HELD = 1 << 16  # bytes that the pipe of a rank's output holds
AHEAD = 1 << 20  # bytes of a rank's output sent to host 0 and not acknowledged, at most


class RemoteParent(HostSupervisor):
    """The ranks of one host; `results` are those of ranks that are done, pickled."""

    def _prepare(self) -> None:
        self.results: dict[int, bytes] = {}
        self._own: dict[int, Remote] = {}
        self._ahead: Counter[int] = Counter()  # bytes of output, by rank
        self._over: tuple[str, str, dict[str, Any]] | None = None
        super()._prepare()
        self.network = replace(self.network, ahead=-self._read_clock(0).offset)

    def _start(self, place: Place, environ: dict[str, str]) -> None:
        if place.rank in self.waiters:
            super()._start(place, environ)
            self._own[place.rank] = self.ranks[-1]

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self._over is None and 0 in self.wires:
            self.wires[0].send(LOST, self.network.own, str(error).encode())
        super().__exit__(kind, error, trace)

    def lead(self) -> Left:
        """Run this host's ranks, and give each waiter its rank's result when the run is
        over. Raises the error that host 0 reports if it has failed."""
        try:
            for number, rank in self._own.items():
                rank.send(self.waiters[number].job)
            while self._over is None:
                self._turn(TICK)
                self._interrupts.check()
                self._check_torchrun()
                if self.ended_waiter:
                    raise RunError(self.ended_waiter)
                if self.gone and self._over is None:  # a host that has finished may leave
                    self._report()
        except KeyboardInterrupt:
            self.wires[0].send(INTERRUPT)
            raise
        name, message, about = self._over
        if name:
            raise error_of(name, f"{message} ({self.network.hosts[0].name} shows all of it)", about)
        for rank, waiter in self.waiters.items():
            waiter.answer("result", self.results[rank], {})
        return [pickle.loads(self.results[min(self.waiters)])], [""], None, {}

    def _report(self) -> None:
        """Report to host 0 another host that has gone; raise if it is host 0 itself."""
        if 0 in self.gone:
            raise self._vanished()
        for host, how in self.gone.items():
            self.wires[0].send(LOST, host, how.encode())
        self.gone.clear()

    def _vanished(self) -> RunError:
        return RunError(
            f"the host {self.network.hosts[0].name}, which coordinates the run, has gone: "
            f"{self.gone.get(0, 'it closed its connection')}"
        )

    # -- from host 0 ---------------------------------------------------------------------------
    def _take(self, host: int, kind: int, rank: int, data: bytes) -> None:
        if kind == OVER:
            self._over = tuple(json.loads(data))
        elif kind == OUTPUT:
            self._ahead[rank] -= int.from_bytes(data)
        elif kind == CONTROL:
            self._own[rank].send(data)
        elif kind == STACKS:
            write_stacks([self._own[rank]])
            with suppress(OSError), open(self._own[rank].stacks, "rb") as file:
                self.wires[0].send(STACKS, rank, file.read())

    # -- to host 0 -----------------------------------------------------------------------------
    def _sources(self) -> dict[Any, Callable[[], None]]:
        """A rank's output waits while host 0 has not taken in enough of it."""
        sources = super()._sources()
        for rank in self._own.values():
            if self._ahead[rank.number] >= AHEAD:
                sources.pop(rank.output, None)
        return sources

    def _print(self, rank: Remote) -> None:
        """Forward what it has printed so far; it may print for ever."""
        left = HELD
        while left > 0 and not rank.output.closed and wait_for([rank.output], 0):
            data = rank.read()
            left -= len(data)
            self._ahead[rank.number] += len(data)
            if data:
                self.wires[0].send(OUTPUT, rank.number, data)

    def _talk(self, rank: Remote) -> None:
        while not rank.control.closed and rank.control.poll():
            self._say(rank)

    def _say(self, rank: Remote) -> None:
        """Forward one message of a rank, after what it has printed before."""
        try:
            data = rank.control.recv_bytes()
        except (EOFError, OSError):
            rank.control.close()
            data = b""
        self._print(rank)
        self.bridge.send_states()
        self.wires[0].send(CONTROL, rank.number, data)
        if data:
            what, *rest = pickle.loads(data)
            if what == "done":
                self.results[rank.number] = rest[0]

    def _end(self, rank: Remote) -> None:
        rank.ended = True
        self._talk(rank)
        self._print(rank)
        rank.process.join(GRACE)
        code = rank.exitcode
        self.wires[0].send(ENDED, rank.number, ENDS.pack(code or 0, code is not None))
