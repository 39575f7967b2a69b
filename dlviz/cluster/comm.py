"""Comm: what a rank sends, receives and computes, spelled as torch.distributed spells it.

Messages travel over gloo. Beside each goes a header on the board (see board.py): who sends how
much of what, and on a paced run when it arrives. That is how a receive that does not fit is
refused before a byte moves, how a receive from any source picks the earliest message, and how the
parent knows who waits for whom. Every message, collective and wait is recorded; `Comm` is the
only place that records messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from math import nan as NAN
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dlviz.cluster.backend import Collectives
from dlviz.cluster.board import DONE, SYNC, TOTAL, describe, empty, fits, form_of, size_of
from dlviz.cluster.clock import sleep_until
from dlviz.cluster.ledger import moment
from dlviz.cluster.process import Process, Watched, algorithm_step
from dlviz.cluster.requests import POLL, REDUCE, ReceiveRequest, SendRequest, name_of, wire_of
from dlviz.cluster.waits import TAG_BITS, TAGS
from dlviz.trace.recorder import PacedSpan, Recorder, Span, caller

if TYPE_CHECKING:
    from dlviz.cluster.lanes import Lane

T = TypeVar("T")
LONGEST_POLL = 5e-4  # s between two looks for a message from any source


class Comm(Collectives):
    """A communicator: `size` ranks that exchange tensors. `rank` is this process's number in it,
    and so are the ranks it sends to and receives from; in a Trace ranks are always global."""

    def __init__(self, process: Process, members: tuple[int, ...], number: int, name: str):
        self.process = process
        self.members = members
        self.name = name
        self.number = number
        self.size = len(members)
        self.rank = members.index(process.rank)
        self.device = process.device
        self.span = process.recorder.span
        self.label = process.recorder.label
        self.recorder = process.recorder

    def __repr__(self) -> str:
        return f"Comm({self.name}, rank {self.rank} of {self.size})"

    # -- messages ------------------------------------------------------------------------------
    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> SendRequest:
        """Start to send `tensor` to `dst`; do not write to it before `wait()` of the request."""
        return self._send(tensor, dst, tag, flags=0)

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        """Send `tensor` to `dst`; returns when the receiver has taken it (so two ranks that both
        send first wait for each other for ever)."""
        self._send(tensor, dst, tag, flags=SYNC)

    def wait_sent(self, requests: Iterable[SendRequest]) -> None:
        """Wait for sends under way, recorded as one wait."""
        with self.recorder.open("wait", "sends", {}):
            for request in requests:
                request.finish()

    def irecv(
        self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy"
    ) -> ReceiveRequest:
        """Start to receive from `src` into `tensor`, which holds the message after `wait()`; with
        op="add" the message is added to what the tensor holds, with op="max" the larger of both
        is kept in each element. ValueError where shape or dtype cannot take the message."""
        _check_order("irecv", tensor, src)
        clock = self.recorder.lane.clock
        ahead = NAN if clock is None else clock.free
        return self._receive(tensor, self._peer(src, "src"), self._tag(tag), op, ahead)

    def recv(
        self, tensor: torch.Tensor, src: int | None = None, tag: int = 0, op: str = "copy"
    ) -> int:
        """Receive into `tensor` from `src`, or from whichever message comes first; returns the
        source."""
        _check_order("recv", tensor, src)
        with self.span("recv") as span:
            tag = self._tag(tag)
            peer = self._first(tensor, tag) if src is None else self._peer(src, "src")
            request = self._receive(tensor, peer, tag, op, ahead=NAN)
            span.annotate(peer=peer, message=request.message)
            request.finish("recv")
        return self.members.index(peer)

    def probe(self, src: int, tag: int = 0) -> torch.Tensor:
        """Wait until the next message from `src` has been sent; returns an empty tensor of its
        shape and dtype to receive it into."""
        peer, tag, process = self._peer(src, "src"), self._tag(tag), self.process
        index = process.mail.claimed.get((peer, tag), 0)
        letter = process.mail.look(peer, tag, index)
        if letter is None:
            with self.recorder.open("wait", None, {"peer": peer}):
                if self.recorder.lane.clock is not None:
                    self.recorder.lane.clock.begin()
                    self.recorder.lane.clock.settle()
                process.post("recv", Directed(peer, tag, index))
                pause = POLL
                while (letter := process.mail.look(peer, tag, index)) is None:
                    time.sleep(pause)
                    pause = min(pause * 1.5, LONGEST_POLL)
                process.unpost()
        return empty(letter.mail.form, self.device)

    def sendrecv(
        self,
        send: torch.Tensor,
        dst: int,
        recv: torch.Tensor,
        src: int,
        tag: int = 0,
        op: str = "copy",
    ) -> None:
        """Send to `dst` and receive from `src` at the same time."""
        receiving = self.irecv(recv, src, tag, op)
        sending = self.isend(send, dst, tag)
        receiving.wait()
        sending.wait()

    def _peer(self, rank: int, name: str) -> int:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ValueError(f"{name}={rank!r} is no rank of {self}: use 0 to {self.size - 1}.")
        if rank == self.rank:
            raise ValueError(
                f"{name}={rank} is this rank itself: a rank keeps what it has, it sends to others."
            )
        return self.members[rank]

    def _tag(self, tag: int) -> int:
        if not 0 <= tag <= TAGS:
            raise ValueError(f"tag={tag!r} is out of range: use 0 to {TAGS}.")
        return (self.number << TAG_BITS) | tag

    def _send(self, tensor: torch.Tensor, dst: int, tag: int, flags: int) -> SendRequest:
        _check_order("send" if flags & SYNC else "isend", tensor, dst)
        process, mail, recorder = self.process, self.process.mail, self.recorder
        peer, tag = self._peer(dst, "dst"), self._tag(tag)
        form, nbytes = form_of(tensor.shape, tensor.dtype), tensor.nbytes
        index = mail.sent.get((peer, tag), 0)
        mail.sent[peer, tag] = index + 1
        message = (process.rank, peer, tag, index)
        fields = {"peer": peer, "nbytes": nbytes, "message": message}
        with recorder.open("send", None, fields):
            process.snapshot()
            request = SendRequest(process, peer, tag, index, tensor, wire_of(tensor))
            lane = recorder.lane
            if not process.room(peer):
                process.wait_for_room(request)
            departure, entry, stamp = None, -1, NAN
            if lane.clock is not None:
                lane.clock.begin()
                departure = lane.clock.device.send(peer, nbytes, lane.clock.free)
                request.departure, entry, stamp = departure, departure.entry, departure.stamp
            wall = perf_counter_ns()
            mail.outbox[peer].write(tag, index, flags, wall, entry, stamp, form)
            posted = mail.posted(peer, tag, index)
            its_form, ahead = posted or (form, NAN)
            if not fits(form, its_form):
                raise ValueError(_misfit(process.rank, peer, index, form, its_form))
            request.begin(process.gloo.send)
            if recorder.on:
                offset, step = process.locate(tensor), algorithm_step(lane.context)
                row = (*message, nbytes, tensor.numel(), offset, departure, wall, self.name, step)
                process.sends.append(row)
            if flags & SYNC:
                request.wait_taken(ahead)
        return request

    def _receive(
        self, tensor: torch.Tensor, peer: int, tag: int, op: str, ahead: float
    ) -> ReceiveRequest:
        if op not in REDUCE:
            raise ValueError(f"op={op!r} is no way to receive: use one of {', '.join(REDUCE)}.")
        process, mail = self.process, self.process.mail
        process.snapshot()
        form = form_of(tensor.shape, tensor.dtype)
        index = mail.claimed.get((peer, tag), 0)
        sent = mail.claim(peer, tag, index, form, ahead)
        if sent is not None and not fits(sent.form, form):
            raise ValueError(_misfit(peer, process.rank, index, sent.form, form))
        mail.claimed[peer, tag] = index + 1
        direct = op == "copy" and tensor.is_cpu and tensor.is_contiguous()
        # Not into a watched buffer: a snapshot shows what was received, no more.
        direct = direct and process.locate(tensor) < 0
        wire = wire_of(tensor) if direct else process.borrow(tensor)
        request = ReceiveRequest(process, peer, tag, index, tensor, wire)
        request.op = op
        request.direct = direct
        request.told = False
        request.begin(process.gloo.recv)
        if sent is not None and ahead == ahead:  # the sender has not seen the note, or not in time
            process.tell_taken(request, sent, ahead)
        return request

    def _first(self, tensor: torch.Tensor, tag: int) -> int:
        """The source of the earliest message with `tag` that nobody has claimed."""
        process, mail = self.process, self.process.mail
        clock = self.recorder.lane.clock
        if clock is not None:
            clock.begin()
        others = tuple(peer for peer in self.members if peer != process.rank)
        process.post("recv", AnySource(tag, others, tensor))
        pause = POLL
        while True:
            mail.collect()
            ready = [
                letter
                for peer in others
                if (letter := mail.letters.get((peer, tag, mail.claimed.get((peer, tag), 0))))
                is not None
            ]
            if ready:
                if clock is None:
                    first = min(ready, key=lambda letter: letter.mail.wall)
                    break
                first = min(ready, key=lambda letter: (moment(letter.stamp), letter.src))
                if clock.device.has_come(first):
                    break
                # and look again: an earlier one may come meanwhile
                sleep_until(clock.device.wall(min(letter.stamp for letter in ready)))
            else:
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST_POLL)
        process.unpost()
        return first.src

    # -- groups --------------------------------------------------------------------------------
    def split(self, color: int | None, key: int | None = None) -> Comm | None:
        """A Comm of the ranks that gave the same `color`, ordered by `key` (then by rank); None
        for color None. Every rank of this Comm must call it."""
        mine = torch.tensor(
            [
                -1 if color is None else color,
                self.rank if key is None else key,
                self.process.next_group,
            ]
        )
        table = torch.empty(self.size, 3, dtype=torch.int64)
        self.all_gather(table, mine)
        rows = table.tolist()
        colors = sorted({row[0] for row in rows if row[0] >= 0})
        first = max(row[2] for row in rows)
        self.process.next_group = first + len(colors)
        if color is None:
            return None
        inside = sorted((row[1], rank) for rank, row in enumerate(rows) if row[0] == color)
        members = tuple(self.members[rank] for _, rank in inside)
        return Comm(self.process, members, first + colors.index(color), f"{self.name}/{color}")

    def mesh(self, **axes: int) -> Mesh:
        """Arrange the ranks in a grid with named axes, the last one fastest: `comm.mesh(dp=2,
        pp=4).pp` is this rank's row of four."""
        total = 1
        for length in axes.values():
            total *= length
        if total != self.size:
            raise ValueError(
                f"mesh {axes} has {total} places for the {self.size} ranks of {self.name}: their "
                "product must be "
                f"{self.size}."
            )
        found, stride = {}, total
        for name, length in axes.items():
            stride //= length
            here = self.rank // stride % length
            comm = self.split(self.rank - here * stride, here)
            assert comm is not None  # every rank gave a color
            comm.name = f"{name} {comm.members}"
            found[name] = comm
        return Mesh(**found)

    def lane(self, name: str) -> Lane:
        """A thread of this rank that runs what is submitted to it, in order, beside the caller,
        with a Comm of its own; its spans lie on lane `name`. Every rank of this Comm must call
        it."""
        from dlviz.cluster.lanes import Lane

        number = torch.tensor([self.process.next_group])
        self.all_reduce(number, "max")
        self.process.next_group = int(number) + 1
        return Lane(Comm(self.process, self.members, int(number), f"{self.name}.{name}"), name)

    # -- time, buffers, progress -----------------------------------------------------------------
    def compute(
        self, kind: str, name: str | None = None, seconds: float | None = None, **fields: Any
    ) -> Any:
        """Record the math inside the `with`. On a paced run it takes `seconds` of device time, by
        default what the machine says for `kind`."""
        clock = self.recorder.lane.clock
        if clock is None:
            return self.recorder.open(kind, name, fields, whole=False)
        machine = clock.device.machine
        return Compute(
            self.recorder, kind, name, machine.seconds(kind) if seconds is None else seconds, fields
        )

    def beside(self, kind: str, name: str | None = None, **fields: Any) -> Any:
        """Record, on lane compute2, math that runs at the same time as the `compute` inside."""
        if self.recorder.lane.clock is not None:
            self.recorder.lane.clock.begin()
        return self.recorder.beside(kind, name, fields)

    def begin(self) -> None:
        """On a paced run what comes next starts when the program reaches it, however long setting
        it up has taken: that is no work of the device's."""
        clock = self.recorder.lane.clock
        if clock is not None:
            clock.wait_until(clock.device.now())

    def hold(self) -> None:
        """On a paced run sleep off this lane's debt now (before a write to shared memory, say)."""
        clock = self.recorder.lane.clock
        if clock is not None:
            clock.settle()

    def watch(self, tensor: torch.Tensor, name: str = "buffer") -> None:
        """Locate messages in `tensor` (contiguous) by offset and count, and keep a snapshot of it
        at each communication call of this rank from now on."""
        if not tensor.is_contiguous():
            raise ValueError(
                f"the tensor {name!r} is not contiguous: watch tensor.contiguous() or its base."
            )
        self.process.watched.append(Watched(tensor, name))
        self.process.snapshot()

    def memory(self, what: str, nbytes: int) -> None:
        """Record that this rank now holds `nbytes` of `what`."""
        clock = self.recorder.lane.clock
        self.process.memory.append(
            (what, nbytes, perf_counter_ns(), None if clock is None else clock.free)
        )

    def progress(self, iterable: Iterable[T], name: str = "") -> Iterator[T]:
        """Go through `iterable` and show a progress bar beside the cell or command that launched
        the run."""
        board, rank = self.process.board, self.process.rank
        board.put(rank, DONE, 0)
        board.put(rank, TOTAL, len(iterable) if isinstance(iterable, Sized) else 0)
        self.process.announce(name)
        for number, item in enumerate(iterable):
            yield item
            board.put(rank, DONE, number + 1)


