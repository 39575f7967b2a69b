"""Messages through files in memory, where one process may not read another's (macOS, a container
that forbids it): each rank writes what it sends into a file of its own, and the receiver reads it.

    file of rank r    | block | block | free | block |     a block for each message in flight
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Collection
from typing import Any

import torch

from dlviz.cluster.transport import Transport

SHORTEST = 12  # log2 of the bytes of a block


class Files:
    name = "files"
    pieces, reaches = True, False
    device = None

    def __init__(self, folder: str, rank: int):
        self._name = os.path.join(folder, "bytes-{}").format
        self._files: dict[int, int] = {}
        self._own = self._file(rank)
        self._blocks: dict[int, tuple[int, int]] = {}  # by slot: where, how long
        self._free: dict[int, list[int]] = {}  # by length
        self._end = 0
        self._lock = threading.Lock()

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        length = 1 << max(SHORTEST, (wire.nbytes - 1).bit_length())
        with self._lock:
            free = self._free.setdefault(length, [])
            if free:
                where = free.pop()
            else:
                where, self._end = self._end, self._end + length
            self._blocks[slot] = where, length
        if wire.nbytes:
            self._write(wire, where)
        return where

    def _write(self, wire: torch.Tensor, where: int) -> None:
        data = memoryview(_bytes(wire))
        while data:
            done = os.pwrite(self._own, data, where)
            data, where = data[done:], where + done

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        file, data = self._files.get(src) or self._file(src), memoryview(_bytes(target)).cast("B")
        while data:
            got = os.preadv(file, [data], address)
            if got <= 0:
                raise OSError(f"rank {src} has cut off its file")
            data, address = data[got:], address + got

    def release(self, slot: int) -> None:
        with self._lock:
            where, length = self._blocks.pop(slot)
            self._free[length].append(where)

    def among(self, members: Collection[int]) -> Transport:
        return self

    def _file(self, rank: int) -> int:
        handle = os.open(self._name(rank), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._files.setdefault(rank, handle)


def _bytes(tensor: torch.Tensor) -> Any:
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
