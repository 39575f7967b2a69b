"""A group of ranks in shared memory: the collective calls of its members, their rendezvous, and the
tensors that they show each other.

    member m    phase | address, time: by parity |  its latest calls        then, by parity, a
                                                                            short row of each

A member is never more than one rendezvous ahead of another, so what alternates by parity is read
before it is overwritten.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dlviz.cluster.control.form import FORM
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.transport import Transport

PHASE, ADDRESS, TIME = 0, 1, 3  # cells of a member; the last two are two each
CELLS = 8
CALLS = 64  # latest collective calls stored of a member
CALL = struct.Struct(f"=3q{FORM.size}s")  # sequence + 1, operation, root; form
MEMBER = CELLS * 8 + CALLS * CALL.size
SHORT, ROWS = 1 << 16, 1 << 19  # bytes of a tensor that is shown as a copy; of all members' copies

Call = tuple[int, int, bytes]
Read = Callable[[int, int, torch.Tensor], Any]


class Group:
    """`members` are global ranks, `place` is this rank's index among them. `left` holds tensors
    that others may still read when this member has dropped the group."""

    def __init__(
        self,
        path: str,
        members: tuple[int, ...],
        rank: int,
        waiting: Waiting,
        transport: Transport,
        left: deque[torch.Tensor],
    ):
        self._left = left
        self.members = members
        self.place = members.index(rank)
        self._waiting = waiting
        self._transport = transport
        self.short = min(SHORT, ROWS // len(members) // 64 * 64)  # whole elements
        size = (MEMBER + 2 * self.short) * len(members)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, size)
            self._memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self._cells = memoryview(self._memory).cast("q")
        self._times = memoryview(self._memory).cast("d")
        self._places = range(0, len(members) * MEMBER // 8, MEMBER // 8)  # their first cells
        self._phase = self._turn = 0
        self._held: torch.Tensor | None = None
        self._views: dict[torch.dtype, torch.Tensor] = {}  # of the memory

    # -- calls ---------------------------------------------------------------------------------
    def register_call(self, sequence: int, call: Call) -> None:
        """Publish this member's collective call number `sequence`: operation, root, form of its
        tensor."""
        at = self._call(self.place, sequence)
        self._cells[at // 8] = 0  # a concurrent reader finds no call rather than half of one
        CALL.pack_into(self._memory, at, 0, *call)
        self._cells[at // 8] = sequence + 1

    def read_call(self, place: int, sequence: int) -> Call | None:
        """None if that member has not made the call, or CALLS more since."""
        at = self._call(place, sequence)
        before = self._cells[at // 8]
        _, *call = CALL.unpack_from(self._memory, at)
        if before != sequence + 1 or self._cells[at // 8] != before:
            return None
        return call[0], call[1], call[2]

    def other_call(self, sequence: int) -> int:
        """The place of a member with another call under that number, -1 if none so far."""
        at = self._call(self.place, sequence)
        mine = self._memory[at : at + CALL.size]
        for place in range(len(self.members)):
            at = self._call(place, sequence)
            if self._cells[at // 8] == sequence + 1 and self._memory[at : at + CALL.size] != mine:
                return place
        return -1

    def _call(self, place: int, sequence: int) -> int:
        return place * MEMBER + CELLS * 8 + sequence % CALLS * CALL.size

    # -- rendezvous ----------------------------------------------------------------------------
    def rendezvous(self, call: Any) -> None:
        """Return when all members have arrived. `call` describes the wait to the parent; its
        `all_arrived` is called then."""
        time = call.lane.pace.time
        self._arrive(time)
        parity = TIME + self._phase % 2
        if self.all_arrived:
            self._waiting.notify(*self.members)
        else:
            self._waiting.wait_for_others(call, call.op, call.lane)
        call.all_arrived(
            None if time is None else max(self._times[at + parity] for at in self._places)
        )

    def _arrive(self, time: float | None) -> None:
        """Publish that this member has arrived, at that device time."""
        self._phase += 1
        mine = self._places[self.place]
        if time is not None:
            self._times[mine + TIME + self._phase % 2] = time
        self._cells[mine + PHASE] = self._phase

    @property
    def all_arrived(self) -> bool:
        cells, phase = self._cells, self._phase
        for at in self._places:
            if cells[at + PHASE] < phase:
                return False
        return True

    # -- showing -------------------------------------------------------------------------------
    @contextmanager
    def shown(self, wire: torch.Tensor, call: Any) -> Iterator[Read]:
        """Inside the `with` every member's `wire` (contiguous, on the CPU, of the same form) can be
        read: `read(place, start, target)` copies elements from `start` on into `target`."""
        if wire.nbytes <= self.short:
            rows = self.copies(wire, call)
            yield lambda place, start, target: target.view(-1).copy_(
                rows[place, start : start + target.numel()]
            )
        else:
            yield self.show(wire, call)
            self.rendezvous(call)  # the program may write to it again

    def show(self, wire: torch.Tensor, call: Any) -> Read:
        """`read` as in `shown`, valid until the next rendezvous."""
        cell = ADDRESS + (self._phase + 1) % 2
        self._cells[self.place * MEMBER // 8 + cell] = wire.data_ptr()
        self.rendezvous(call)
        size = wire.element_size()
        addresses = [self._cells[at + cell] for at in self._places]

        def read(place: int, start: int, target: torch.Tensor) -> None:
            address = addresses[place] + start * size
            self._transport.pull(self.members[place], 0, address, target)

        return read

    def keep(self, part: torch.Tensor) -> torch.Tensor:
        """A copy of `part`, overwritten by the next call after a rendezvous."""
        if self._held is None or self._held.shape != part.shape or self._held.dtype != part.dtype:
            self._held = torch.empty_like(part)
            self._left.append(self._held)
        return self._held.copy_(part)

    def copies(self, wire: torch.Tensor, call: Any) -> torch.Tensor:
        """A copy of every member's `wire`, `short` bytes at most, as the rows of one tensor:
        (members, elements)."""
        self._turn += 1
        rows = self._rows(wire)
        rows[self.place].copy_(wire.view(-1))
        self.rendezvous(call)
        return rows

    def _rows(self, wire: torch.Tensor) -> torch.Tensor:
        size, parity = wire.element_size(), self._turn % 2
        whole = self._views.get(wire.dtype)
        if whole is None:
            whole = self._views[wire.dtype] = torch.frombuffer(self._memory, dtype=wire.dtype)
        shape = members, length = len(self.members), wire.numel()
        first = members * (MEMBER + parity * self.short) // size
        return whole.as_strided(shape, (length, 1), first)
