"""Sends and receives in flight.

A request ends with `wait()`. There a rank waits for another, so there the wait is registered for
the parent to see, recorded, and on a paced run held to the device's pace.
"""

from __future__ import annotations

from ctypes import memmove
from math import nan as NAN
from time import perf_counter_ns
from typing import Any

import torch

from dlviz.cluster.control.board import WHEN
from dlviz.cluster.control.form import describe, dtype_name, dtype_of, fits, shape_of, size_of
from dlviz.cluster.control.matching import Channel
from dlviz.cluster.control.pipes import ON_DEVICE, REFUSED, SYNC, TAKEN, Header, refusal
from dlviz.cluster.control.waiting import raise_if_lost
from dlviz.cluster.messages.endpoint import Endpoint
from dlviz.cluster.operations import REDUCE
from dlviz.cluster.stuck.waits import TAG_BITS, TAGS
from dlviz.cluster.transport import wire_of
from dlviz.trace.recorder import LaneSpans

PIECE = 1 << 18  # bytes of a message that are taken and reduced at a time


class PeerLost(ConnectionError):
    """The process at the other end has gone: this error is only a consequence."""


class Request:
    """A send or receive in flight: message number `index` of its channel. `wait()` ends it: the
    tensor may then be reused, or holds the message. `call` names it in a `Wait`, `name` the span of
    its wait."""

    __slots__ = ("_endpoint", "awaited", "channel", "form", "index", "message", "over", "tensor")
    left = None  # it is waited for without limit
    call: str
    name: str | None = None
    message: tuple[int, int, int, int]  # source, destination, key, index

    def __init__(self, endpoint: Endpoint, channel: Channel, tensor: torch.Tensor, form: bytes):
        self._endpoint = endpoint
        self.channel = channel
        self.tensor = tensor
        self.form = form
        self.index = channel.count
        self.over = self.awaited = False

    @property
    def peer(self) -> int:
        return self.channel.peer

    def about(self) -> dict[str, Any]:
        """The fields of its span."""
        return {"peer": self.peer, "message": self.message}

    def wait(self) -> None:
        """Return when a receive's message is in its tensor (or reduced with what that held), or
        when a send's receiver has the bytes and its tensor may be written to."""
        if self.over:
            return
        recorder = self._endpoint.recorder
        lane = recorder.lane
        times = lane.pace.start()
        self.finish(self.call, lane, times)
        lane.pace.end(times)
        if recorder.on:
            lane.add("wait", self.name, times, self.about_wait())

    def finish(self, op: str, lane: LaneSpans, times: list[Any]) -> None:
        """Wait as `wait` does; the caller records it."""
        raise NotImplementedError

    def about_wait(self) -> dict[str, Any]:
        """The fields of the span of its `wait`."""
        return self.about()

    def details(self) -> dict[str, Any]:
        """The fields of a `Wait` for it, besides its operation."""
        return {
            "peer": self.channel.peer,
            "tag": self.channel.key & TAGS,
            "group_id": self.channel.key >> TAG_BITS,
            "index": self.index,
            "shape": shape_of(self.form),
            "dtype": dtype_name(dtype_of(self.form)),
        }

    def give_up(self, lost: dict[int, str]) -> None:
        """Raise RankLost if the peer is lost."""
        raise_if_lost((self.peer,), lost)


