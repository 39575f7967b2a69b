"""What a rank's process is made of, and shares between its communicators and lanes."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from dlviz.cluster.control import Control
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.waiting import OpenWait
from dlviz.cluster.groups.membership import Groups
from dlviz.cluster.messages.buffers import BufferPool, OutstandingSends
from dlviz.cluster.messages.endpoint import Endpoint
from dlviz.cluster.pacing.clock import DeviceClock
from dlviz.cluster.pacing.events import EventClock, event_on
from dlviz.cluster.pacing.pace import NoDevice
from dlviz.cluster.recording.log import Log, RankRecord, Received, Sent
from dlviz.cluster.stuck.stacks import Called, stacks
from dlviz.cluster.stuck.threads import awake
from dlviz.cluster.stuck.waits import RankState, Wait
from dlviz.cluster.transport import Transport
from dlviz.machine import Machine
from dlviz.trace.recorder import Recorder, Row, line_at, user_line

KINDS = {  # op -> of its span
    "send": "send", "recv": "recv", "isend": "wait", "irecv": "wait", "lock": "lock",
}  # fmt: skip
NAMES = {"lock": "wait"}  # op -> of its span, where that has one


class Process:
    """One rank. Made once per run."""

    transport: Transport  # once all ranks have agreed on one
    gloo: Any = None  # the group of all ranks, once they have joined
    announce: Any = None  # called with what the launching process is to know, and about it

    def __init__(
        self,
        folder: str,
        rank: int,
        store: Any,
        control: Control,
        device: torch.device,
        machine: Machine | None = None,
    ):
        self.folder = folder
        self.rank = rank
        self.control = control
        self.board = control.board
        self.device, self.machine = device, machine
        self.pacing = self._make_pacing()
        self.recorder = Recorder(rank, pace=self.pacing.lane)
        self.log = Log(self.recorder)
        self.pipes = control.pipes
        self.matching = Matching(rank, self.pipes.writer, self.pacing.expect)
        self.waiting = control.waiting(self.matching)
        self.pacing.serve_with(self.waiting)
        self.outstanding = OutstandingSends(self.board, rank)
        self.buffers = BufferPool()
        self.lanes: list[Any] = []
        self.leaves = threading.Event()  # whether it ends without the threads that are running
        self.left_running: list[str] = []  # their names
        self.own_threads = {*control.threads}
        self.groups = Groups(folder, rank, control, self.waiting, store, self.own_threads)

    def _make_pacing(self) -> Any:
        """The clock that its operations go by."""
        if self.machine is not None:
            ledger = os.path.join(self.folder, "ledger")
            return DeviceClock(self.rank, self.machine, self.board, ledger)
        return (
            EventClock(partial(event_on, self.device)) if self.device.type == "cuda" else NoDevice()
        )

    def endpoint(self, group: str) -> Endpoint:
        """What the messages of a group go through, once there is a transport."""
        return Endpoint(
            group, self.rank, self.board, self.pipes, self.matching, self.waiting, self.transport,
            self.outstanding, self.buffers, self.pacing, self.recorder, self.log,
        )  # fmt: skip

    def state(self, finished: bool = False) -> RankState:
        """What this rank waits for, and how far it has come. Makes room for messages that it will
        not look for while it waits for another one. A thread whose wait a loss has ended counts as
        busy, though it may not have woken up yet."""
        self.pacing.take_stock()
        self.waiting.collect()
        entries = list(self.waiting.registered.items())
        found = stacks()
        idle = {lane.ident for lane in self.lanes if lane.idle}
        busy = awake(found) - self.own_threads - idle - {thread for thread, _ in entries}
        waits = [self._wait(_user_line(thread, found, entry), entry) for thread, entry in entries]
        ended = sum(self.waiting.ends_by_loss(entry) for _, entry in entries)
        sent, claimed = self.matching.counts()
        calls, met = dict(self.groups.calls), {*self.waiting.met}
        return RankState(waits, len(busy) + ended, finished, sent, claimed, calls, met)

    def _wait(self, place: tuple[str, int], entry: OpenWait) -> Wait:
        details = {} if entry.what is None else entry.what.details()
        if "group_id" in details:  # else it is for a lane of this rank
            details = self.groups.details(details["group_id"]) | details
        where, host = "{}:{}".format(*place), self.control.host
        return Wait(self.rank, entry.lane.name, entry.op, where, entry.since, host=host, **details)

    def leave(self) -> bool:
        """End without the threads that still run; whether nothing else is left to wait for."""
        self.leaves.set()
        return threading.main_thread().ident in self.own_threads or bool(self.left_running)

    def serve(self) -> None:
        """Take what was sent to a rank that does not wait itself."""
        self.waiting.serve()

    def rows(self) -> RankRecord:
        """All that was recorded so far. What a thread waits in now has not ended."""
        entries, found = list(self.waiting.registered.items()), stacks()
        self.pacing.read_times()
        lanes = []
        for lane in self.recorder.lanes:
            rows = lane.rows()
            rows += [
                self._unfinished(entry, _user_line(thread, found, entry))
                for thread, entry in entries
                if entry.lane is lane and entry.times is not None
            ]
            lanes.append((lane.name, rows))
        booked = self.pacing.booked
        sent = [(row, *booked(row.departure)) for row in map(Sent._make, list(self.log.sent))]
        received = [*map(Received._make, list(self.log.received))]
        shots = list(self.log.snapshots)
        memory, report = list(self.log.memory), self.pacing.report()
        return RankRecord(self.rank, lanes, sent, received, shots, memory, report)

    def _unfinished(self, entry: OpenWait, place: tuple[str, int]) -> Row:
        about = getattr(entry.what, "about", dict)
        what = KINDS[entry.op], NAMES.get(entry.op)
        return entry.lane.unfinished(*what, entry.times, about(), place)

    def settle(self) -> None:
        """Sleep off every lane's debt, at the end of the run. No operation follows that could be
        late: a lane that ended before the others is not."""
        for lane in self.recorder.lanes:
            lane.pace.pay()
        self.pacing.finish()


def _user_line(thread: int, found: Mapping[int, list[Called]], entry: OpenWait) -> tuple[str, int]:
    """The user's line for which a thread waits: its own, else that which gave its lane the work,
    else (a thread of autograd's) where the main thread is."""
    calls = [call.where for call in found.get(thread, [])]
    if entry.lane.origin is not None:
        calls.append(line_at(*entry.lane.origin))
    main = found.get(threading.main_thread().ident or 0, [])
    return user_line([*calls, *(call.where for call in main)])
