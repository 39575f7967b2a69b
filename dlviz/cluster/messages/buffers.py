"""A rank's buffers to receive into, and its sends in flight."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from itertools import islice
from math import nan as NAN
from typing import Any

import torch

from dlviz.cluster.control.board import ASLEEP, WHEN, Board
from dlviz.cluster.control.form import empty
from dlviz.cluster.control.pipes import TAKEN
from dlviz.cluster.memory import label

SOME = 64  # slots that a rank begins to use at a time


class BufferPool:
    """Buffers for messages that cannot go straight into their tensor, reused by the next one."""

    def __init__(self) -> None:
        self._free: dict[Hashable, list[torch.Tensor]] = {}  # by form, or dtype and bytes

    def borrow(self, form: bytes) -> torch.Tensor:
        free = self._taken(form)
        return _new(empty(form, torch.device("cpu"))) if free is None else free

    def piece(self, dtype: torch.dtype, nbytes: int) -> torch.Tensor:
        free = self._taken((dtype, nbytes))
        if free is None:
            return _new(torch.empty(nbytes // dtype.itemsize, dtype=dtype))
        return free

    def _taken(self, what: Hashable) -> torch.Tensor | None:
        try:
            return self._free[what].pop()  # in one step: lanes of one rank borrow at the same time
        except (KeyError, IndexError):
            return None

    def give_back(self, buffer: torch.Tensor, what: Hashable) -> None:
        """`what` is the form it was borrowed for, or its dtype and bytes."""
        if len(self._free) > 32:
            self._free.clear()
        self._free.setdefault(what, []).append(buffer)


def _new(buffer: torch.Tensor) -> torch.Tensor:
    label("communication", buffer)
    return buffer


class OutstandingSends:
    """The messages of one rank that their receivers have not taken, by slot: their bytes stay in
    place until then."""

    def __init__(self, board: Board, rank: int):
        self._board = board
        self.in_flight: dict[int, Any] = {}
        self._free: list[int] = []
        self._unused = iter(board.completion_slots(rank))
        self._lock = threading.Lock()  # an unclaimed send is ended once

    def begin(self, request: Any) -> bool:
        """Give a send its slot; False if none is left."""
        try:
            slot = request.slot = self._free.pop()  # in one step
        except IndexError:
            return self._find() and self.begin(request)
        board = self._board
        board.cells[slot] = board.cells[slot + ASLEEP] = 0
        board.times[slot + WHEN] = NAN
        self.in_flight[slot] = request
        return True

    def claim(self, request: Any) -> None:
        """Its thread waits for it from now on, and ends it."""
        with self._lock:
            request.awaited = True

    def end(self, request: Any) -> None:
        """It was taken: the program may write to its tensor again. Its thread has claimed it."""
        slot, request.slot = request.slot, 0
        del self.in_flight[slot]
        if request.wire is not None:
            request.release(slot)
        self._free.append(slot)

    def _find(self) -> bool:
        """Find free slots: of sends that were taken and for which nobody waits, or new ones."""
        cells = self._board.cells
        with self._lock:
            for slot, request in list(self.in_flight.items()):
                if cells[slot] == TAKEN and not request.awaited:
                    self.end(request)
            if not self._free:
                self._free += islice(self._unused, SOME)
            return bool(self._free)
