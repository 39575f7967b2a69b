"""Messages through memory: the receiver copies the bytes straight out of the sender's, with one
system call (Linux). One copy, no buffer, and nothing for the sender to do."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Collection

import torch

from dlviz.cluster.transport import Transport

SPANS = struct.Struct("=4q")  # here, bytes; there, bytes
SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(2**64 - 1)


class Memory:
    name = "memory"
    pieces = reaches = True
    device = None

    def __init__(self, pid_of: Callable[[int], int]):
        libc = ctypes.CDLL(None, use_errno=True)
        self._read = libc.process_vm_readv
        pointer, count = ctypes.c_void_p, ctypes.c_ulong
        self._read.argtypes = [ctypes.c_int, pointer, count, pointer, count, count]
        self._read.restype = ctypes.c_ssize_t
        libc.prctl(SET_PTRACER, ANYBODY, 0, 0, 0)  # where only a parent may read (Ubuntu)
        self._pid_of = pid_of
        self._pids: dict[int, int] = {}
        self._mine = _Arguments()

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        return wire.data_ptr()

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        pid = self._pids.get(src) or self._pids.setdefault(src, self._pid_of(src))
        spans, at, into, left = self._mine.spans, self._mine.at, target.data_ptr(), target.nbytes
        while True:
            SPANS.pack_into(spans, 0, into, left, address, left)
            got = self._read(pid, at, 1, at + 16, 1, 0)
            if got == left:
                return
            if got <= 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            address, into, left = address + got, into + got, left - got  # 2 GiB at a time

    def release(self, slot: int) -> None:
        pass

    def among(self, members: Collection[int]) -> Transport:
        return self


class _Arguments(threading.local):
    def __init__(self) -> None:
        self.spans = ctypes.create_string_buffer(SPANS.size)
        self.at = ctypes.addressof(self.spans)
