"""The board: a file in shared memory on which the ranks of one host and their parent read each
other.

It carries no tensor. It holds, as plain 64-bit cells that one side writes and others read,

    state     per rank: how often it changed what it does, threads in a posted wait, progress
    calls     per rank: its latest collective calls (group, number, operation, dtype, shape)
    mail      per ordered pair of ranks: a ring of headers of the messages that were sent, and a
              ring of notes on the receives that were posted before their message came
    links     when each link that several pairs share is next free (device seconds)

A header is written before its message is sent and a note before its receive is posted, and each
side then looks for the other's: whoever comes second sees whether message and tensor fit, before
any byte moves.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import NamedTuple

import torch

STATE = 16  # cells a rank
ACTIVITY, WAITING, DONE, TOTAL, EPOCH = range(5)  # cells of a rank's state
CALLS = 128  # collective calls remembered a rank
CALL = struct.Struct("=16q")  # sequence, group, operation, dtype, root, dims, 8 sizes (2 to spare)
SLOTS = 256  # headers or notes under way in one direction
# tag, index, dtype, nbytes, dims, flags, wall; stamp, sent; 8 sizes
MAIL = struct.Struct("=7q2d8q")
MAX_DIMS = 8

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


class Mail(NamedTuple):
    """A header (of a message sent) or a note (of a receive posted). `stamp` and `sent` are device
    seconds, NaN on the wall clock."""

    tag: int
    index: int  # the how-manieth message of this pair and tag
    dtype: int
    nbytes: int
    shape: tuple[int, ...]
    flags: int  # SYNC: the sender waits until this is taken; TAKEN: a note that says so
    wall: int  # when it was sent (perf_counter_ns)
    stamp: float = math.nan  # when the message arrives; of a TAKEN note, when it was taken
    sent: float = math.nan

    def describe(self) -> str:
        return describe(self.shape, self.dtype)


SYNC, TAKEN = 1, 2


def code_of(tensor: torch.Tensor) -> int:
    code = CODES.get(tensor.dtype)
    if code is None:
        name = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"a tensor of {name} cannot be sent: convert it, to float32 say.")
    return code


def describe(shape: tuple[int, ...], code: int) -> str:
    return f"shape {tuple(shape)} {str(DTYPES[code]).removeprefix('torch.')}"


def elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


class Board:
    """Opened by the parent (`create=True`) and by every rank on the same path."""

    def __init__(self, path: str, ranks: int, links: int = 0, create: bool = False):
        self.ranks = ranks
        ring = 16 + SLOTS * MAIL.size
        self._calls = ranks * STATE * 8
        self._mail = self._calls + ranks * CALLS * CALL.size
        self._ring = ring
        self._links = self._mail + 2 * ranks * ranks * ring
        size = self._links + max(links, 1) * 8
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        handle = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(handle, size)
            self.memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.cells = memoryview(self.memory).cast("q")
        self.links = memoryview(self.memory)[self._links : self._links + max(links, 1) * 8].cast(
            "d"
        )

    def close(self) -> None:
        self.cells.release()
        self.links.release()
        self.memory.close()

    # -- state ---------------------------------------------------------------------------------
    def get(self, rank: int, cell: int) -> int:
        return self.cells[rank * STATE + cell]

    def put(self, rank: int, cell: int, value: int) -> None:
        self.cells[rank * STATE + cell] = value

    # -- collective calls ----------------------------------------------------------------------
    def post_call(
        self,
        rank: int,
        group: int,
        sequence: int,
        operation: int,
        dtype: int,
        root: int,
        shape: tuple[int, ...],
    ) -> None:
        where = self._call(rank, group, sequence)
        self.cells[where] = 0  # a reader that looks meanwhile finds no call rather than half of one
        sizes = shape[:MAX_DIMS]
        record = (0, group, operation, dtype, root, len(sizes), *sizes, *[0] * (10 - len(sizes)))
        CALL.pack_into(self.memory, where * 8, *record)
        self.cells[where] = sequence + 1

    def read_call(
        self, rank: int, group: int, sequence: int
    ) -> tuple[int, int, int, tuple[int, ...]] | None:
        """(operation, dtype, root, shape) of `rank`'s call number `sequence` in `group`, None if
        it made none."""
        where = self._call(rank, group, sequence)
        its_sequence = self.cells[where]
        _, its_group, operation, dtype, root, dims, *sizes = CALL.unpack_from(
            self.memory, where * 8
        )
        if its_sequence != sequence + 1 or its_group != group or self.cells[where] != its_sequence:
            return None
        return operation, dtype, root, tuple(sizes[:dims])

    def _call(self, rank: int, group: int, sequence: int) -> int:
        """The first cell of the record of a call."""
        slot = (group * 31 + sequence) % CALLS
        return (self._calls + (rank * CALLS + slot) * CALL.size) // 8

    # -- mail ----------------------------------------------------------------------------------
    def ring(self, src: int, dst: int, notes: bool = False) -> Ring:
        """The ring that `src` writes and `dst` reads."""
        pair = (src * self.ranks + dst) * 2 + notes
        return Ring(self.memory, self.cells, self._mail + pair * self._ring)


class Ring:
    """Headers or notes from one rank to one other, in order; one writer and one reader."""

    def __init__(self, memory: mmap.mmap, cells: memoryview, start: int):
        self.memory = memory
        self.cells = cells
        self.written = start // 8
        self.read = start // 8 + 1
        self.slots = start + 16

    def full(self) -> bool:
        return self.cells[self.written] - self.cells[self.read] >= SLOTS

    def write(self, mail: Mail) -> None:
        number = self.cells[self.written]
        shape = mail.shape[:MAX_DIMS] if len(mail.shape) <= MAX_DIMS else (elements(mail.shape),)
        MAIL.pack_into(
            self.memory,
            self.slots + number % SLOTS * MAIL.size,
            mail.tag, mail.index, mail.dtype, mail.nbytes, len(shape), mail.flags, mail.wall,
            mail.stamp, mail.sent,
            *shape, *[0] * (MAX_DIMS - len(shape)),
        )  # fmt: skip
        self.cells[self.written] = number + 1

    def drain(self) -> list[Mail]:
        found = []
        number, written = self.cells[self.read], self.cells[self.written]
        while number < written:
            tag, index, dtype, nbytes, dims, flags, wall, stamp, sent, *sizes = MAIL.unpack_from(
                self.memory, self.slots + number % SLOTS * MAIL.size
            )
            found.append(
                Mail(tag, index, dtype, nbytes, tuple(sizes[:dims]), flags, wall, stamp, sent)
            )
            number += 1
        if found:
            self.cells[self.read] = number
        return found