class SendRequest(Request):
    """`departure` says when the message leaves the port, on a paced run."""

    __slots__ = ("departure", "slot", "wire")
    call, name = "isend", "send"

    def __init__(self, endpoint: Endpoint, channel: Channel, tensor: torch.Tensor, form: bytes):
        super().__init__(endpoint, channel, tensor, form)
        self.message = endpoint.rank, channel.peer, channel.key, channel.count
        # None where its bytes go with the header
        self.wire: Any = wire_of(tensor, endpoint.transport)

    @property
    def done(self) -> bool:
        return self._endpoint.board.cells[self.slot] != 0

    def release(self, slot: int) -> None:
        """Its bytes, exposed under that slot, have been taken."""
        self._endpoint.transport.release(slot)
        self.wire = None

    def about(self) -> dict[str, Any]:
        """The fields of its span."""
        return {"peer": self.peer, "nbytes": self.tensor.nbytes, "message": self.message}

    def about_wait(self) -> dict[str, Any]:
        """The fields of the span of its `wait`."""
        return {"peer": self.peer, "group": self._endpoint.group}

    def finish(self, op: str, lane: LaneSpans, times: list[Any]) -> None:
        """Wait as `wait` does; the caller records it. `op` is "isend", or "send" for one that ends
        when the receiver has taken the message."""
        board, taken = self._endpoint.board, NAN
        self._endpoint.outstanding.claim(self)
        if self.slot:  # else it was taken, and its slot freed
            if not board.cells[self.slot]:
                self._endpoint.waiting.wait_for_completion(self, op, lane, times)
            if board.cells[self.slot] == REFUSED:
                raise truncation(self.message, self.form, self._endpoint.waiting.why(self.slot))
            taken = board.times[self.slot + WHEN]
            self._endpoint.outstanding.end(self)
        self.over = True
        if op == "send":
            lane.pace.taken(self.departure, taken)
        else:
            lane.pace.sent(self.departure)


