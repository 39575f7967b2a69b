"""What a worker returned, in transit to the launching process.

A large tensor is left behind and fetched in pieces: out of the rank's memory, which stays until the
run is over, or where one process may not read another's out of a file that the rank writes. The
file is in shared memory if there is room, else on the disk, and is removed when it is opened.

    rank      result  --pickled-->  parcel  +  large tensors, in memory or in files
    parent    result  <--------------------------'
"""

from __future__ import annotations

import fcntl
import io
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import torch

from dlviz.cluster.parent.start import on_disk
from dlviz.cluster.transport.choose import ENOUGH
from dlviz.cluster.transport.memory import Memory

Find = Callable[[str, str], Any]
FIND: ContextVar[Find | None] = ContextVar("find", default=None)
LARGE = 1 << 20  # bytes of a tensor that is left
PIECE = 1 << 25  # bytes that are fetched at a time


class PackedResult(bytes):
    """A result, pickled; `left` bytes of its tensors are not in it."""

    left = 0


def pack(result: Any, leave: bool, folder: str | None = None) -> PackedResult:
    """The result, pickled. `leave`: large tensors are left, with a `folder` of the run in files,
    else in this process. OSError where these files have no room."""
    file = io.BytesIO()
    pickler = Pickler(file, folder) if leave else cloudpickle.Pickler(file)
    pickler.dump(result)
    parcel = PackedResult(file.getvalue())
    parcel.left = getattr(pickler, "left", 0)
    return parcel


def unpack(parcel: PackedResult, taken: Callable[[int], None]) -> Any:
    """The result. `taken` is called with the bytes of each piece that was fetched."""
    return Unpickler(io.BytesIO(parcel), taken).load()


class Pickler(cloudpickle.Pickler):
    """`left` counts the bytes of tensors that it has left."""

    def __init__(self, file: io.BytesIO, folder: str | None):
        super().__init__(file)
        self.left = 0
        self._folder = folder

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and obj.layout == torch.strided and obj.is_cpu:
            plain = obj.is_contiguous() and not obj.requires_grad and not obj.is_quantized
            if plain and obj.nbytes >= LARGE:
                self.left += obj.nbytes
                where = InMemory(os.getpid(), obj.data_ptr())
                if self._folder is not None:
                    where = write(obj, self._folder)
                return fetch, (where, obj.shape, obj.dtype)
        return super().reducer_override(obj)


class Unpickler(pickle.Unpickler):
    """`find`: what finds a class or function by module and name, for callers that do not trust all
    of them."""

    def __init__(
        self, file: io.BytesIO, taken: Callable[[int], Any] = bool, find: Find | None = None
    ):
        super().__init__(file)
        self._fetch = partial(fetch, taken=taken)
        self._find = find or FIND.get() or super().find_class

    def find_class(self, module: str, name: str) -> Any:
        found = self._find(module, name)
        return self._fetch if found is fetch else found


def load(data: bytes) -> Any:
    """What a rank has sent."""
    return Unpickler(io.BytesIO(data)).load()


@contextmanager
def finding(find: Find) -> Iterator[None]:
    """Unpickle only what `find` returns of what is received inside."""
    before = FIND.set(find)
    try:
        yield
    finally:
        FIND.reset(before)


class InMemory(NamedTuple):
    """Of another process."""

    pid: int
    address: int

    def read(self, pieces: Sequence[torch.Tensor]) -> Iterator[int]:
        """Copy a tensor's bytes into `pieces`, one after the other, and say how many."""
        memory, address = Memory(lambda rank: self.pid), self.address
        for piece in pieces:
            memory.pull(0, 0, address, piece)
            address += len(piece)
            yield len(piece)


class InFile(NamedTuple):
    path: str

    def read(self, pieces: Sequence[torch.Tensor]) -> Iterator[int]:
        with open(self.path, "rb") as file:
            os.unlink(self.path)
            for piece in pieces:
                yield file.readinto(_buffer(piece))


def fetch(
    where: InMemory | InFile,
    shape: torch.Size,
    dtype: torch.dtype,
    taken: Callable[[int], None],
) -> torch.Tensor:
    """A tensor that was left; a Pickler sets all arguments but `taken`."""
    tensor = torch.empty(shape, dtype=dtype)
    for nbytes in where.read(_bytes(tensor).split(PIECE)):
        taken(nbytes)
    return tensor


def write(tensor: torch.Tensor, folder: str) -> InFile:
    """Leave a tensor in a file. One rank writes at a time, so that they know what is free: a rank
    that finds no shared memory for what it has mapped would die."""
    with open(os.path.join(folder, "results"), "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        place = folder
        if shutil.disk_usage(folder).free < tensor.nbytes + ENOUGH:
            place = on_disk(folder)
            os.makedirs(place, mode=0o700, exist_ok=True)
        handle, path = tempfile.mkstemp(prefix="result-", dir=place)
        try:
            with open(handle, "wb", buffering=0) as file:
                for piece in _bytes(tensor).split(PIECE):
                    _write(file, _buffer(piece))
        except OSError as error:
            os.unlink(path)
            raise OSError(
                f"the result has a tensor of {tensor.nbytes} bytes, for which there is no room in "
                f"{place} ({error.strerror}): make room there, or return less."
            ) from None
    return InFile(path)


def _write(file: io.FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


def _buffer(piece: torch.Tensor) -> memoryview:
    array: Any = piece.numpy()
    return memoryview(array)
