"""What the parents of all hosts share: ranks of this host, and the bridge to the others."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace

from dlviz.cluster.errors import RunError
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.clocks import Reading
from dlviz.cluster.hosts.rendezvous import Rendezvous
from dlviz.cluster.hosts.seats import Seat
from dlviz.cluster.parent import start
from dlviz.cluster.parent.output import Progress
from dlviz.cluster.parent.supervise import Supervisor
from dlviz.cluster.rank import Place


class HostSupervisor(Supervisor, ABC):
    """The ranks of one host of several. `gone` says of hosts that have gone how."""

    bridge: Bridge

    def __init__(
        self,
        meeting: Rendezvous,
        seats: list[Seat],
        device: str,
        timeout: float,
        progress: Progress,
    ):
        super().__init__(len(meeting.network.host_of), None, device, timeout, progress)
        self.network, self.wires = meeting
        self.seats = {seat.rank: seat for seat in seats}
        self.gone: dict[int, str] = {}
        self._torchrun = os.getppid()

    def _prepare(self) -> None:
        """Build the bridge."""
        start.context.set_forkserver_preload(start.PRELOADED)
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
        network = self.network
        super()._start(replace(place, network=network), self.seats[place.rank].environ)
        self.ranks[-1].host = network.here.name
        self.bridge.pids[place.rank] = self.ranks[-1].process.pid

    def _check_torchrun(self) -> None:
        """Raise where it was killed: who kills it wants the run to end."""
        if os.getppid() != self._torchrun:
            raise RunError(f"torchrun on {self.network.here.name}, which started this, was killed.")

    def _read_clock(self, host: int) -> Reading:
        """How far the clock of another host is ahead."""
        reading = self.bridge.read_clock(host)
        if reading is None:
            raise self._vanished()
        return reading

    @abstractmethod
    def _vanished(self) -> Exception:
        """What is raised where a host has gone."""

    def stacks_of(self, rank: int) -> str:
        return os.path.join(self._folder, f"stacks-{rank}")
