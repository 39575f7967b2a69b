"""Sends and receives under way.

A request ends with `wait()`. That is where a rank waits for another, so it is there that the wait
is posted for the parent to see, recorded, and on a paced run held to the device clock.
"""

from __future__ import annotations

import time
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dlviz.cluster.process import Process

POLL = 2e-5  # s between two looks at the board


class Request:
    """A send or receive under way. `wait()` ends it: the tensor may then be reused, or holds the
    message."""

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
        self._peer = peer
        self._tag = tag
        self._index = index
        self._tensor = tensor
        self.wire = wire  # what gloo sends or fills: contiguous and on the CPU
        self.work: Any = None
        process.pending.add(self)  # gloo needs the tensor alive until the message has gone

    def _await(self, op: str) -> None:
        process = self._process
        process.post(
            op,
            peer=self._peer,
            tag=self._tag,
            index=self._index,
            shape=tuple(self._tensor.shape),
            dtype=name_of(self._tensor),
        )
        try:
            self.work.wait()
        except RuntimeError as error:
            raise PeerLost(f"rank {process.rank} lost rank {self._peer}: {error}") from None
        process.unpost()
        process.pending.discard(self)


class PeerLost(ConnectionError):
    """The process at the other end has gone; what happened to it is the news, not this."""


class SendRequest(Request):
    stamp = 0.0  # paced: the device time at which the message has left this rank's port

    def wait(self) -> None:
        """Return when the receiver has the message's bytes and the tensor may be written to."""
        if self in self._process.pending:
            with self._process.recorder.span("wait", f"send to rank {self._peer}", peer=self._peer):
                self._await("isend")
                self._settle(self.stamp)

    def wait_taken(self) -> None:
        """The synchronous send: return when the receiver has taken the message."""
        self._await("send")
        if self._process.clock is not None:
            mail = self._process.mail
            while (note := mail.was_taken(self._peer, self._tag, self._index)) is None:
                time.sleep(POLL)
            self._settle(max(self.stamp, note.stamp))

    def _settle(self, until: float) -> None:
        clock = self._process.recorder.lane.clock
        if clock is not None:
            clock.wait_until(until)
            clock.settle()


class ReceiveRequest(Request):
    op = "copy"
    direct = True  # gloo writes into the tensor itself

    def wait(self) -> None:
        """Return when the message is in the tensor (added to it, where op="add")."""
        if self in self._process.pending:
            with self._process.recorder.span(
                "wait", f"for rank {self._peer}", peer=self._peer, message=self.message
            ):
                self.finish("irecv")

    @property
    def message(self) -> tuple[int, int, int, int]:
        return self._peer, self._process.rank, self._tag, self._index

    def finish(self, name: str) -> None:
        process = self._process
        clock = process.recorder.lane.clock
        if clock is not None:
            clock.begin()
            if process.mail.look(self._peer, self._tag, self._index) is None:
                clock.settle()  # gloo goes on receiving meanwhile
        self._await(name)
        letter = process.mail.open(self._peer, self._tag, self._index)
        if clock is not None:
            process.take(letter, clock)
        received, wall = (None if clock is None else clock.free), perf_counter_ns()
        with torch.no_grad():
            if self.op == "add":
                self._tensor.add_(self.wire.to(self._tensor.device))
                if clock is not None:
                    clock.free += process.gamma * letter.mail.nbytes
            elif not self.direct:
                self._tensor.copy_(self.wire)
        if process.recorder.on:
            offset = process.locate(self._tensor)
            process.receives.append(
                (*self.message, self.op, offset, letter.arrived, received, wall)
            )
            process.snapshot()


def wire_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as gloo takes it: on the CPU and contiguous (itself where it is)."""
    return tensor.detach().to("cpu").contiguous()


def name_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
