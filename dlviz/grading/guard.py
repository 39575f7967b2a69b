"""A Comm on which luck does not help: what a program may not rely on happens the unlucky way.

Between `isend` and `wait()` a message may leave at any time, and between `irecv` and `wait()` it
may land at any time. Guarded, it leaves at `isend` and lands at `wait()`, so that a program that
touches a tensor in between gives the same on every run; and what it did is noted.
"""

from __future__ import annotations

from typing import Any

import torch

from dlviz.cluster import Comm
from dlviz.cluster.waits import show_line
from dlviz.trace.recorder import caller


class Guard:
    """Stands between a program and its Comm's `isend` and `irecv` (and so `sendrecv`)."""

    def __init__(self, comm: Comm):
        self.rank = comm.rank
        self.requests: list[Sending | Receiving] = []
        self._isend, self._irecv = comm.isend, comm.irecv
        comm.isend, comm.irecv = self.isend, self.irecv  # pyright: ignore[reportAttributeAccessIssue]

    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> Sending:
        left = tensor.detach().clone()
        request = Sending(tensor, left, self._isend(left, dst, tag))
        self.requests.append(request)
        return request

    def irecv(self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy") -> Receiving:
        landing = torch.zeros_like(tensor)
        request = Receiving(tensor, landing, self._irecv(landing, src, tag, op))
        request.adds = op == "add"
        self.requests.append(request)
        return request

    def faults(self) -> list[str]:
        """What the program did that it may not do, a sentence each. Ask when it is done."""
        told = [request.fault() for request in self.requests]
        return [f"rank {self.rank} {fault}" for fault in dict.fromkeys(told) if fault]


class _Request:
    waited = False

    def __init__(self, tensor: torch.Tensor, copy: torch.Tensor, request: Any):
        file, line = caller(0)
        self.where = f"{file}:{line}"
        self.tensor = tensor
        self.copy = copy
        self.request = request


class Sending(_Request):
    written = False

    def wait(self) -> None:
        self.written |= not self.waited and not _same(self.tensor, self.copy)
        self.waited = True
        self.request.wait()

    def fault(self) -> str:
        if self.written:
            return (
                "wrote into a tensor that was still being sent; the send began at "
                f"{show_line(self.where)}"
            )
        return "" if self.waited else f"never waited for the send at {show_line(self.where)}"


class Receiving(_Request):
    adds = False

    def wait(self) -> None:
        self.request.wait()
        if not self.waited:
            target = self.tensor.detach()
            target.add_(self.copy) if self.adds else target.copy_(self.copy)
        self.waited = True

    def fault(self) -> str:
        return "" if self.waited else f"never waited for the receive at {show_line(self.where)}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
