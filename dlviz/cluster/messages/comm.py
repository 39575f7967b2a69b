"""Comm: what a rank sends, receives and computes, spelled as torch.distributed spells it.

A send writes a message header into its receiver's pipe: who sends how much of what, where its bytes
are, and on a paced run when it arrives. The receiver takes the bytes and sets the completion flag.
So a receive that does not fit is refused before any data moves, a receive from any source picks the
earliest message, and the parent knows who waits for whom. Every message, collective and wait is
recorded; `Comm` is the only place that records messages.

    isend -> header -> pipe -> matching -> take -> completion    control/, requests.py, transport/
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from contextlib import AbstractContextManager
from ctypes import string_at
from functools import partial
from math import isfinite
from math import nan as NAN
from numbers import Real
from time import perf_counter_ns
from typing import Any, NoReturn, TypeVar, overload

import torch

from dlviz.cluster.control.board import DONE, TOTAL
from dlviz.cluster.control.form import empty, form_of
from dlviz.cluster.control.matching import Channel
from dlviz.cluster.control.pipes import HEAD, INLINE, LONGEST, ON_DEVICE, SYNC
from dlviz.cluster.errors import RankLost
from dlviz.cluster.groups.collective import Collectives
from dlviz.cluster.groups.membership import Mesh, colors
from dlviz.cluster.groups.survivors import Votes, together
from dlviz.cluster.messages.awaited import AnySource, Next, Room
from dlviz.cluster.messages.lanes import Lane
from dlviz.cluster.messages.requests import ReceiveRequest, SendRequest
from dlviz.cluster.operations import (
    COPY,
    SUM,
    check_rank,
    check_tensor,
    check_text,
    check_whole,
    receive_operation,
    whole_number,
)
from dlviz.cluster.pacing.clock import START_LINE
from dlviz.cluster.process import Process
from dlviz.cluster.recording.log import step_of
from dlviz.cluster.shared import Shared, share
from dlviz.cluster.stuck.waits import TAG_BITS, TAGS

T = TypeVar("T")
MOST = 2**63 - 1  # that an int64 holds


class Comm(Collectives):
    """A communicator: `size` ranks that exchange tensors. `rank` is this process's number in it,
    and so are the ranks it sends to and receives from; in a Trace ranks are always global. On a
    paced run `machine` is the Machine, else None."""

    def __init__(self, process: Process, members: tuple[int, ...], number: int, name: str):
        super().__init__(process, members, number, name)
        self.device = process.device
        self.machine = process.machine
        self.span = process.recorder.span
        self.label = process.recorder.label
        self._endpoint = process.endpoint(name)
        self._outgoing: dict[tuple[int, int], Channel] = {}  # by rank and tag
        self._incoming: dict[tuple[int, int], Channel] = {}
        self.votes: Votes | None = None  # made when first used

    def __repr__(self) -> str:
        return f"Comm({self.name}, rank {self.rank} of {self.size})"

    def __reduce__(self) -> NoReturn:
        raise ValueError(
            f"{self!r} belongs to its rank of one run, and so does what holds it (a DDP, a layer "
            "that is cut over ranks): it cannot be copied, saved or returned. Take its "
            "state_dict(), or of a DDP its module."
        )

    @property
    def hosts(self) -> list[list[int]]:
        """The ranks of this Comm, host by host: `[[0, 1], [2, 3]]` where two hosts have two each,
        one list where all are on one host."""
        hosts: dict[int, list[int]] = {}
        for rank, member in enumerate(self.members):
            hosts.setdefault(self.groups.host_of(member), []).append(rank)
        return list(hosts.values())

    # -- messages ------------------------------------------------------------------------------
    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> SendRequest:
        """Start to send `tensor` to `dst`; do not write to it before `wait()` of the request."""
        _check_order("isend", tensor, dst)
        return self._send(tensor, dst, tag, flags=0)

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        """Send `tensor` to `dst`; returns when the receiver has taken it (so two ranks that both
        send first wait for each other for ever)."""
        _check_order("send", tensor, dst)
        self._send(tensor, dst, tag, flags=SYNC)

    def wait_sent(self, requests: Iterable[SendRequest]) -> None:
        """Wait for sends in flight, recorded as one wait."""
        requests = _requests(requests)
        lane = self.recorder.lane
        times = lane.pace.start()
        for request in requests:
            request.finish("isend", lane, times)
        lane.pace.end(times)
        if self.recorder.on:
            lane.add("wait", "sends", times, {"group": self.name})

    def irecv(
        self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy"
    ) -> ReceiveRequest:
        """Start to receive from `src` into `tensor`, which holds the message after `wait()`; with
        op="sum" the message is added to what the tensor holds, and so with "max", "min" and
        "product". ValueError if the message does not fit its shape or dtype."""
        _check_order("irecv", tensor, src)
        op = op if op is COPY or op is SUM else receive_operation(op, tensor)
        return self._receive(tensor, src, tag, op, self.recorder.lane.pace.ahead)

    @overload
    def recv(
        self,
        tensor: torch.Tensor,
        src: int | Collection[int] | None = None,
        tag: int = 0,
        op: str = "copy",
        deadline: None = None,
    ) -> int: ...
    @overload
    def recv(
        self,
        tensor: torch.Tensor,
        src: int | Collection[int] | None = None,
        tag: int = 0,
        op: str = "copy",
        *,
        deadline: float | None,
    ) -> int | None: ...
    def recv(
        self,
        tensor: torch.Tensor,
        src: int | Collection[int] | None = None,
        tag: int = 0,
        op: str = "copy",
        deadline: float | None = None,
    ) -> int | None:
        """Receive into `tensor` from `src`, or the message that comes first from any rank (None),
        or from any that `src` lists: RankLost as soon as one of these is lost and has sent none.
        Returns the source.

        With a `deadline`, seconds of the run's clock (`comm.now() + 0.2`, say), it returns None if
        no message has come by then, and leaves `tensor` unchanged; a later message is left for a
        later receive. A past deadline counts as now: it takes what has come and does not wait.
        Meanwhile the rank is in no deadlock.

        On a paced run the device's clock alone decides what has come, and in which order: a message
        counts if this rank's port has taken it in by the deadline, however late its sender's
        process is. So the wait goes on until each other rank is so far, by its own clock, that no
        message of it can arrive in time, or waits itself, is lost or has finished; longer than the
        deadline by the wall clock if one is late. (A sender whose `isend` waits for this rank to
        take another message first sends nothing meanwhile. Where pairs of ranks share links, the
        order in which messages cross these is as certain as the ledger's.)

        ValueError for a deadline that is not a finite number.
        """
        _check_order("recv", tensor, src)
        op = op if op is COPY or op is SUM else receive_operation(op, tensor)
        if type(src) is not int and src is not None:
            src = _sources(src)
        lane = self.recorder.lane
        times = lane.pace.start()
        if deadline is not None:
            deadline = max(_check_deadline(deadline), self.now())
            src = src if src is None or isinstance(src, Collection) else [src]
        if src is None or isinstance(src, Collection):
            request, src = self._earliest(tensor, src, tag, op, times, deadline)
        else:
            request = self._receive(tensor, src, tag, op, posted_at=NAN)
            request.finish("recv", lane, times)
        lane.pace.end(times)
        if self.recorder.on:
            if request is None:
                lane.add("wait", "until a deadline", times, {"group": self.name})
            else:
                lane.add("recv", None, times, request.about())
        return src

    @overload
    def probe(self, src: int, tag: int = 0, deadline: None = None) -> torch.Tensor: ...
    @overload
    def probe(self, src: int, tag: int = 0, *, deadline: float | None) -> torch.Tensor | None: ...
    def probe(self, src: int, tag: int = 0, deadline: float | None = None) -> torch.Tensor | None:
        """Wait until the next message from `src` has been sent; returns an empty tensor of its
        shape and dtype to receive it into. With a `deadline`, as `recv` has, None if none has been
        sent by then."""
        channel = self._from(src, tag)
        if not channel.headers or deadline is not None:
            lane = self.recorder.lane
            with self.recorder.open("wait", None, {"peer": channel.peer, "group": self.name}):
                lane.pace.begin()
                lane.pace.settle()
                if deadline is None:
                    self.waiting.wait(Next(channel), "recv", lane)
                else:
                    until = max(_check_deadline(deadline, "probe"), self.now())
                    if self._first(None, [src], tag, None, until) is None:
                        return None
        return empty(channel.headers[0].form, self.device)

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
        _check_order("sendrecv", send, dst)
        _check_order("sendrecv", recv, src)
        receiving = self.irecv(recv, src, tag, op)
        sending = self.isend(send, dst, tag)
        receiving.wait()
        sending.wait()

    def _send(self, tensor: torch.Tensor, dst: int, tag: int, flags: int) -> SendRequest:
        endpoint, recorder, log = self._endpoint, self.recorder, self.log
        plain = type(dst) is type(tag) is int
        channel = (self._outgoing.get((dst, tag)) if plain else None) or self._to(dst, tag)
        form = form_of(tensor.shape, tensor.dtype)
        lane = recorder.lane
        times = lane.pace.start()
        if log.watched:
            log.snapshot()
        request = SendRequest(endpoint, channel, tensor, form)
        channel.count += 1
        if endpoint.pacing.full() or not endpoint.outstanding.begin(request):
            self._wait_for_room(request, lane, times)
        request.departure = lane.pace.depart(channel.peer, tensor.nbytes)
        wall = perf_counter_ns()
        self._write(request, flags, wall, lane, times)
        if recorder.on:
            offset = log.locate(tensor) if log.watched else -1
            about = tensor.nbytes, tensor.numel(), offset, request.departure, wall
            log.sent.append((*request.message, *about, self.name, step_of(lane)))
        if flags & SYNC:
            request.finish("send", lane, times)
        lane.pace.end(times)
        if recorder.on:
            lane.add("send", None, times, request.about())
        return request

    def _write(
        self, request: SendRequest, flags: int, wall: int, lane: Any, times: list[Any]
    ) -> None:
        """Send the receiver the header."""
        endpoint, channel, departure = self._endpoint, request.channel, request.departure
        wire, address, data = request.wire, 0, b""
        if not wire.is_cpu:
            flags |= ON_DEVICE
            endpoint.transport.expose(channel.peer, request.slot, wire)
        elif wire.nbytes <= LONGEST:
            flags, data = flags | INLINE, string_at(wire.data_ptr(), wire.nbytes)
            request.wire = None
        else:
            address = endpoint.transport.expose(channel.peer, request.slot, wire)
        when = departure.entry, departure.stamp
        head = HEAD.pack(channel.number, flags, wall, request.slot, address, *when, request.form)
        while True:
            try:
                channel.write(head + data)
                break
            except BlockingIOError:  # it has not read those before
                room = partial(endpoint.pipes.has_room, channel.peer)
                endpoint.waiting.wait(Room(request, room), "send", lane, times)
        if endpoint.pipes.written is not None:
            endpoint.pipes.wrote(channel.peer)

    def _wait_for_room(self, request: SendRequest, lane: Any, times: list[Any]) -> None:
        """Wait until one more of this rank's messages can be in flight."""
        endpoint = self._endpoint

        def room() -> bool:
            return not endpoint.pacing.full() and endpoint.outstanding.begin(request)

        endpoint.waiting.wait(Room(request, room), "send", lane, times)

    def _receive(
        self, tensor: torch.Tensor, src: int, tag: int, op: str, posted_at: float
    ) -> ReceiveRequest:
        endpoint = self._endpoint
        plain = type(src) is type(tag) is int
        channel = (self._incoming.get((src, tag)) if plain else None) or self._from(src, tag)
        if self.log.watched:
            self.log.snapshot()
        form = form_of(tensor.shape, tensor.dtype)
        request = ReceiveRequest(endpoint, channel, tensor, form, op, posted_at)
        endpoint.matching.post(channel, request)
        if request.header is not None and (truncation := request.truncation()):
            raise truncation
        return request

    def _earliest(
        self,
        tensor: torch.Tensor,
        listed: Collection[int] | None,
        tag: int,
        op: str,
        times: list[Any],
        deadline: float | None,
    ) -> tuple[ReceiveRequest, int] | tuple[None, None]:
        """Receive the earliest message from any source, or any `listed` one; returns that too, None
        and None where the deadline has passed."""
        while True:
            src = self._first(tensor, listed, tag, times, deadline)
            if src is None:
                return None, None
            request = self._receive(tensor, src, tag, op, posted_at=NAN)
            try:
                request.finish("recv", self.recorder.lane, times)
            except RankLost:  # and its message with it
                continue
            return request, src

    def _first(
        self,
        tensor: torch.Tensor | None,
        listed: Collection[int] | None,
        tag: int,
        times: list[Any] | None,
        deadline: float | None,
    ) -> int | None:
        """The source of the earliest message with `tag` that nobody has claimed; None once the
        deadline has passed, which is then the lane's time."""
        if listed is not None and not listed:
            raise ValueError(f"src={listed!r} lists no rank to receive from: name one or more.")
        lane, waiting = self.recorder.lane, self.waiting
        lane.pace.begin()
        sources = listed or [rank for rank in range(self.size) if rank != self.rank]
        channels = [self._from(rank, tag) for rank in sources]
        first = AnySource(channels, listed is not None, lane.pace, self._key(tag), tensor, deadline)
        if deadline is not None:
            waiting.collect()  # what came before a past deadline
        if not first.done:
            lane.pace.settle()  # messages come in meanwhile
        waiting.wait(first, "recv", lane, times)
        if first.found is None:
            lane.pace.wait_until(deadline)
            lane.pace.settle()
            return None
        return self.members.index(first.found.src)

    # -- channels ------------------------------------------------------------------------------
    def _to(self, dst: int, tag: int) -> Channel:
        peer, key = self._peer(dst, "dst"), self._key(tag)
        channel = self._endpoint.matching.to(peer, key)
        return self._outgoing.setdefault((int(dst), int(tag)), channel)

    def _from(self, src: int, tag: int) -> Channel:
        peer, key = self._peer(src, "src"), self._key(tag)
        channel = self._endpoint.matching.source(peer, key)
        return self._incoming.setdefault((int(src), int(tag)), channel)

    def _peer(self, rank: int, name: str) -> int:
        found = check_rank(self, name, rank)
        if found == self.rank:
            raise ValueError(f"{name}={found} is this rank itself: name another rank.")
        return self.members[found]

    def _key(self, tag: int) -> int:
        found = whole_number(tag)
        if found is None or not 0 <= found <= TAGS:
            raise ValueError(f"tag={tag!r} is out of range: use 0 to {TAGS}.")
        return (self.number << TAG_BITS) | found

    # -- groups --------------------------------------------------------------------------------
    def split(self, color: int | None, key: int | None = None) -> Comm | None:
        """A Comm of the ranks that gave the same `color`, ordered by `key` (then by rank); None
        for color None. Every rank of this Comm must call it."""
        if color is not None:
            color = check_whole("split", "color", color, 0, MOST)
        if key is not None:
            key = check_whole("split", "key", key, -MOST, MOST)
        found = colors(self, color, self.rank if key is None else key)
        if found is None:
            return None
        number, members, place = found
        return Comm(self.process, members, number, f"{self.name}/{place}")

    def mesh(self, **axes: int) -> Mesh:
        """Arrange the ranks in a grid with named axes, the last one fastest: `comm.mesh(dp=2,
        pp=4).pp` is this rank's row of four."""
        return Mesh.of(self, axes)

    def lane(self, name: str) -> Lane:
        """A thread of this rank that runs what is submitted to it, in order, beside the caller,
        with a Comm of its own; its spans lie on lane `name`. Every rank of this Comm must call
        it."""
        check_text("lane", "name", name)
        number = torch.tensor([self.groups.next])
        self.all_reduce(number, "max")
        self.groups.next = int(number) + 1
        comm = Comm(self.process, self.members, int(number), f"{self.name}.{name}")
        return Lane(comm, name, self.process.lanes)

    def shared(self, tensor: torch.Tensor) -> Shared:
        """Put rank 0's `tensor` into memory that all ranks share: an object with `tensor`, the
        same on every rank, and `lock()`. Every rank of this Comm must call it, with a tensor of
        that shape and dtype. It is freed with the run. The ranks are on one host."""
        return share(self, tensor)

    # -- ranks that are lost ---------------------------------------------------------------------
    @property
    def lost(self) -> dict[int, str]:
        """The ranks that the run has lost (see `launch`, `may_lose`), as far as this one knows, and
        how: {1: "was killed by signal 9"}."""
        self.waiting.collect()
        lost = self.waiting.lost
        return {rank: lost[member] for rank, member in enumerate(self.members) if member in lost}

    def together(self, act: Callable[[Comm], T], needed: Collection[int] = ()) -> T:
        """What `act(left)` returns; `left` is a Comm of these ranks without those that the run has
        lost. All of them must call it. If one is lost meanwhile, the others repeat `act` without
        it, even those that had finished it: in the end all have done the same.

        Raises RankLost if one of `needed` is lost.
        """
        if not callable(act):
            raise TypeError(f"together: act={act!r} cannot be called: give a function of a Comm.")
        if not isinstance(needed, Collection) or isinstance(needed, str):
            raise TypeError(f"together: needed={needed!r} lists no ranks: give ({needed!r},), say.")
        return together(self, act, [check_rank(self, "needed", rank) for rank in needed])

    # -- time, buffers, progress -----------------------------------------------------------------
    @property
    def step(self) -> int:
        """The step of this lane, recorded with messages and snapshots: the round of a collective,
        else the `step` of the innermost span that has one; -1 without."""
        return step_of(self.recorder.lane)

    def now(self) -> float:
        """Seconds from the run's start by the clock that the Trace's `start` and `end` are read
        from: on a paced run the device's, of this lane."""
        pace = self.recorder.lane.pace
        pace.begin()
        return pace.now()

    def compute(
        self, kind: str, name: str | None = None, seconds: float | None = None, **fields: Any
    ) -> Any:
        """Record the math inside the `with`. On a paced run it takes `seconds` of device time, by
        default what the machine says for `kind`."""
        check_text("compute", "kind", kind)
        if seconds is not None and (not _is_finite(seconds) or seconds < 0):
            raise ValueError(
                f"compute: seconds={seconds!r} has to be a finite number, 0 or more: leave it out "
                "for what the machine says."
            )
        return self.recorder.lane.pace.compute(self.recorder, kind, name, seconds, fields)

    def beside(self, kind: str, name: str | None = None, **fields: Any) -> Any:
        """Record, on lane compute2, math that runs at the same time as the `compute` inside."""
        check_text("beside", "kind", kind)
        self.recorder.lane.pace.begin()
        return self.recorder.beside(kind, name, fields)

    def begin(self) -> None:
        """On a paced run, start what follows when the program reaches it, however long its setup
        took: setup is not the device's work."""
        self.recorder.lane.pace.restart()

    def start_line(self) -> None:
        """All ranks go on together once the last has arrived, however long its setup took; on a
        paced run START_LINE later, when each of their processes is ready."""
        self.recorder.lane.pace.restart(START_LINE)
        self.barrier()

    def hold(self) -> None:
        """On a paced run sleep off this lane's debt now (before a write to shared memory, say)."""
        self.recorder.lane.pace.settle()

    def watch(self, tensor: torch.Tensor, name: str = "buffer") -> None:
        """Locate messages in `tensor` (contiguous) by offset and count, and record a snapshot of it
        at each communication call of this rank from now on."""
        check_tensor("watch", tensor)
        check_text("watch", "name", name)
        if not tensor.is_contiguous():
            raise ValueError(
                f"the tensor {name!r} is not contiguous: watch tensor.contiguous() or its base."
            )
        self.log.watch(tensor, name)

    def moving(self, tensor: torch.Tensor | None) -> AbstractContextManager[None]:
        """Inside, what `tensor` holds, if it is watched, is where `moved` says: an algorithm has it
        in another form."""
        if tensor is not None:
            check_tensor("moving", tensor)
        return self.log.moving(tensor)

    def moved(self, tensor: torch.Tensor) -> None:
        """What the tensor of `moving` holds is in this one from now on."""
        check_tensor("moved", tensor)
        self.log.move(tensor)

    @property
    def moves(self) -> str | None:
        """The name of the watched tensor of `moving`."""
        return None if self.log.moved is None else self.log.moved.name

    def snapshot(self) -> None:
        """Record what the watched tensors hold now: a rank has changed one without
        communicating."""
        self.log.snapshot()

    def memory(self, what: str, nbytes: int) -> None:
        """Record that this rank now holds `nbytes` of `what`."""
        check_text("memory", "what", what)
        nbytes = check_whole("memory", "nbytes", nbytes, 0, MOST)
        self.log.hold(what, nbytes)

    def progress(self, iterable: Iterable[T], name: str = "") -> Iterator[T]:
        """Go through `iterable` and show a progress bar beside the cell or command that launched
        the run."""
        if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
            raise TypeError(f"progress: {iterable!r} cannot be gone through: give a range, say.")
        check_text("progress", "name", name)
        return self._progress(iterable, name)

    def _progress(self, iterable: Iterable[T], name: str) -> Iterator[T]:
        board, rank = self._endpoint.board, self._endpoint.rank
        board.put(rank, DONE, 0)
        board.put(rank, TOTAL, len(iterable) if isinstance(iterable, Sized) else 0)
        self.process.announce("progress", name)
        for number, item in enumerate(iterable):
            yield item
            board.put(rank, DONE, number + 1)


def _check_deadline(deadline: Any, call: str = "recv") -> float:
    if not _is_finite(deadline):
        raise ValueError(
            f"{call}: deadline={deadline!r} has to be a finite number, seconds of the run's clock: "
            "give comm.now() + 0.2, say, or None to wait for as long as it takes."
        )
    return deadline


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _check_order(call: str, tensor: Any, peer: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        given = ", ".join(type(each).__name__ for each in (tensor, peer))
        raise TypeError(f"{call}({given}) has no tensor: the tensor comes first, then the rank.")
    check_tensor(call, tensor)


def _sources(src: Any) -> int | list[Any]:
    """A rank, or those that a collection lists."""
    if whole_number(src) is None and isinstance(src, Collection):
        return [*src]
    return src


def _requests(requests: Any) -> list[SendRequest]:
    found = [*requests] if isinstance(requests, Iterable) else [requests]
    for each in found:
        if not isinstance(each, SendRequest):
            raise TypeError(
                f"wait_sent: {each!r} is no send in flight: give a list of what isend returned."
            )
    return found
