"""Host 0's parent: the Supervisor of all ranks. It learns about the ranks of other hosts from
messages on the wires."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from dlviz.cluster.errors import RankError
from dlviz.cluster.hosts.bridge import (
    CONTROL,
    ENDED,
    INTERRUPT,
    LOST,
    OUTPUT,
    OVER,
    STACKS,
    STALLED,
)
from dlviz.cluster.hosts.clocks import ClockLine, Reading
from dlviz.cluster.hosts.supervise import HostSupervisor
from dlviz.cluster.hosts.torchrun_ranks import summary
from dlviz.cluster.hosts.wire import Wire
from dlviz.cluster.parent.remote import Remote
from dlviz.cluster.rank import Place
from dlviz.cluster.recording import collect
from dlviz.cluster.recording.log import RankRecord
from dlviz.cluster.stuck import verdict
from dlviz.cluster.stuck.waits import RankState
from dlviz.trace import Trace

ENDS = struct.Struct("=iB")  # exit code, is it known
ToHere = Callable[[int], int]


class Coordinator(HostSupervisor):
    """Supervises the ranks of all hosts. `before` are the first readings of their clocks."""

    def _prepare(self) -> None:
        self._stalled: tuple[int, str] | None = None
        self._elsewhere: dict[int, FarRank] = {}
        for rank, host in self.network.host_of.items():
            if host:
                far = FarRank(rank, self.wires[host], self.stacks_of(rank))
                self._elsewhere[rank] = far
        self.before: dict[int, Reading] = {}
        super()._prepare()
        for host in self.wires:
            self.before[host] = self._read_clock(host)
        for rank, far in self._elsewhere.items():
            offset = self.before[self.network.host_of[rank]].offset
            far.to_here = lambda there, offset=offset: there - offset

    def _start(self, place: Place, environ: dict[str, str]) -> None:
        if place.rank in self._elsewhere:
            self.ranks.append(self._elsewhere[place.rank])
            self.ranks[-1].host = self.network.name_of(place.rank)
        else:
            super()._start(place, environ)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        over = ("", "", {}) if kind is None else summary(error)
        for wire in self.wires.values():
            wire.send(OVER, 0, json.dumps(over).encode())
        super().__exit__(kind, error, trace)

    def _take(self, host: int, kind: int, rank: int, data: bytes) -> None:
        if kind == INTERRUPT:
            self._interrupts.record()
        elif kind == LOST:
            self.gone.setdefault(rank, data.decode())
        elif kind == STALLED:
            self._stalled = self._stalled or (rank, data.decode())
        else:
            self._elsewhere[rank].take(kind, data)

    def _judge(self) -> None:
        if self.gone:
            self._interrupts.check()  # an interrupt may have ended it, which it reported before
            raise self._vanished()
        if self._stalled is not None:
            raise self._unanswered(*self._stalled)
        super()._judge()

    def _vanished(self) -> RankError:
        host, how = next(iter(self.gone.items()))
        there = self.network.hosts[host]
        for rank in there.ranks:
            self._elsewhere[rank].end(None)
        says = f"the host {there.name} with {verdict.ranks_in_words(there.ranks)} has gone: {how}"
        return RankError(says, rank=there.ranks[0], **self._gather(says))

    def _unanswered(self, rank: int, address: str) -> RankError:
        there = next(host for host in self.network.hosts if host.address == address)
        says = (
            f"{self.ranks[rank].called} gets no answer from {there.name} ({address}), though the "
            "hosts hear each other"
        )
        hint = "let their firewalls pass all ports between them: gloo takes any that are free."
        return RankError(f"{says}: {hint}", rank=rank, **self._gather(says))

    # -- what a run leaves ---------------------------------------------------------------------
    def _trace(self, outcome: str, failed: collect.Failed | None = None) -> Trace:
        lines = {host: self._line(host) for host in self.before}
        for number, rank in self._elsewhere.items():
            line = lines.get(self.network.host_of[number])
            if rank.rows is not None and line is not None:
                rank.rows = by_clock(rank.rows, line.to_here)
        self._errors = {
            host.name: lines[number].error * 1e-9 if number in lines else 0.0
            for number, host in enumerate(self.network.hosts)
        }
        self._moved = {host: line.moved * 1e-9 for host, line in lines.items() if line.stepped}
        return super()._trace(outcome, failed)

    def _line(self, host: int) -> ClockLine:
        before = self.before[host]
        after = None if host in self.gone else self.bridge.read_clock(host)
        return ClockLine(before, after or before.later(perf_counter_ns()))

    def _meta(self, outcome: str) -> dict[str, Any]:
        hosts = {host.name: list(host.ranks) for host in self.network.hosts}
        meta = {**super()._meta(outcome), "hosts": hosts, "clock_error": self._errors}
        if self._moved:
            meta["warning"] = " ".join(self._step(*each) for each in self._moved.items())
        return meta

    def _step(self, host: int, seconds: float) -> str:
        here, there = self.network.hosts[0], self.network.hosts[host]
        return (
            f"the clocks of {here.name} and {there.name} moved apart by {seconds * 1e3:.0f} ms "
            f"during the run, as where a virtual machine slept: times of "
            f"{verdict.ranks_in_words(there.ranks)} may be wrong by as much."
        )


class FarRank(Remote):
    """A rank of another host. `to_here` turns times of its clock into this host's."""

    to_here: ToHere

    def __init__(self, number: int, wire: Wire, stacks: str):
        super().__init__(number, FarProcess(), Mailbox(), Mailbox(), stacks)
        self._wire = wire

    def take(self, kind: int, data: bytes) -> None:
        """Take in a frame from its host."""
        if kind == CONTROL:
            self.control.put(data)
        elif kind == OUTPUT:
            self.output.put(data)
        elif kind == STACKS:
            with open(self.stacks, "wb") as file:
                file.write(data)
        elif kind == ENDED:
            code, known = ENDS.unpack(data)
            self.end(code if known else None)

    def end(self, exitcode: int | None) -> None:
        """Its process has ended."""
        self.output.put(b"")
        self.process.end(exitcode)

    def send(self, data: bytes) -> None:
        self._wire.send(CONTROL, self.number, data)

    def hear(self) -> None:
        before = self.state, self.failure
        super().hear()
        if self.state is not None and self.state is not before[0]:
            self.state = _state_by_clock(self.state, self.to_here)
        if self.failure is not None and self.failure is not before[1]:
            self.failure = replace(self.failure, when=self.to_here(self.failure.when))

    def read(self) -> bytes:
        """Its host sends only so much before it knows that some was taken."""
        try:
            data = self.output.recv_bytes()
        except EOFError:
            self.output.close()
            return b""
        self._wire.send(OUTPUT, self.number, len(data).to_bytes(8))
        return data

    def ask_stacks(self) -> None:
        self._wire.send(STACKS, self.number)

    def close(self) -> None:
        super().close()
        self.process.close()


