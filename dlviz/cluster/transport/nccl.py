"""NCCL: messages and collectives between GPUs, by torch's own process groups.

A group of all ranks for the messages of each (see devices.py), one for the collectives of each
Comm. Each has a communicator and a stream. What is launched here runs on streams beside those of
the program: after what the calling thread has launched so far, if it reads that.

Untested: it has not run on GPUs yet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from dlviz.cluster.control.form import empty

SERIAL = "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING"  # of sends in a row: as meant here


def have_own(store: Any, rank: int, ranks: int, device: torch.device) -> bool:
    """Whether NCCL is here and each of the ranks, which all call this, has a GPU of its own."""
    here = dist.is_nccl_available() and device.type == "cuda"
    mine = str(torch.cuda.get_device_properties(device).uuid) if here else ""
    store.set(f"gpu {rank}", mine)
    found = [store.get(f"gpu {each}").decode() for each in range(ranks)]
    return all(found) and len(set(found)) == ranks


class Nccl:
    """A DeviceGroup, made by all ranks together."""

    name = "NCCL"

    def __init__(self, store: Any, rank: int, ranks: int, device: torch.device):
        os.environ.setdefault(SERIAL, "false")
        self.device = device
        self._store = store
        self._rank = rank
        self._mine = threading.local()
        everybody = tuple(range(ranks))
        self._from = [self._connect(f"from {src}", everybody) for src in everybody]
        for src in everybody:  # in the same order everywhere: nobody waits for a later one
            self._first_messages(src, [dst for dst in everybody if dst != src])

    def mark(self) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def send(self, wire: torch.Tensor, dst: int, slot: int, after: Any) -> Any:
        self._stream.wait_event(after)
        with torch.cuda.stream(self._stream):
            return wire, self._from[self._rank].send([bytes_of(wire)], dst, 0)

    def receive(self, form: bytes, src: int, slot: int) -> torch.Tensor:
        with torch.cuda.stream(self._stream):
            landed = empty(form, self.device)
            self._complete(lambda: self._from[src].recv([bytes_of(landed)], src, 0))
        return landed

    def used(self, landed: torch.Tensor) -> None:
        landed.record_stream(torch.cuda.current_stream(self.device))

    def join(self, name: str, members: tuple[int, ...]) -> Any:
        group = self._connect(name, members)
        with torch.cuda.stream(self._stream):
            self._complete(lambda: group.allreduce([torch.zeros(1, device=self.device)]))
        return group

    def carry(self, start: Callable[[], Any]) -> None:
        self._stream.wait_event(self.mark())
        with torch.cuda.stream(self._stream):
            self._complete(start)

    @property
    def _stream(self) -> Any:
        """The calling thread's, beside its program's."""
        if not hasattr(self._mine, "stream"):
            self._mine.stream = torch.cuda.Stream(self.device)
        return self._mine.stream

    def _complete(self, start: Callable[[], Any]) -> None:
        """Start something on the current stream and sleep until it is over."""
        over = torch.cuda.Event(blocking=True)
        try:
            start().wait()  # the stream waits, not the host
        except dist.DistBackendError as error:
            raise OSError(str(error)) from None
        over.record()
        over.synchronize()

    def _connect(self, name: str, members: tuple[int, ...]) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(days=1)
        store = PrefixStore(f"nccl {name}:{','.join(map(str, members))}", self._store)
        place = members.index(self._rank)
        group = dist.ProcessGroupNCCL(store, place, len(members), options)
        group.eager_connect_single_device(self.device)
        return group

    def _first_messages(self, src: int, others: list[int]) -> None:
        """Send a first message from `src` to each of the others: NCCL connects the two then."""
        byte, group = torch.zeros(1, dtype=torch.uint8, device=self.device), self._from[src]
        for dst in others:
            if self._rank == src:
                self._complete(lambda dst=dst: group.send([byte], dst, 0))
            elif self._rank == dst:
                self._complete(lambda: group.recv([byte], src, 0))


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor: NCCL does not know every dtype."""
    return tensor.view(-1).view(torch.uint8)
