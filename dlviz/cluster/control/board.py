"""The board: a file in shared memory on which the ranks of one host and their parent read each
other.

It carries no tensor. It holds, as plain 64-bit cells that one side writes and others read,

    state     per rank: how often it changed what it does, threads in a posted wait, its process,
              threads that want to be told of ticks, progress
    calls     per rank: its latest collective calls (group, number, operation, dtype, shape)
    ticks     per rank: for each of its messages under way whether it was taken, and on a paced run
              at which device time
    ledger    of the links that several pairs of ranks share, on a paced run (see pacing/ledger.py)

The file is sparse: what nobody uses takes no memory.
"""

from __future__ import annotations

import mmap
import os
import struct

from dlviz.cluster.control.form import FORM

STATE = 16  # cells a rank
ACTIVITY, WAITING, DONE, TOTAL, EPOCH, PID, WANTS, PROBE, UNREAD = range(9)  # cells of a state
CALLS = 128  # collective calls remembered a rank
CALL = struct.Struct("=4q")  # sequence + 1, group, operation, root; then a form
RECORD = CALL.size + FORM.size  # bytes
TICKS = 1 << 16  # messages of one rank under way, at most
TICK = 3  # cells of a tick: taken, (a double) the device time, whether the sender sleeps on it


class Board:
    """Opened by the parent (`create=True`) and by every rank on the same path."""

    def __init__(self, path: str, ranks: int, ledger: int = 0, create: bool = False):
        self.ranks = ranks
        self._calls = ranks * STATE * 8
        self._ticks = self._calls + ranks * CALLS * RECORD
        self.ledger = self._ticks + ranks * TICKS * TICK * 8  # where it begins; `ledger` bytes
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

    def ticks(self, rank: int) -> range:
        """The first cells of the ticks of `rank`'s messages."""
        first = self._ticks // 8 + rank * TICKS * TICK
        return range(first, first + TICKS * TICK, TICK)

    # -- collective calls ----------------------------------------------------------------------
    def post_call(
        self, rank: int, group: int, sequence: int, operation: int, root: int, form: bytes
    ) -> None:
        where = self._call(rank, group, sequence)
        self.cells[where] = 0  # a reader that looks meanwhile finds no call rather than half of one
        CALL.pack_into(self.memory, where * 8, 0, group, operation, root)
        self.memory[where * 8 + CALL.size : where * 8 + RECORD] = form
        self.cells[where] = sequence + 1

    def read_call(self, rank: int, group: int, sequence: int) -> tuple[int, int, bytes] | None:
        """(operation, root, form) of `rank`'s call number `sequence` in `group`, None if it made
        none."""
        where = self._call(rank, group, sequence)
        its_sequence = self.cells[where]
        _, its_group, operation, root = CALL.unpack_from(self.memory, where * 8)
        form = self.memory[where * 8 + CALL.size : where * 8 + RECORD]
        if its_sequence != sequence + 1 or its_group != group or self.cells[where] != its_sequence:
            return None
        return operation, root, form

    def _call(self, rank: int, group: int, sequence: int) -> int:
        """The first cell of the record of a call."""
        slot = (group * 31 + sequence) % CALLS
        return (self._calls + (rank * CALLS + slot) * RECORD) // 8