class Compute(PacedSpan):
    """An operation of a paced run: it starts when the device is free and takes its modelled
    seconds."""

    __slots__ = ("begun", "seconds")

    def __init__(
        self,
        recorder: Recorder,
        kind: str,
        name: str | None,
        seconds: float,
        fields: dict[str, Any],
    ):
        super().__init__(recorder.lane, (kind, name, *caller(2), False), fields)
        self.seconds = seconds

    def __enter__(self) -> Span:
        self.lane.clock.begin()
        self.lane.clock.settle()
        super().__enter__()
        self.begun = perf_counter_ns()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lane.clock.compute(self.seconds, perf_counter_ns() - self.begun)
        super().__exit__(kind, error, trace)


class Mesh:
    """Named axes of a grid of ranks, each a Comm."""

    def __init__(self, **axes: Comm):
        self.__dict__.update(axes)

    def __getattr__(self, name: str) -> Comm:
        raise AttributeError(f"the mesh has no axis {name!r}: it has {', '.join(self.__dict__)}")


class Directed:
    """What a rank waits for that wants to know the shape of a message."""

    def __init__(self, peer: int, tag: int, index: int):
        self.peer = peer
        self.tag = tag
        self.index = index

    def details(self) -> dict[str, Any]:
        tag = self.tag
        place = {"tag": tag & TAGS, "group_id": tag >> TAG_BITS}
        return {"peer": self.peer, "index": self.index, **place}


class AnySource:
    """What a receive from any source waits for."""

    def __init__(self, tag: int, members: tuple[int, ...], tensor: torch.Tensor):
        self.tag = tag
        self.members = members
        self.tensor = tensor

    def details(self) -> dict[str, Any]:
        return {
            "tag": self.tag & TAGS,
            "group_id": self.tag >> TAG_BITS,
            "members": self.members,
            "shape": tuple(self.tensor.shape),
            "dtype": name_of(self.tensor),
        }


def _check_order(call: str, tensor: Any, peer: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        given = ", ".join(type(each).__name__ for each in (tensor, peer))
        raise TypeError(f"{call}({given}) has no tensor: the tensor comes first, then the rank.")


def _misfit(src: int, dst: int, index: int, sent: bytes, posted: bytes) -> str:
    return (
        f"message mismatch: message number {index} from rank {src} to rank {dst} has "
        f"{describe(sent)} ({size_of(sent)} bytes) and rank {dst} receives it into "
        f"{describe(posted)} ({size_of(posted)} bytes); send and receive the same number of "
        "elements of the same dtype."
    )
