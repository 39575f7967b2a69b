"""What a rank's process knows and shares between its communicators: board, mail, clock, recorder,
posted waits."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from math import nan as NAN
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from dlviz.cluster.board import ACTIVITY, STATE, SYNC, WAITING, Board, Mail
from dlviz.cluster.clock import DeviceClock, LaneClock
from dlviz.cluster.ledger import Departure
from dlviz.cluster.mail import Mailbox
from dlviz.cluster.requests import ACK, POLL, ReceiveRequest, Request, Waited
from dlviz.cluster.threads import awake
from dlviz.cluster.waits import RankState, Wait
from dlviz.trace.recorder import Lane as SpanLane
from dlviz.trace.recorder import Recorder, caller, user_line

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
        self._stirring = threading.Lock()
        self.calls: dict[int, int] = {}
        self.own_threads: set[int] = set()
        self.next_group = 2
        self.pending: set[Any] = set()  # requests under way
        self.gamma = 0.0 if machine is None else machine.device.gamma
        self.announce: Any = None  # told the name of each progress bar that begins
        self.gloo: Any = None  # the group of all ranks
        self.acks: list[tuple] = []  # what tells synchronous senders that a message was taken
        self._spare: dict[tuple, list[torch.Tensor]] = {}

    # -- waits ---------------------------------------------------------------------------------
    def post(self, op: str, what: Waited | None = None) -> None:
        """Post the calling thread's wait: what it is in and what it waits for."""
        self.posts[threading.get_ident()] = (op, self.recorder.lane, perf_counter_ns(), what)
        self._stir()

    def unpost(self) -> None:
        del self.posts[threading.get_ident()]
        self._stir()

    def _stir(self) -> None:
        cells, mine = self.board.cells, self.rank * STATE
        with self._stirring:  # two lanes' counts must not overwrite each other
            cells[mine + ACTIVITY] += 1
            cells[mine + WAITING] = len(self.posts)

    def wait_for_room(self, request: Request) -> None:
        """Wait until the receiver has read some of the headers that fill the board."""
        self.post("send", request)
        while not self.room(request.peer):
            time.sleep(POLL)
        self.unpost()

    def room(self, dst: int) -> bool:
        """Whether the board has room for one more message to `dst`."""
        full = self.mail.outbox[dst].full() or (self.clock is not None and self.clock.full())
        return not full

    def state(self, finished: bool = False) -> RankState:
        """What this rank waits for, and how far it has come. Makes room on the board on the way
        for messages that it will not look for while it waits for another one."""
        self.mail.collect()
        if self.clock is not None:
            self.clock.take_stock()
        waits = list(self.posts.items())
        frames = sys._current_frames()
        idle = {lane.ident for lane in self.lanes if lane.idle}
        busy = awake() - self.own_threads - idle - {thread for thread, _ in waits}
        return RankState(
            [self._wait(frames.get(thread), *post) for thread, post in waits],
            len(busy),
            finished,
            dict(self.mail.sent),
            dict(self.mail.claimed),
            dict(self.calls),
        )

    def _wait(
        self, frame: FrameType | None, op: str, lane: SpanLane, since: int, what: Waited | None
    ) -> Wait:
        file, line = ("", 0) if frame is None else user_line(frame)
        details = {} if what is None else what.details()
        return Wait(self.rank, lane.name, op, f"{file}:{line}", since, **details)

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
            "lanes": [(lane.name, lane.rows()) for lane in self.recorder.lanes],
            "sends": [(*row[:7], *self._times(row[7]), *row[8:]) for row in list(self.sends)],
            "receives": list(self.receives),
            "snapshots": list(self.snapshots),
            "memory": list(self.memory),
        }
        if self.clock is not None:
            settled["lateness"] = self.clock.lateness()
            settled["operations"] = sum(lane.operations for lane in self.clock.lanes)
            settled["overruns"] = sum(lane.overruns for lane in self.clock.lanes)
        return settled

    def _times(self, departure: Departure | None) -> tuple[float, float]:
        """When a message was sent and had arrived (device seconds)."""
        if departure is None or self.clock is None:
            return NAN, NAN
        self.clock.book(departure)
        return departure.sent, departure.stamp

    # -- messages ------------------------------------------------------------------------------
    def take(self, request: ReceiveRequest, clock: LaneClock) -> float:
        """Wait until a message is here by the device clock, and tell a synchronous sender so; when
        this rank's port had taken it (device seconds)."""
        self.mail.collect()
        letter = self.mail.letters.pop((request.peer, request.tag, request.index))
        clock.device.wait_for(letter)
        self.mail.collect()
        arrived = clock.device.arrival(letter)
        clock.wait_until(arrived)
        clock.settle()
        self.tell_taken(request, letter.mail, clock.free)
        return arrived

    def tell_taken(self, request: ReceiveRequest, mail: Mail, when: float) -> None:
        """Tell a synchronous sender, once, at which device time its message was taken."""
        if mail.flags & SYNC and not request.told:
            request.told = True
            taken = torch.tensor([when], dtype=torch.float64)
            self.acks.append((taken, self.gloo.send([taken], request.peer, request.tag | ACK)))

    def borrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """A buffer for a message that cannot go straight into `tensor`."""
        spare = self._spare.get((tensor.shape, tensor.dtype))
        return spare.pop() if spare else torch.empty(tensor.shape, dtype=tensor.dtype)

    def give_back(self, buffer: torch.Tensor) -> None:
        if len(self._spare) > 32:  # shapes
            self._spare.clear()
        self._spare.setdefault((buffer.shape, buffer.dtype), []).append(buffer)

    def settle(self) -> None:
        """Sleep off every lane's debt, at the end of the run. No operation follows that could be
        late: a lane that ended before the others is not."""
        for lane in self.recorder.lanes:
            if lane.clock is not None:
                lane.clock.pay()
        if self.clock is not None:
            self.clock.finish()

    def make_group(self, name: str, members: tuple[int, ...]) -> Any:
        """A gloo group of `members` for the backend's own collectives."""
        store = PrefixStore(f"{name}:{','.join(map(str, members))}", self.store)
        return dist.ProcessGroupGloo(
            store, members.index(self.rank), len(members), timedelta(days=1)
        )
