"""The board: a file in shared memory on which the ranks of one host and their parent read each
other.

It carries no tensor. It holds, as plain 64-bit cells that one side writes and others read,

    state     per rank: how often it changed what it does, threads in a posted wait, progress
    calls     per rank: its latest collective calls (group, number, operation, dtype, shape)
    mail      per ordered pair of ranks: a ring of headers of the messages that were sent, and a
              table of notes on the receives that were posted before their message came
    ledger    of the links that several pairs of ranks share, on a paced run (see ledger.py)

A header is written before its message is sent and a note before its receive is posted, and each
side then looks for the other's: whoever comes second sees whether message and tensor fit, before
any byte moves.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import threading
from functools import lru_cache
from typing import NamedTuple

import torch

from dlviz.cluster import ledger

STATE = 16  # cells a rank
ACTIVITY, WAITING, DONE, TOTAL, EPOCH = range(5)  # cells of a rank's state
CALLS = 128  # collective calls remembered a rank
CALL = struct.Struct("=4q")  # sequence + 1, group, operation, root; then a form
SLOTS = 256  # headers, and notes, under way in one direction
HEAD = struct.Struct("=5qd")  # tag, index, flags, wall, entry; stamp; then a form
KEY = struct.Struct("=2qd")  # of a note: tag, index + 1, ahead; then a form
FORM = struct.Struct("=11q")  # dtype, nbytes, dims, 8 sizes
MAX_DIMS = 8
RECORD = CALL.size + FORM.size  # bytes
HEADER, NOTE = HEAD.size + FORM.size, KEY.size + FORM.size  # bytes

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


class Mail(NamedTuple):
    """The header of a message."""

    tag: int
    index: int  # the how-manieth message of this pair and tag
    flags: int  # SYNC: the sender waits until this is taken
    wall: int  # when it was sent (perf_counter_ns)
    entry: int  # its place in the ledger while that says more than `stamp`, else -1
    stamp: float  # the earliest device time at which it can arrive, NaN on the wall clock
    form: bytes  # dtype and shape

    @property
    def nbytes(self) -> int:
        return size_of(self.form)


SYNC = 1


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], dtype: torch.dtype) -> bytes:
    """A tensor's dtype, size and shape as they are written on the board. ValueError for a dtype
    that cannot be sent."""
    if dtype not in CODES:
        name = str(dtype).removeprefix("torch.")
        raise ValueError(f"a tensor of {name} cannot be sent: convert it, to float32 say.")
    count = math.prod(shape)
    sizes = tuple(shape) if len(shape) <= MAX_DIMS else (count,)
    nothing = (0,) * (MAX_DIMS - len(sizes))
    return FORM.pack(CODES[dtype], count * dtype.itemsize, len(sizes), *sizes, *nothing)


def size_of(form: bytes) -> int:
    """Bytes of the tensor."""
    return FORM.unpack(form)[1]


def fits(sent: bytes, posted: bytes) -> bool:
    """Whether a message of one form can be received into a tensor of the other: the same dtype and
    as many bytes."""
    return sent[:16] == posted[:16]


def describe(form: bytes) -> str:
    code, _, dims, *sizes = FORM.unpack(form)
    name = str(DTYPES[code]).removeprefix("torch.")
    return f"shape {tuple(sizes[:dims])} {name}"


def empty(form: bytes, device: torch.device) -> torch.Tensor:
    """A tensor of that form, with nothing in it yet."""
    code, _, dims, *sizes = FORM.unpack(form)
    return torch.empty(sizes[:dims], dtype=DTYPES[code], device=device)


class Board:
    """Opened by the parent (`create=True`) and by every rank on the same path."""

    def __init__(self, path: str, ranks: int, links: int = 0, create: bool = False):
        self.ranks = ranks
        self._notes = 16 + SLOTS * HEADER
        self._pair = self._notes + SLOTS * NOTE
        self._calls = ranks * STATE * 8
        self._mail = self._calls + ranks * CALLS * RECORD
        self.ledger = self._mail + ranks * ranks * self._pair  # where it begins
        size = self.ledger + ledger.size(ranks, links)
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        handle = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(handle, size)
            self.memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.cells = memoryview(self.memory).cast("q")

    def close(self) -> None:
        self.cells.release()
        self.memory.close()

    # -- state ---------------------------------------------------------------------------------
    def get(self, rank: int, cell: int) -> int:
        return self.cells[rank * STATE + cell]

    def put(self, rank: int, cell: int, value: int) -> None:
        self.cells[rank * STATE + cell] = value

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

    # -- mail ----------------------------------------------------------------------------------
    def headers(self, src: int, dst: int) -> Headers:
        """Of messages from `src` to `dst`: written by `src`, read by `dst`."""
        return Headers(self, self._mail + (src * self.ranks + dst) * self._pair)

    def notes(self, src: int, dst: int) -> Notes:
        """On receives of messages from `src` to `dst`: written by `dst`, read by `src`."""
        return Notes(self, self._mail + (src * self.ranks + dst) * self._pair + self._notes)


class Headers:
    """A ring of headers, in the order in which the messages were sent."""

    def __init__(self, board: Board, start: int):
        self.memory = board.memory
        self.cells = board.cells
        self.written = start // 8
        self.read = start // 8 + 1
        self.slots = start + 16
        self._lock = threading.Lock()  # lanes of one rank write to one ring

    def empty(self) -> bool:
        return self.cells[self.written] == self.cells[self.read]

    def full(self) -> bool:
        return self.cells[self.written] - self.cells[self.read] >= SLOTS

    def write(
        self, tag: int, index: int, flags: int, wall: int, entry: int, stamp: float, form: bytes
    ) -> None:
        with self._lock:
            number = self.cells[self.written]
            at = self.slots + number % SLOTS * HEADER
            HEAD.pack_into(self.memory, at, tag, index, flags, wall, entry, stamp)
            self.memory[at + HEAD.size : at + HEADER] = form
            self.cells[self.written] = number + 1

    def drain(self) -> list[Mail]:
        found = []
        number, written = self.cells[self.read], self.cells[self.written]
        while number < written:
            at = self.slots + number % SLOTS * HEADER
            form = self.memory[at + HEAD.size : at + HEADER]
            found.append(Mail._make((*HEAD.unpack_from(self.memory, at), form)))
            number += 1
        self.cells[self.read] = number
        return found


class Notes:
    """A table of notes: of the receives that are posted and have no message yet, the latest in
    each slot. `ahead` is the device time of a receive that stands whatever its rank does next
    (irecv); NaN for one that its rank waits in, and on the wall clock."""

    def __init__(self, board: Board, start: int):
        self.memory = board.memory
        self.slots = start

    def write(self, tag: int, index: int, form: bytes, ahead: float) -> None:
        at = self.slots + (tag + index) % SLOTS * NOTE
        self.memory[at + KEY.size : at + NOTE] = form
        KEY.pack_into(self.memory, at, tag, index + 1, ahead)

    def read(self, tag: int, index: int) -> tuple[bytes, float] | None:
        """The form and `ahead` of a note."""
        at = self.slots + (tag + index) % SLOTS * NOTE
        its_tag, its_number, ahead = KEY.unpack_from(self.memory, at)
        if (its_tag, its_number) != (tag, index + 1):
            return None
        return self.memory[at + KEY.size : at + NOTE], ahead