class ReceiveRequest(Request):
    """`posted_at` is the device time at which it was posted, NaN if its rank waits in it
    immediately."""

    __slots__ = ("_error", "_landed", "posted_at", "done", "header", "op")
    call = "irecv"

    def __init__(
        self,
        endpoint: Endpoint,
        channel: Channel,
        tensor: torch.Tensor,
        form: bytes,
        op: str,
        posted_at: float,
    ):
        super().__init__(endpoint, channel, tensor, form)
        self.message = channel.peer, endpoint.rank, channel.key, channel.count
        self.op = op
        self.posted_at = posted_at
        self.done = False
        self.header: Header | None = None
        self._error: Exception | None = None
        self._landed: torch.Tensor | None = None

    def finish(self, op: str, lane: LaneSpans, times: list[Any]) -> None:
        """Wait as `wait` does; the caller records it."""
        endpoint, pace = self._endpoint, lane.pace
        self.awaited = self.over = True
        pace.begin()
        if self.header is None:
            pace.settle()  # messages come in meanwhile
        if self.header is not None:
            endpoint.matching.take(self)
        endpoint.waiting.wait(self, op, lane, times)
        if self._error is not None:
            if isinstance(self._error, PeerLost):
                endpoint.waiting.ask_why((self.peer,), self.details, op, lane)
            raise self._error
        arrived, received = pace.arrived(self.header)
        if received is not None and self._completes_late():
            self._complete(received)
        wall = perf_counter_ns()
        if self._landed is not None:
            self._put(self._landed)
        if self.op != "copy":
            pace.reduced(self.tensor.nbytes)
        if endpoint.recorder.on:
            self._record(arrived, received, wall)

    def _record(self, arrived: float | None, received: float | None, wall: int) -> None:
        log = self._endpoint.log
        offset = log.locate(self.tensor) if log.watched else -1
        log.received.append((*self.message, self.op, offset, arrived, received, wall))
        if log.watched:
            log.snapshot()

    def give_up(self, lost: dict[int, str]) -> None:
        """Raise RankLost if the peer is lost and has not sent the message."""
        if self.header is None:
            super().give_up(lost)

    # -- taking the message: by whichever thread of the rank has a moment ------------------------
    def matched(self, header: Header) -> None:
        """Its message has been sent."""
        self.header = header

    def truncation(self) -> ValueError | None:
        """The truncation error, if the message does not fit."""
        if self.header is None or fits(self.header.form, self.form):
            return None
        return truncation(self.message, self.header.form, self.form)

    def take(self) -> None:
        """Fetch the message: into the tensor if a thread waits for it, else into a buffer."""
        header = self.header
        assert header is not None
        if header.form != self.form and (truncation := self.truncation()):
            self._error = truncation
            self._refuse()
            self.done = True
        elif header.flags & ON_DEVICE:
            self._endpoint.transport.receive(self)  # it lands later
        else:
            try:
                self._fetch()
            except OSError as error:
                self.fail(error)
            else:
                self._taken()

    def land(self, message: torch.Tensor) -> None:
        """Complete the request with `message`, a tensor on this rank's GPU."""
        self._landed = message.cpu() if self.tensor.is_cpu else message
        self._taken()

    def fail(self, error: Exception) -> None:
        """Fail the request with this error."""
        if isinstance(error, OSError):
            error = PeerLost(f"rank {self._endpoint.rank} lost rank {self.peer}: {error}")
        self._error, self.done = error, True

    def _taken(self) -> None:
        if not self._completes_late():
            self._complete(self.posted_at)
        self.done = True

    def _completes_late(self) -> bool:
        """Whether the completion flag is set when the message has arrived by the device's clock,
        rather than when its bytes have."""
        assert self.header is not None
        if not (self._endpoint.pacing.defers and self.header.flags & SYNC):
            return False
        return self.posted_at != self.posted_at

    def _fetch(self) -> None:
        tensor, endpoint = self.tensor, self._endpoint
        if not tensor.nbytes:
            return
        whole = tensor.is_cpu and tensor.is_contiguous()
        aside = not self.awaited
        if whole and self.op == "copy" and not (aside and endpoint.log.watched):
            self._pull(tensor)  # a snapshot shows what was received, no more
        elif whole and not aside and tensor.nbytes > PIECE and endpoint.transport.pieces:
            self._reduce_in_pieces()
        else:
            landed = endpoint.buffers.borrow(self.form)
            self._pull(landed)
            if aside:
                self._landed = landed
            else:
                self._put(landed)

    def _pull(self, target: torch.Tensor, offset: int = 0) -> None:
        header = self.header
        assert header is not None
        if header.data is not None:
            memmove(target.data_ptr(), header.data, target.nbytes)
            return
        address = header.address + offset
        self._endpoint.transport.pull(header.src, header.slot, address, target)

    def _reduce_in_pieces(self) -> None:
        """Take a piece, which stays in the cache, and reduce it."""
        row = self.tensor.detach().view(-1)
        piece = self._endpoint.buffers.piece(row.dtype, PIECE)
        offset = 0
        for part in row.split(len(piece)):
            incoming = piece[: len(part)]
            self._pull(incoming, offset)
            REDUCE[self.op](part, incoming)
            offset += part.nbytes
        self._endpoint.buffers.give_back(piece, (row.dtype, PIECE))

    def _put(self, landed: torch.Tensor) -> None:
        target = self.tensor.detach() if self.tensor.requires_grad else self.tensor
        REDUCE[self.op](target, landed if target.is_cpu else landed.to(target.device))
        if landed.is_cpu:
            self._endpoint.buffers.give_back(landed, self.form)
        else:
            self._endpoint.transport.used(landed)
        self._landed = None

    def _complete(self, when: float) -> None:
        """Set the completion flag: the message was taken, at that device time (NaN: on the wall
        clock)."""
        header, endpoint = self.header, self._endpoint
        assert header is not None
        endpoint.board.times[header.slot + WHEN] = when
        endpoint.waiting.complete(header.src, header.slot, TAKEN, bool(header.flags & SYNC))

    def _refuse(self) -> None:
        """Refuse the message: it does not fit."""
        header, endpoint = self.header, self._endpoint
        assert header is not None
        endpoint.pipes.send(header.src, refusal(header.slot, self.form))
        endpoint.waiting.complete(header.src, header.slot, REFUSED, True)


def truncation(message: tuple[int, int, int, int], sent: bytes, posted: bytes | None) -> ValueError:
    src, dst, _, index = message
    into = "a tensor that it does not fit"
    if posted:
        into = f"{describe(posted)} ({size_of(posted)} bytes)"
    return ValueError(
        f"message mismatch: message number {index} from rank {src} to rank {dst} has "
        f"{describe(sent)} ({size_of(sent)} bytes) and rank {dst} receives it into {into}; send "
        "and receive the same number of elements of the same dtype."
    )
