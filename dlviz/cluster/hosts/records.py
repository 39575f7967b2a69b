"""Records of changes to one host's memory, which another host repeats in its own.

completed   on a line: a message of that rank was taken or refused; sets its completion flag
shown       in a pipe, for the parents of both hosts: some bytes of a group's file, and where;
            their first cell is written last
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import nan as NAN

from dlviz.cluster.control.pipes import HEAD

CELL = 8  # bytes
COMPLETED, SHOWN = -5, -6  # in place of a channel, like those in pipes.py
COMPLETION = COMPLETED.to_bytes(8, sys.byteorder, signed=True)  # how its record begins


def completed(slot: int, state: int, when: float) -> bytes:
    """`when` is the device time of that, on a paced run."""
    return HEAD.pack(COMPLETED, state, 0, slot, 0, 0, when, b"")


def shown(number: int, first: int, size: int, at: int, data: bytes) -> bytes:
    """`data`, from `at` on in the file of group `number`, whose first member is `first`; the file
    has `size` bytes."""
    return HEAD.pack(SHOWN, at, len(data), number, first, size, NAN, b"") + data


class Cutter:
    """Cuts what was read from a pipe into `shown` records: it has no others."""

    def __init__(self) -> None:
        self._rest = b""

    def shown(self, data: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
        """The arguments of `shown` of each record that is complete."""
        data = self._rest + data if self._rest else data
        start, end = 0, len(data)
        while end - start >= HEAD.size:
            _, at, length, number, first, size, *_ = HEAD.unpack_from(data, start)
            head, after = start + HEAD.size, start + HEAD.size + length
            if after > end:
                break
            yield number, first, size, at, data[head:after]
            start = after
        self._rest = data[start:]
