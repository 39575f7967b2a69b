"""The board: a file in shared memory through which the ranks of one host and their parent read each
other's state.

It holds no tensors, but plain 64-bit cells that one side writes and others read:

    state     per rank: a count of its activity, threads in a registered wait, its process, threads
              that wait for others to write here, progress
    slots     per rank: for each of its messages in flight a completion flag, on a paced run the
              device time at which it was taken, and whether its sender sleeps on it
    horizon   how far every rank has come, on a paced run (see pacing/horizon.py)
    ledger    of the links that several pairs of ranks share, on a paced run (see pacing/ledger.py)

The file is sparse: unused parts take no memory.
"""

from __future__ import annotations

import mmap
import os

from dlviz.cluster.pacing import horizon

STATE = 16  # cells per rank
ACTIVITY, WAITING, DONE, TOTAL, EPOCH, PID, WANTS, PROBE, UNREAD = range(9)  # cells of a state
SLOTS = 1 << 16  # messages of one rank in flight, at most
SLOT = 3  # cells of a slot: the completion flag, then
WHEN, ASLEEP = 1, 2  # (a double) its device time, and whether the sender sleeps on it


class Board:
    """Opened by the parent (`create=True`) and by every rank on the same path."""

    def __init__(self, path: str, ranks: int, ledger: int = 0, create: bool = False):
        self.ranks = ranks
        self._slots = ranks * STATE * 8
        self.horizon = self._slots + ranks * SLOTS * SLOT * 8  # where it begins
        self.ledger = self.horizon + horizon.size(ranks)  # where it begins; `ledger` bytes
        size = self.ledger + ledger
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        handle = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(handle, size)
            self.memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.cells = memoryview(self.memory).cast("q")
        self.times = memoryview(self.memory).cast("d")

    def close(self) -> None:
        self.cells.release()
        self.times.release()
        self.memory.close()

    # -- state ---------------------------------------------------------------------------------
    def get(self, rank: int, cell: int) -> int:
        return self.cells[rank * STATE + cell]

    def put(self, rank: int, cell: int, value: int) -> None:
        self.cells[rank * STATE + cell] = value

    def completion_slots(self, rank: int) -> range:
        """The first cells, the completion flags, of the slots of `rank`'s messages."""
        first = self._slots // 8 + rank * SLOTS * SLOT
        return range(first, first + SLOTS * SLOT, SLOT)
