"""Sends and receives under way.

A request ends with `wait()`. That is where a rank waits for another, so it is there that the wait
is posted for the parent to see, recorded, and on a paced run held to the device clock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import torch

from dlviz.cluster.waits import TAG_BITS, TAGS

if TYPE_CHECKING:
    from dlviz.cluster.process import Process

POLL = 2e-5  # s between two looks at the board
# What becomes of a message where it lands.
REDUCE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copy": torch.Tensor.copy_,
    "add": torch.Tensor.add_,
    "max": lambda kept, came: torch.maximum(kept, came, out=kept),
}
ACK = 1 << 30  # tag of the message that tells a synchronous sender when its message was taken


class Waited(Protocol):
    """What a thread waits for."""

    def details(self) -> dict[str, Any]: ...


class PeerLost(ConnectionError):
    """The process at the other end has gone; what happened to it is the news, not this."""


class Request:
    """A send or receive under way. `wait()` ends it: the tensor may then be reused, or holds the
    message."""

    __slots__ = ("_process", "_wire", "_work", "index", "peer", "tag", "tensor")

    def __init__(
        self,
        process: Process,
        peer: int,
        tag: int,
        index: int,
        tensor: torch.Tensor,
        wire: torch.Tensor,
    ):
        self._process = process
        self._wire = wire  # what gloo sends or fills: contiguous and on the CPU
        self._work: Any = None
        self.peer = peer
        self.tag = tag
        self.index = index
        self.tensor = tensor
        process.pending.add(self)  # gloo needs the tensor alive until the message has gone

    def details(self) -> dict[str, Any]:
        """Of a wait for it: what `Wait` says beside its operation."""
        return {
            "peer": self.peer,
            "tag": self.tag & TAGS,
            "group_id": self.tag >> TAG_BITS,
            "index": self.index,
            "shape": tuple(self.tensor.shape),
            "dtype": name_of(self.tensor),
        }

    def begin(self, call: Any) -> None:
        """Hand the tensor to gloo: `call` is its send or recv."""
        try:
            self._work = call([self._wire], self.peer, self.tag)
        except RuntimeError as error:
            raise self._lost(error) from None

    def _await(self, op: str) -> None:
        process = self._process
        process.post(op, self)
        try:
            self._work.wait()
        except RuntimeError as error:
            raise self._lost(error) from None
        process.unpost()
        process.pending.discard(self)

    def _lost(self, error: RuntimeError) -> PeerLost:
        return PeerLost(f"rank {self._process.rank} lost rank {self.peer}: {error}")


class SendRequest(Request):
    __slots__ = ("departure",)  # paced: when the message leaves the port

    def wait(self) -> None:
        """Return when the receiver has the message's bytes and the tensor may be written to."""
        process = self._process
        if self in process.pending:
            with process.recorder.open("wait", "send", {"peer": self.peer}):
                self.finish()

    def finish(self) -> None:
        self._await("isend")
        clock = self._process.recorder.lane.clock
        if clock is not None:
            clock.device.wait_for(self.departure)
            self._settle(clock, self.departure.stamp)

    def wait_taken(self, ahead: float) -> None:
        """The synchronous send: return when the receiver has taken the message. `ahead` is the
        device time at which its receive was posted, where that is known, else NaN."""
        self._await("send")
        clock = self._process.recorder.lane.clock
        if clock is not None:
            taken = torch.empty(1, dtype=torch.float64)
            ack = self._process.gloo.recv([taken], self.peer, self.tag | ACK)
            if ahead == ahead:
                self._process.acks.append((taken, ack))  # it will come, and is not waited for
            else:
                ack.wait()
                ahead = taken.item()
            clock.device.wait_for(self.departure)
            self._settle(clock, max(self.departure.stamp, ahead))

    def _settle(self, clock: Any, until: float) -> None:
        clock.wait_until(until)
        clock.settle()


class ReceiveRequest(Request):
    # direct: gloo writes into the tensor itself; told: the sender knows that it is taken (paced)
    __slots__ = ("direct", "op", "told")

    def wait(self) -> None:
        """Return when the message is in the tensor (or reduced with what that held)."""
        process = self._process
        if self in process.pending:
            fields = {"peer": self.peer, "message": self.message}
            with process.recorder.open("wait", None, fields):
                self.finish("irecv")

    @property
    def message(self) -> tuple[int, int, int, int]:
        return self.peer, self._process.rank, self.tag, self.index

    def finish(self, name: str) -> None:
        process, tensor = self._process, self.tensor
        clock = process.recorder.lane.clock
        arrived = received = None
        if clock is None:
            self._await(name)
            process.mail.letters.pop((self.peer, self.tag, self.index), None)
        else:
            clock.begin()
            if process.mail.look(self.peer, self.tag, self.index) is None:
                clock.settle()  # gloo goes on receiving meanwhile
            self._await(name)
            arrived = process.take(self, clock)
            received = clock.free
        wall = perf_counter_ns()
        if not self.direct:
            target = tensor.detach()
            REDUCE[self.op](target, self._wire if tensor.is_cpu else self._wire.to(tensor.device))
            if clock is not None and self.op != "copy":
                clock.free += process.gamma * tensor.nbytes
            process.give_back(self._wire)
        if process.recorder.on:
            offset = process.locate(tensor)
            process.receives.append((*self.message, self.op, offset, arrived, received, wall))
            process.snapshot()


def wire_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as gloo takes it: on the CPU and contiguous (itself where it is)."""
    if tensor.is_cpu and tensor.is_contiguous():
        return tensor.detach() if tensor.requires_grad else tensor
    return tensor.detach().to("cpu").contiguous()


def name_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
