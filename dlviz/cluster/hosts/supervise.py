"""Parents under torchrun: that of a run on one host, and what the parents of several hosts
share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dlviz.cluster.errors import RankError, RunError
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.clocks import Reading
from dlviz.cluster.hosts.rendezvous import Rendezvous
from dlviz.cluster.hosts.torchrun_ranks import Waiter
from dlviz.cluster.parent.output import Progress
from dlviz.cluster.parent.remote import Lost
from dlviz.cluster.parent.supervise import Supervisor
from dlviz.cluster.rank import Place
from dlviz.cluster.recording.results import pack
from dlviz.machine import Machine
from dlviz.trace import Trace

Left = tuple[list[Any], list[str], Trace | None, dict[int, Lost]]  # results, outputs, Trace, lost


class TorchrunSupervisor(Supervisor):
    """A run under torchrun: `waiters` are those of this host, by rank."""

    def __init__(
        self,
        waiters: list[Waiter],
        ranks: int,
        machine: Machine | None,
        device: str,
        timeout: float,
        may_lose: frozenset[int] = frozenset(),
    ):
        super().__init__(ranks, machine, device, timeout, Progress(), may_lose)
        self.waiters = {waiter.rank: waiter for waiter in waiters}
        self._ended: list[int] = []  # ranks whose waiter has ended
        self._torchrun, self._starter = os.getppid(), "torchrun"

    def lead(self) -> Left:
        """Run the jobs of the waiters, and give each its rank's result."""
        jobs = {rank: waiter.job for rank, waiter in self.waiters.items()}
        results, output, trace = self.run(jobs)
        for rank, waiter in self.waiters.items():
            waiter.answer("result", pack(results[rank], leave=False), self.lost)
        return results, output, trace, self.lost

    def _start(self, place: Place, environ: dict[str, str]) -> None:
        super()._start(place, self.waiters[place.rank].environ)

    def _sources(self) -> dict[Any, Callable[[], None]]:
        """A waiter sends nothing: what arrives is its end."""
        running = [waiter for rank, waiter in self.waiters.items() if rank not in self._ended]
        gone = {
            waiter.connection: partial(self._ended.append, waiter.rank)
            for waiter in running
            if waiter.connection is not None
        }
        return super()._sources() | gone

    def _judge(self) -> None:
        self._check_torchrun()
        if self._ended:
            says = self.ended_waiter
            raise RankError(says, rank=self._ended[0], **self._gather(says))
        super()._judge()

    def _check_torchrun(self) -> None:
        """Raise if torchrun was killed: that is meant to end the run."""
        if os.getppid() != self._torchrun:
            raise RunError(f"{self._starter}, which started this, was killed.")

    @property
    def ended_waiter(self) -> str:
        """The error of a waiter that has ended, "" while there is none."""
        called = [rank.called for rank in self.ranks if rank.number in self._ended[:1]]
        return f"torchrun's process for {called[0]} ended before the run was over" if called else ""


class HostSupervisor(TorchrunSupervisor, ABC):
    """The ranks of one host of several. `gone` says how hosts have gone."""

    bridge: Bridge

    def __init__(self, joined: Rendezvous, waiters: list[Waiter], device: str, timeout: float):
        super().__init__(waiters, len(joined.network.host_of), None, device, timeout)
        self.network, self.wires = joined
        self.gone: dict[int, str] = {}
        self._starter = f"torchrun on {self.network.here.name}"

    def _prepare(self) -> None:
        """Build the bridge."""
        for wire in self.wires.values():
            self._left.callback(wire.close)
        on = self.network, self._folder, self.board, dict(self.wires)
        self.bridge = Bridge(*on, self._take, self.gone.setdefault)
        self.bridge.start()
        self._left.callback(self.bridge.close)

    @abstractmethod
    def _take(self, host: int, kind: int, rank: int, data: bytes) -> None:
        """Take in a frame that another host has sent; in the bridge's thread."""

    def _start(self, place: Place, environ: dict[str, str]) -> None:
        super()._start(replace(place, network=self.network), environ)
        self.ranks[-1].host = self.network.here.name
        self.bridge.pids[place.rank] = self.ranks[-1].process.pid

    def _read_clock(self, host: int) -> Reading:
        """How far the clock of another host is ahead."""
        reading = self.bridge.read_clock(host)
        if reading is None:
            raise self._vanished()
        return reading

    @abstractmethod
    def _vanished(self) -> Exception:
        """The error for a host that has gone."""

    def stacks_of(self, rank: int) -> str:
        return os.path.join(self._folder, f"stacks-{rank}")