class FarProcess:
    """The process of a rank of another host; `sentinel` is readable once it has ended."""

    pid = None  # none of this host's
    exitcode: int | None = None

    def __init__(self) -> None:
        self.sentinel, self._alive = os.pipe()
        self._ended = threading.Event()

    def end(self, exitcode: int | None) -> None:
        if not self._ended.is_set():
            self.exitcode = exitcode
            os.close(self._alive)
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def kill(self) -> None:
        """Its own parent kills it, when the run is over."""

    def close(self) -> None:
        self.end(None)
        os.close(self.sentinel)


class Mailbox:
    """A queue between two threads, on which the receiving one can wait as on a Connection; b"" ends
    it. Its descriptor is readable while it is not empty: `put` never waits."""

    def __init__(self) -> None:
        self.closed = False
        self._messages: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._bell, self._button = os.pipe()

    def put(self, data: bytes) -> None:
        with self._lock:
            if not self.closed:
                if not self._messages:
                    os.write(self._button, b"\0")
                self._messages.append(data)

    def fileno(self) -> int:
        return self._bell

    def poll(self) -> bool:
        return bool(self._messages)

    def recv_bytes(self) -> bytes:
        with self._lock:
            data = self._messages.popleft()
            if not self._messages:
                os.read(self._bell, 1)
        if not data:
            raise EOFError
        return data

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                os.close(self._bell)
                os.close(self._button)


def _state_by_clock(state: RankState, to_here: ToHere) -> RankState:
    waits = [replace(wait, since=to_here(wait.since)) for wait in state.waits]
    return replace(state, waits=waits)


def by_clock(record: RankRecord, to_here: ToHere) -> RankRecord:
    """What a rank recorded, its times turned into another clock's."""

    def shifted(row: Any, *names: str) -> Any:  # 0 is no time
        return row._replace(**{n: to_here(getattr(row, n)) for n in names if getattr(row, n)})

    return record._replace(
        lanes=[
            (lane, [shifted(row, "wall_start", "wall_end") for row in rows])
            for lane, rows in record.lanes
        ],
        sent=[(shifted(row, "wall"), *times) for row, *times in record.sent],
        received=[shifted(row, "wall") for row in record.received],
        snapshots=[shifted(row, "wall") for row in record.snapshots],
        memory=[shifted(row, "wall") for row in record.memory],
    )
