"""What a rank's process knows and shares between its communicators: board, mail, clock, recorder,
posted waits."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from dlviz.cluster.board import ACTIVITY, SYNC, TAKEN, WAITING, Board
from dlviz.cluster.clock import DeviceClock, LaneClock, sleep_until
from dlviz.cluster.mail import Letter, Mailbox
from dlviz.cluster.threads import awake
from dlviz.cluster.waits import TAG_BITS, TAGS, RankState, Wait
from dlviz.trace.recorder import Recorder, caller

if TYPE_CHECKING:
    from dlviz.cluster.lanes import Lane
    from dlviz.machine import Machine


def algorithm_step(context: dict[str, Any]) -> int:
    """The step of a message: the round of the collective it belongs to, else the program's step."""
    return context.get("round", context.get("step", -1))


class Watched:
    """A buffer that `comm.watch` follows."""

    def __init__(self, tensor: torch.Tensor, name: str):
        self.tensor = tensor
        self.name = name
        self.start = tensor.data_ptr()
        self.end = self.start + tensor.numel() * tensor.element_size()
        self.shots = 0

    def locate(self, tensor: torch.Tensor) -> int:
        """The element of this buffer at which `tensor` begins, -1 if it lies elsewhere."""
        pointer = tensor.data_ptr()
        if not (self.start <= pointer < self.end) or tensor.dtype != self.tensor.dtype:
            return -1
        return (pointer - self.start) // tensor.element_size()


class Process:
    """One rank. Made once per run, shared by all its Comms and lanes."""

    def __init__(
        self,
        rank: int,
        size: int,
        board: Board,
        store: Any,
        device: torch.device,
        machine: Machine | None = None,
        ledger: str = "",
    ):
        self.rank = rank
        self.size = size
        self.board = board
        self.store = store
        self.device = device
        self.machine = machine
        self.clock = None if machine is None else DeviceClock(rank, machine, board, ledger)
        self.recorder = Recorder(rank, clock=None if self.clock is None else self.clock.lane)
        self.mail = Mailbox(board, rank, None if self.clock is None else self.clock.expect)
        self.sends: list[tuple] = []
        self.receives: list[tuple] = []
        self.snapshots: list[tuple] = []
        self.memory: list[tuple] = []
        self.watched: list[Watched] = []
        self.lanes: list[Lane] = []
        self.posts: dict[int, tuple] = {}  # by thread
        self.calls: dict[int, int] = {}
        self.own_threads: set[int] = set()
        self.next_group = 2
        self.pending: set[Any] = set()  # requests under way
        self.gamma = 0.0 if machine is None else machine.device.gamma
        self.announce: Any = None  # told the name of each progress bar that begins
        self.gloo: Any = None  # the group of all ranks
        self._lock = threading.Lock()

    # -- waits ---------------------------------------------------------------------------------
    def post(self, op: str, **details: Any) -> None:
        """Post the calling thread's wait (the fields of `Wait` that `details` gives)."""
        post = (op, self.recorder.lane.name, *caller(2), perf_counter_ns(), details)
        with self._lock:
            self.posts[threading.get_ident()] = post
            self._stir()

    def unpost(self) -> None:
        with self._lock:
            del self.posts[threading.get_ident()]
            self._stir()

    def _stir(self) -> None:
        self.board.put(self.rank, ACTIVITY, self.board.get(self.rank, ACTIVITY) + 1)
        self.board.put(self.rank, WAITING, len(self.posts))

    def state(self, finished: bool = False) -> RankState:
        """What this rank waits for, and how far it has come. Makes room on the board on the way
        for messages that it will not look for while it waits for another one."""
        self.mail.collect()
        with self._lock:
            waits = list(self.posts.items())
        idle = {lane.ident for lane in self.lanes if lane.idle}
        busy = awake() - self.own_threads - idle - {thread for thread, _ in waits}
        return RankState(
            [self._wait(*post) for _, post in waits],
            len(busy),
            finished,
            dict(self.mail.sent),
            dict(self.mail.claimed),
            dict(self.calls),
        )

    def _wait(
        self, op: str, lane: str, file: str, line: int, since: int, details: dict[str, Any]
    ) -> Wait:
        if "tag" in details:  # on the board a tag holds the number of its group, too
            tag = details["tag"]
            details = {**details, "tag": tag & TAGS, "group_id": tag >> TAG_BITS}
        return Wait(self.rank, lane, op, f"{file}:{line}", since, **details)

    # -- recording -----------------------------------------------------------------------------
    def locate(self, tensor: torch.Tensor) -> int:
        for watched in self.watched:
            offset = watched.locate(tensor)
            if offset >= 0:
                return offset
        return -1

    def snapshot(self) -> None:
        """Keep what the watched buffers hold now."""
        if not self.watched or not self.recorder.on:
            return
        lane = self.recorder.lane
        now = perf_counter_ns()
        device = None if lane.clock is None else lane.clock.free
        file, line = caller(2)
        for watched in self.watched:
            data = watched.tensor.detach().to("cpu", copy=True).flatten()
            if data.dtype in (torch.bfloat16, torch.float16):
                data = data.float()
            self.snapshots.append(
                (
                    watched.name,
                    now,
                    device,
                    watched.shots,
                    f"{file}:{line}",
                    algorithm_step(lane.context),
                    data.numpy(),
                )
            )
            watched.shots += 1

    def rows(self) -> dict[str, Any]:
        """All that was recorded so far, as plain data for the parent."""
        settled: dict[str, Any] = {
            "rank": self.rank,
            "lanes": [
                (lane.name, [tuple(row) for row in lane.rows]) for lane in self.recorder.lanes
            ],
            "sends": list(self.sends),
            "receives": list(self.receives),
            "snapshots": list(self.snapshots),
            "memory": list(self.memory),
        }
        if self.clock is not None:
            settled["lateness"] = self.clock.lateness()
            settled["operations"] = sum(lane.operations for lane in self.clock.lanes)
            settled["overruns"] = sum(lane.overruns for lane in self.clock.lanes)
        return settled

    def take(self, letter: Letter, clock: LaneClock) -> None:
        """Wait until the message is here by the device clock, and tell a synchronous sender that
        it was taken."""
        sleep_until(clock.device.wall(letter.mail.stamp))
        self.mail.collect()
        clock.wait_until(clock.device.arrival(letter))
        clock.settle()
        if letter.mail.flags & SYNC:
            note = letter.mail._replace(flags=TAKEN, stamp=clock.free)
            while not self.mail.notice(letter.src, note):
                time.sleep(5e-5)

    def settle(self) -> None:
        """Sleep off every lane's debt, at the end of the run."""
        for lane in self.recorder.lanes:
            if lane.clock is not None:
                lane.clock.settle()

    def make_group(self, name: str, members: tuple[int, ...]) -> Any:
        """A gloo group of `members` for the backend's own collectives."""
        store = PrefixStore(f"{name}:{','.join(map(str, members))}", self.store)
        return dist.ProcessGroupGloo(
            store, members.index(self.rank), len(members), timedelta(days=1)
        )
