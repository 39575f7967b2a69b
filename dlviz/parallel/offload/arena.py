"""An arena: the memory of the host or of the device, with a capacity, and who holds what of it.

    host    | values | gradients | sums | the rule's state |        capacity: host_bytes
    device  | layer 3 | layer 4 |  activations, gradients  |        capacity: device_bytes

On a machine without a GPU both lie in the same memory, where nothing would stop a program from
reading on the device what was never copied there. So an arena is a dispatch mode: inside its `with`
it sees every operation, refuses a tensor of the other arena, and counts each storage that comes to
be, once, until the storage is freed or resized to 0.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dlviz.cluster import Comm

SHOWN = 4  # holders that an error names


@dataclass
class _Block:
    """A storage: how many bytes it holds, what these are, and of which layer's flat vector."""

    storage: weakref.ref[Any]
    nbytes: int
    what: str
    layer: Any = None


class Arena(TorchDispatchMode):
    """The memory `name` ("host" or "device") of one rank on `place`: `held` bytes now, `peak` at
    most. An operation inside its `with` raises ValueError where it reads a tensor of the `other`
    arena. What does not fit into `capacity` bytes raises ValueError with the bytes that are missing
    and who holds the most. `record` is given what is held at each new peak and change of a size."""

    def __init__(
        self,
        name: str,
        place: torch.device,
        capacity: int | None = None,
        record: Callable[[int], Any] = lambda held: None,
    ):
        super().__init__()
        self.name, self.place, self.capacity, self._record = name, place, capacity, record
        self.held = self.peak = 0
        self.other = self  # until `arenas` sets it
        self.before_read: Callable[[Any], None] = lambda layer: None
        self.computes = f"what is computed on the {name}"
        self._blocks: dict[int, _Block] = {}
        self._freed: deque[tuple[int, _Block]] = deque()  # by whichever thread drops the last view

    def empty(self, length: int, dtype: torch.dtype, what: str, layer: Any = None) -> torch.Tensor:
        """A flat tensor, called `what` in errors; an operation that reads one of a `layer` calls
        `before_read` with that first."""
        self._fit(length * dtype.itemsize, what)
        pinned = self.place.type == "cpu" and self.other.place.type == "cuda"
        tensor = torch.empty(length, dtype=dtype, device=self.place, pin_memory=pinned)
        self._hold(tensor.untyped_storage(), what, layer)
        return tensor

    def resize(self, tensor: torch.Tensor, nbytes: int) -> None:
        """Give a tensor of `empty` so many bytes, 0 to free them. Its views stay what they are."""
        storage = tensor.untyped_storage()
        block = self._blocks[storage._cdata]
        self._fit(nbytes - block.nbytes, block.what)
        storage.resize_(nbytes)
        self._grow(nbytes - block.nbytes)
        block.nbytes = nbytes
        self._record(self.held)

    def holds(self, tensor: torch.Tensor) -> _Block | None:
        """The block of a tensor that lies here."""
        storage = tensor.untyped_storage()
        block = self._blocks.get(storage._cdata)
        # The number may be that of a storage that was freed.
        return block if block is not None and block.storage() is storage else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._drain()
        read = [t for t in tree_leaves((args, kwargs)) if _has_storage(t)]
        for tensor in read:
            self._check(func, tensor)
        for tensor in read:  # after all: one may have made room for another
            if tensor.numel() and not tensor.untyped_storage().nbytes():
                blocks = filter(None, map(self.holds, read))
                what = dict.fromkeys(block.what for block in blocks if block.layer)
                raise ValueError(
                    f"{func} reads {' and '.join(what)} at once, and the {self.name}"
                    " has too few buffers to hold them together: raise prefetch=."
                )
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if _has_storage(tensor) and self.holds(tensor) is None:
                storage = tensor.untyped_storage()
                self._fit(storage.nbytes(), f"the output of {func}")
                self._hold(storage, self.computes)
        return out

    def _check(self, func: Any, tensor: torch.Tensor) -> None:
        own = self.holds(tensor)
        if own is not None and own.layer is not None:
            self.before_read(own.layer)
        block = self.other.holds(tensor) if own is None else None
        if block is not None:
            named = block.layer and block.layer.name_at(tensor.storage_offset())
            raise ValueError(
                f"{func} on the {self.name} reads {named or 'a tensor'} of {block.what}, which lies"
                f" on the {self.other.name}: copy it first."
            )

    def _fit(self, nbytes: int, what: str) -> None:
        self._drain()
        missing = self.held + nbytes - (self.capacity or 0)
        if self.capacity is None or nbytes <= 0 or missing <= 0:
            return
        by = Counter[str]()
        for block in self._blocks.values():
            by[block.what] += block.nbytes
        held = [f"{what} {most:,}" for what, most in by.most_common(SHOWN) if most]
        raise ValueError(
            f"{what}, {nbytes:,} bytes, does not fit on the {self.name}: {missing:,} bytes are "
            f"missing of {self.name}_bytes={self.capacity}, of which {', '.join(held) or 'nothing'}"
            f" {'are' if len(held) > 1 else 'is'} held."
        )

    def _hold(self, storage: Any, what: str, layer: Any = None) -> None:
        self._drain()
        key = storage._cdata
        ref = weakref.ref(storage, lambda _: self._freed.append((key, block)))
        block = self._blocks[key] = _Block(ref, storage.nbytes(), what, layer)
        self._grow(block.nbytes)

    def _grow(self, nbytes: int) -> None:
        self.held += nbytes
        if self.held > self.peak:
            self.peak = self.held
            self._record(self.held)

    def _drain(self) -> None:
        """Count what was freed meanwhile."""
        while self._freed:
            key, block = self._freed.popleft()
            self.held -= block.nbytes
            if self._blocks.get(key) is block:
                del self._blocks[key]


def arenas(comm: Comm, device_bytes: int | None, host_bytes: int | None) -> tuple[Arena, Arena]:
    """The arenas of this rank's device and host, each of which refuses tensors of the other."""
    device = Arena("device", comm.device, device_bytes, partial(comm.memory, "device"))
    host = Arena("host", torch.device("cpu"), host_bytes, partial(comm.memory, "host"))
    device.other, host.other = host, device
    return device, host


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
