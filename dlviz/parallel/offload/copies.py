"""A direction of the link between host and device: a lane that copies, one layer after the other.

    h2d |layer 0|layer 1|      |layer 2|
    d2h                 |layer 1|layer 0|

On a GPU the copies run on a stream of their own, from and to pinned memory of the host; on a CPU
they are copies of memory between two storages. With a `bandwidth` they take bytes / bandwidth: on a
paced run of the device's clock, else the lane sleeps for what the copy was quicker.
"""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter, sleep
from typing import Any

import torch

from dlviz.cluster import Comm, Handle

Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # destination, source


class Copies:
    """The lane `name` of this rank, on which all ranks of `comm` make one; `nbytes`: how many it
    was given to copy."""

    def __init__(self, comm: Comm, name: str, bandwidth: float | None):
        self._lane = comm.lane(name)
        self._bandwidth = bandwidth
        self._on_gpu = comm.device.type == "cuda"
        self._stream = torch.cuda.Stream(comm.device) if self._on_gpu else None
        self.nbytes = 0

    def copy(self, pairs: Pairs, name: str, after: Handle | None = None) -> Handle:
        """Start to copy the `pairs` once `after` is over. The list is emptied when they are copied,
        so that the sources can be freed."""
        nbytes = sum(source.nbytes for _, source in pairs)
        self.nbytes += nbytes
        ready = torch.cuda.current_stream().record_event() if self._on_gpu else None
        return self._lane.submit(self._copy, pairs, name, nbytes, ready, after)

    def close(self) -> None:
        self._lane.close()

    def _copy(
        self, comm: Comm, pairs: Pairs, name: str, nbytes: int, ready: Any, after: Handle | None
    ) -> None:
        if after is not None:
            after.wait()
        seconds = None if self._bandwidth is None else nbytes / self._bandwidth
        stream = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        with stream, torch.no_grad(), comm.compute("copy", name, seconds, nbytes=nbytes):
            began = perf_counter()
            if self._stream is not None:
                self._stream.wait_event(ready)  # the math before it, which wrote the source
            for to, source in pairs:
                to.copy_(source, non_blocking=self._on_gpu)
            if self._stream is not None:
                self._stream.synchronize()  # the lane alone waits
            pairs.clear()  # not before, as others may reuse the memory
            if seconds is not None and comm.machine is None:
                sleep(max(0.0, began + seconds - perf_counter()))
