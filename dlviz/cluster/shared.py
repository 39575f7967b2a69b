"""Memory that the ranks of one host share, with a lock.

    file    owner, free | a ticket of each member |    the tensor's values

The system holds the lock (on the file), so that it is free again when its owner dies. A rank that
waits for it has a ticket, its time of arrival; the one that has waited longest is next."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import threading
import weakref
from time import perf_counter_ns
from typing import Any

import torch

from dlviz.cluster.groups.collective import Collectives

OWNER, FREE, TICKETS = range(3)  # cells: rank + 1; (a double) device time from which on; and so on
LINE = 64  # bytes to which the values are aligned


class Shared:
    """Made by `comm.shared(tensor)`. `tensor` is one piece of memory on all ranks: what one writes,
    the others read."""

    def __init__(self, comm: Collectives, file: int, like: torch.Tensor):
        head = head_of(comm.size)
        memory = mmap.mmap(file, head + like.nbytes)
        self.tensor = torch.empty(like.shape, dtype=like.dtype)
        if like.numel():
            flat = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=head)
            self.tensor = flat.view(like.shape)
        self._lock = Lock(comm, file, memoryview(memory)[:head])

    def lock(self) -> Hold:
        """Hold the lock inside the `with`: no other rank does then. The time in which a rank waits
        for it, and that in which it holds it, are spans of kind `lock`; on a paced run both are on
        the device clock. A rank that the run loses holds it no longer."""
        return Hold(self._lock)


def head_of(ranks: int) -> int:
    """Bytes of the file before the values."""
    return -(-(TICKETS + ranks) * 8 // LINE) * LINE


def share(comm: Collectives, tensor: torch.Tensor) -> Shared:
    """Put `tensor` of rank 0 into memory that all ranks of `comm`, which all call this, share."""
    _check(comm, tensor)
    groups, made = comm.groups, []
    number = groups.calls.get(comm.number, 0)
    path = f"{groups.path('shared', comm.number, comm.members)}-{number}"

    def exchange(call: Any) -> None:
        if comm.rank == 0:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.ftruncate(file, head_of(comm.size) + tensor.nbytes)
            made.append(Shared(comm, file, tensor))
            made[0].tensor.copy_(tensor.detach())
        comm.group.rendezvous(call)
        if comm.rank:
            made.append(Shared(comm, os.open(path, os.O_RDWR | os.O_CLOEXEC), tensor))
        comm.group.rendezvous(call)
        if comm.rank == 0:
            os.unlink(path)  # it is freed with the last process that has it

    comm.collective("shared", tensor, exchange)
    return made[0]


def _check(comm: Collectives, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"shared({type(tensor).__name__}) has no tensor: give it one on the CPU.")
    if not tensor.is_cpu:
        raise ValueError(
            f"the tensor to share is on {tensor.device}: ranks share memory of the host, so give "
            "tensor.cpu()."
        )
    if not tensor.is_contiguous():
        raise ValueError("the tensor to share is not contiguous: give tensor.contiguous().")
    if not comm.groups.reaches(comm.members):
        raise ValueError(
            f"the ranks of group {comm.name} are on several hosts, which share no memory: call "
            "shared on a group of one host's ranks."
        )
    free = shutil.disk_usage(comm.groups.folder).free
    if head_of(comm.size) + tensor.nbytes > free:
        raise ValueError(
            f"the tensor to share has {tensor.nbytes} bytes and shared memory has {free} left: "
            "share a smaller one."
        )


class Lock:
    """Of one piece of memory, as one rank sees it."""

    def __init__(self, comm: Collectives, file: int, head: memoryview):
        self.comm = comm
        self.holder = 0  # the thread of this rank that has it
        self.behind: set[Turn] = set()  # threads of this rank that wait for another one of it
        self.threads = threading.Lock()  # of this rank: one of them at a time
        self._file = file
        weakref.finalize(self, os.close, file)
        self._cells = head.cast("q")
        self._times = head.cast("d")
        self._mine = TICKETS + comm.rank

    @property
    def owner(self) -> int | None:
        """The rank that has the lock, if any does."""
        rank = self._cells[OWNER] - 1
        return None if rank < 0 else rank

    def queue(self) -> None:
        self._cells[self._mine] = perf_counter_ns()

    def take(self) -> bool:
        """Take the lock if nobody has it and nobody has waited longer."""
        lost, cells = self.comm.waiting.lost, self._cells
        mine = cells[self._mine], self._mine
        for place, member in enumerate(self.comm.members, TICKETS):
            if cells[place] and (cells[place], place) < mine and member not in lost:
                return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        cells[self._mine] = 0
        self.holder = threading.get_ident()
        return True

    def own(self, pace: Any) -> None:
        """The lock is this rank's: its lane goes on when it was free by the device's clock."""
        if self._cells[OWNER]:  # its holder has died
            pace.restart()
        self._cells[OWNER] = self.comm.members[self.comm.rank] + 1
        pace.wait_until(self._times[FREE])
        pace.settle()

    def release(self, time: float | None) -> None:
        """Let the next one have it; `time` is the device's."""
        self._times[FREE] = time or 0.0
        self._cells[OWNER] = self.holder = 0
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self.threads.release()
        waiting, members = self.comm.waiting, self.comm.members
        for place, member in enumerate(members, TICKETS):
            if self._cells[place]:
                waiting.ring(member)
        if self.behind:
            waiting.ring(members[self.comm.rank])


class Turn:
    """This thread's turn to have a lock, as something to wait for."""

    left = None

    def __init__(self, lock: Lock):
        self._lock = lock
        self._queues = self._has = False

    @property
    def done(self) -> bool:
        lock = self._lock
        if not self._queues:
            self._queues = lock.threads.acquire(False)
            if not self._queues:
                lock.behind.add(self)
                return False
            lock.behind.discard(self)
            lock.queue()
        self._has = self._has or lock.take()
        return self._has

    def give_up(self, lost: dict[int, str]) -> None:
        """A lost rank holds no lock."""

    def about(self) -> dict[str, Any]:
        """The fields of the span of a wait that never ends."""
        owner = self._lock.owner
        return {} if owner is None else {"peer": owner}

    def details(self) -> dict[str, Any]:
        comm = self._lock.comm
        return {"peer": self._lock.owner, "group": comm.name, "group_id": comm.number}


class Hold:
    """What `lock()` returns."""

    def __init__(self, lock: Lock):
        self._lock = lock

    def __enter__(self) -> None:
        comm, lock = self._lock.comm, self._lock
        if lock.holder == threading.get_ident():
            raise RuntimeError(
                f"rank {comm.members[comm.rank]} holds this lock already and would wait for "
                "itself: leave that `with` first."
            )
        lane = comm.recorder.lane
        lane.pace.begin()
        lane.pace.settle()  # the wall clock reaches the lane's time: it asks for the lock now
        times, owner, turn = lane.pace.start(), lock.owner, Turn(lock)
        waited = not turn.done
        comm.waiting.wait(turn, "lock", lane, times)
        lock.own(lane.pace)
        lane.pace.end(times)
        if comm.recorder.on and (waited or times[2] != times[3]):
            lane.add("lock", "wait", times, {} if owner is None else {"peer": owner})
        self._span = comm.recorder.open("lock", "hold", {}, whole=False)
        self._span.__enter__()

    def __exit__(self, *error: Any) -> None:
        pace = self._lock.comm.recorder.lane.pace
        pace.settle()  # what was done has taken its time
        self._span.__exit__(*error)
        self._lock.release(pace.time)
