"""Comm: what a rank sends, receives and computes, spelled as torch.distributed spells it.

Messages travel over gloo. Beside each goes a header on the board (see board.py): who sends how
much of what, and on a paced run when it arrives. That is how a receive that does not fit is
refused before a byte moves, how a receive from any source picks the earliest message, and how the
parent knows who waits for whom. Every message, collective and wait is recorded; `Comm` is the
only place that records messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from math import nan as NAN
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from dlviz import sim
from dlviz.cluster.board import CODES, DONE, SYNC, TOTAL, Mail, describe
from dlviz.cluster.clock import START_LINE, sleep_until
from dlviz.cluster.mail import fits
from dlviz.cluster.process import Process, Watched, algorithm_step
from dlviz.cluster.waits import TAG_BITS, TAGS
from dlviz.trace.recorder import Recorder, Span, caller

if TYPE_CHECKING:
    from dlviz.cluster.lanes import Lane

T = TypeVar("T")
REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
POLL, LONGEST_POLL = 2e-5, 5e-4  # s between two looks for a message from any source
CALLS = (
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
)


class Request:
    """A send or receive under way. `wait()` ends it: the tensor may then be reused, or holds the
    message."""

    def __init__(
        self, comm: Comm, peer: int, tag: int, index: int, tensor: torch.Tensor, wire: torch.Tensor
    ):
        self._comm = comm
        self._peer = peer
        self._tag = tag
        self._index = index
        self._tensor = tensor
        self.wire = wire  # what gloo sends or fills: contiguous and on the CPU
        self.work: Any = None
        comm.process.pending.add(self)  # gloo needs the tensor alive until the message has gone

    def _await(self, op: str) -> None:
        process = self._comm.process
        process.post(
            op,
            peer=self._peer,
            tag=self._tag,
            index=self._index,
            shape=tuple(self._tensor.shape),
            dtype=_name(self._tensor),
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
        if self in self._comm.process.pending:
            with self._comm.span("wait", f"send to rank {self._peer}", peer=self._peer):
                self._await("isend")
                self._settle(self.stamp)

    def wait_taken(self) -> None:
        """The synchronous send: return when the receiver has taken the message."""
        self._await("send")
        if self._comm.process.clock is not None:
            mail = self._comm.process.mail
            while (note := mail.was_taken(self._peer, self._tag, self._index)) is None:
                time.sleep(POLL)
            self._settle(max(self.stamp, note.stamp))

    def _settle(self, until: float) -> None:
        clock = self._comm.process.recorder.lane.clock
        if clock is not None:
            clock.wait_until(until)
            clock.settle()


class ReceiveRequest(Request):
    op = "copy"
    direct = True  # gloo writes into the tensor itself

    def wait(self) -> None:
        """Return when the message is in the tensor (added to it, where op="add")."""
        if self in self._comm.process.pending:
            with self._comm.span(
                "wait", f"for rank {self._peer}", peer=self._peer, message=self.message
            ):
                self.finish("irecv")

    @property
    def message(self) -> tuple[int, int, int, int]:
        return self._peer, self._comm.process.rank, self._tag, self._index

    def finish(self, name: str) -> None:
        process = self._comm.process
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


class Comm:
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
        self.recorder = process.recorder
        self._group: Any = None

    def __repr__(self) -> str:
        return f"Comm({self.name}, rank {self.rank} of {self.size})"

    # -- messages ------------------------------------------------------------------------------
    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> SendRequest:
        """Start to send `tensor` to `dst` and return at once; do not write to it before
        `wait()`."""
        peer, tag, index = self._address(dst, tag)
        with self.span("send", f"to rank {peer}", **self._labels(tensor, peer, tag, index)):
            return self._send(tensor, peer, tag, index, flags=0)

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        """Send `tensor` to `dst`; returns when the receiver has taken it (so two ranks that both
        send first wait for each other for ever)."""
        peer, tag, index = self._address(dst, tag)
        with self.span("send", f"to rank {peer}", **self._labels(tensor, peer, tag, index)):
            self._send(tensor, peer, tag, index, flags=SYNC).wait_taken()

    def irecv(
        self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy"
    ) -> ReceiveRequest:
        """Start to receive from `src` into `tensor`, which holds the message after `wait()`; with
        op="add" the message is added to what the tensor holds. ValueError where shape or dtype
        cannot take the message."""
        return self._receive(tensor, self._peer(src, "src"), self._tag(tag), op)

    def recv(
        self, tensor: torch.Tensor, src: int | None = None, tag: int = 0, op: str = "copy"
    ) -> int:
        """Receive into `tensor` from `src`, or from whichever message comes first; returns the
        source."""
        with self.span("recv") as span:
            tag = self._tag(tag)
            peer = self._first(tensor, tag) if src is None else self._peer(src, "src")
            request = self._receive(tensor, peer, tag, op)
            span.annotate(f"from rank {peer}", peer=peer, message=request.message)
            request.finish("recv")
        return self.members.index(peer)

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

    def _address(self, dst: int, tag: int) -> tuple[int, int, int]:
        peer, tag = self._peer(dst, "dst"), self._tag(tag)
        return peer, tag, self.process.mail.number(self.process.mail.sent, peer, tag)

    def _labels(self, tensor: torch.Tensor, peer: int, tag: int, index: int) -> dict[str, Any]:
        nbytes = tensor.numel() * tensor.element_size()
        return {"peer": peer, "nbytes": nbytes, "message": (self.process.rank, peer, tag, index)}

    def _send(
        self, tensor: torch.Tensor, peer: int, tag: int, index: int, flags: int
    ) -> SendRequest:
        process, lane = self.process, self.recorder.lane
        process.snapshot()
        nbytes = tensor.numel() * tensor.element_size()
        request = SendRequest(self, peer, tag, index, tensor, _wire(tensor))
        sent = stamp = NAN
        if lane.clock is not None:
            lane.clock.begin()
            sent, stamp = lane.clock.device.send(peer, nbytes, lane.clock.free)
            request.stamp = stamp
        wall = perf_counter_ns()
        mail = Mail(
            tag, index, _code(tensor), nbytes, tuple(tensor.shape), flags, wall, stamp, sent
        )
        if process.mail.full(peer):
            process.post("send", peer=peer, tag=tag, index=index)
            while process.mail.full(peer):
                time.sleep(POLL)
            process.unpost()
        note = process.mail.post(peer, mail)
        if note is not None and not fits(mail, note):
            raise ValueError(_misfit(process.rank, peer, mail, note))
        try:
            request.work = process.gloo.send([request.wire], peer, tag)
        except RuntimeError as error:
            raise PeerLost(f"rank {process.rank} lost rank {peer}: {error}") from None
        if process.recorder.on:
            process.sends.append(
                (process.rank, peer, tag, index, nbytes, tensor.numel(), process.locate(tensor),
                 sent, stamp, wall, self.name, algorithm_step(lane.context))
            )  # fmt: skip
        return request

    def _receive(self, tensor: torch.Tensor, peer: int, tag: int, op: str) -> ReceiveRequest:
        if op not in ("copy", "add"):
            raise ValueError(f"op={op!r} is no way to receive: use 'copy' or 'add'.")
        process, mail = self.process, self.process.mail
        process.snapshot()
        nbytes = tensor.numel() * tensor.element_size()
        index = mail.claimed.get((peer, tag), 0)
        posted = Mail(tag, index, _code(tensor), nbytes, tuple(tensor.shape), 0, perf_counter_ns())
        letter = mail.look(peer, tag, index)
        if letter is None:
            mail.notice(peer, posted)
            letter = mail.look(peer, tag, index)
        if letter is not None and not fits(letter.mail, posted):
            raise ValueError(_misfit(peer, process.rank, letter.mail, posted))
        mail.number(mail.claimed, peer, tag)
        direct = op == "copy" and tensor.is_contiguous() and tensor.device.type == "cpu"
        wire = tensor.detach() if direct else torch.empty(tensor.shape, dtype=tensor.dtype)
        request = ReceiveRequest(self, peer, tag, index, tensor, wire)
        request.op = op
        request.direct = direct
        try:
            request.work = process.gloo.recv([wire], peer, tag)
        except RuntimeError as error:
            raise PeerLost(f"rank {process.rank} lost rank {peer}: {error}") from None
        return request

    def _first(self, tensor: torch.Tensor, tag: int) -> int:
        """The source of the earliest message with `tag` that nobody has claimed."""
        process, mail = self.process, self.process.mail
        clock = self.recorder.lane.clock
        if clock is not None:
            clock.begin()
        others = tuple(peer for peer in self.members if peer != process.rank)
        process.post(
            "recv", tag=tag, members=others, shape=tuple(tensor.shape), dtype=_name(tensor)
        )
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
                first = min(ready, key=lambda letter: letter.mail.stamp)
                due = clock.device.wall(first.mail.stamp)
                if perf_counter_ns() >= due:
                    break
                sleep_until(due)  # and look again: an earlier one may come meanwhile
            else:
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST_POLL)
        process.unpost()
        return first.src

    # -- the backend's own collectives -----------------------------------------------------------
    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._collective("barrier", None, lambda group: group.barrier())
        self.hold()

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Copy `tensor` of `root` into `tensor` of every rank."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = self._root(root), 0
        wire = _wire(tensor)
        self._collective("broadcast", tensor, lambda group: group.broadcast([wire], options), root)
        _put(tensor, wire)

    def reduce(self, tensor: torch.Tensor, root: int = 0, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks into `tensor` of `root`; the other ranks' holds no
        result."""
        options = dist.ReduceOptions()
        options.rootRank, options.reduceOp = self._root(root), _reduction(op)
        wire = _wire(tensor)
        self._collective("reduce", tensor, lambda group: group.reduce([wire], options), root)
        _put(tensor, wire)

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks, in place on every rank; `op` is sum, max, min or prod."""
        options = dist.AllreduceOptions()
        options.reduceOp = _reduction(op)
        wire = _wire(tensor)
        self._collective("all_reduce", tensor, lambda group: group.allreduce([wire], options))
        _put(tensor, wire)

    def all_gather(self, out: torch.Tensor | Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
        """Gather every rank's `tensor`, in rank order, into `out`: one tensor of size times its
        elements, or a list of `size` tensors."""
        wire, whole = _wire(tensor), self._whole(out, tensor, "out")
        self._collective(
            "all_gather", tensor, lambda group: group._allgather_base(whole, wire), scale=self.size
        )
        _put(out, whole)

    def reduce_scatter(
        self, out: torch.Tensor, tensor: torch.Tensor | Sequence[torch.Tensor], op: str = "sum"
    ) -> None:
        """Reduce `tensor` (size times the elements of `out`, or a list) over all ranks and leave
        part r of the result in `out` of rank r."""
        options = dist.ReduceScatterOptions()
        options.reduceOp = _reduction(op)
        wire, whole = _wire(out), self._whole(tensor, out, "tensor")
        self._collective(
            "reduce_scatter",
            out,
            lambda group: group._reduce_scatter_base(wire, whole, options),
            scale=self.size,
        )
        _put(out, wire)

    def all_to_all(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        """Send part r of `tensor` to rank r and put what rank r sent into part r of `out`; the
        parts are equal and lie along dim 0."""
        if tensor.numel() % self.size or out.numel() != tensor.numel():
            raise ValueError(
                f"tensor of {tensor.numel()} elements and out of {out.numel()} cannot be "
                f"exchanged by {self.size} "
                f"ranks: make both the same multiple of {self.size}."
            )
        wire, whole = _wire(tensor), torch.empty(tensor.shape, dtype=tensor.dtype)
        self._collective(
            "all_to_all", tensor, lambda group: group.alltoall_base(whole, wire, [], [])
        )
        _put(out, whole)

    def _whole(
        self, parts: torch.Tensor | Sequence[torch.Tensor], part: torch.Tensor, name: str
    ) -> torch.Tensor:
        whole = (
            _wire(parts)
            if isinstance(parts, torch.Tensor)
            else torch.cat([_wire(p).flatten() for p in parts])
        )
        if whole.numel() != self.size * part.numel() or whole.dtype != part.dtype:
            raise ValueError(
                f"{name} holds {whole.numel()} elements of {_name(whole)}: {self.size} ranks "
                f"with {part.numel()} of "
                f"{_name(part)} each need {self.size * part.numel()}."
            )
        return whole.flatten()

    def _root(self, root: int) -> int:
        if not isinstance(root, int) or not 0 <= root < self.size:
            raise ValueError(f"root={root!r} is no rank of {self}: use 0 to {self.size - 1}.")
        return root

    def _collective(
        self, op: str, tensor: torch.Tensor | None, call: Any, root: int = -1, scale: int = 1
    ) -> None:
        process, clock = self.process, self.recorder.lane.clock
        process.snapshot()
        sequence = process.calls.get(self.number, 0)
        process.calls[self.number] = sequence + 1
        code, shape = (0, ()) if tensor is None else (_code(tensor), tuple(tensor.shape))
        nbytes = 0 if tensor is None else tensor.numel() * tensor.element_size() * scale
        process.board.post_call(
            process.rank, self.number, sequence, CALLS.index(op), code, root, shape
        )
        self._compare(sequence)
        if clock is not None:
            clock.begin(START_LINE)
        with self.span("collective", op, group=self.name, sequence=sequence, nbytes=nbytes):
            process.post(
                op, group=self.name, group_id=self.number, members=self.members, sequence=sequence,
                shape=None if tensor is None else shape,
                dtype="" if tensor is None else _name(tensor),
            )  # fmt: skip
            try:
                start = 0.0 if clock is None else self._latest(clock)
                call(self.group).wait()
            except RuntimeError as error:
                raise PeerLost(f"rank {process.rank} lost a rank of {self.name}: {error}") from None
            process.unpost()
            if clock is not None and self.size > 1:
                links = [
                    clock.device.path(a, b) for a in self.members for b in self.members if a != b
                ]
                alpha = max(path.latency for path in links)
                beta = 1 / min(path.bandwidth for path in links)
                clock.wait_until(
                    start
                    + sim.collective_seconds(op, self.size, nbytes, alpha, beta, process.gamma)
                )
        process.snapshot()

    def _compare(self, sequence: int) -> None:
        """Raise if another member made another call under this sequence number."""
        process = self.process
        mine = process.board.read_call(process.rank, self.number, sequence)
        for member in self.members:
            other = process.board.read_call(member, self.number, sequence)
            if other is not None and other != mine:
                raise ValueError(
                    f"collective mismatch: as call number {sequence} in group {self.name}, rank "
                    f"{process.rank} makes "
                    f"{_call(mine)} and rank {member} makes {_call(other)}; all ranks of a group "
                    "must make the same "
                    "calls in the same order."
                )

    def _latest(self, clock: Any) -> float:
        """The latest rank's device time."""
        latest = torch.tensor([clock.free], dtype=torch.float64)
        options = dist.AllreduceOptions()
        options.reduceOp = _reduction("max")
        self.group.allreduce([latest], options).wait()
        return float(latest)

    @property
    def group(self) -> Any:
        """The gloo group of these ranks (made when first used)."""
        if self._group is None:
            self._group = self.process.make_group(f"{self.name}.{self.number}", self.members)
        return self._group

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
            return self.span(kind, name, **fields)
        machine = clock.device.machine
        return Compute(
            self.recorder, kind, name, machine.seconds(kind) if seconds is None else seconds, fields
        )

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


class Compute(Span):
    """An operation of a paced run: it starts when the device is free and takes its modelled
    seconds."""

    __slots__ = ("seconds",)

    def __init__(
        self,
        recorder: Recorder,
        kind: str,
        name: str | None,
        seconds: float,
        fields: dict[str, Any],
    ):
        super().__init__(recorder.lane, kind, name, fields, *caller(2))
        self.seconds = seconds

    def __enter__(self) -> Span:
        self.lane.clock.begin()
        self.lane.clock.settle()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self.lane.clock.compute(self.seconds, perf_counter_ns() - self.start)
        super().__exit__(*error)


class Mesh:
    """Named axes of a grid of ranks, each a Comm."""

    def __init__(self, **axes: Comm):
        self.__dict__.update(axes)

    def __getattr__(self, name: str) -> Comm:
        raise AttributeError(f"the mesh has no axis {name!r}: it has {', '.join(self.__dict__)}")


def _wire(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as gloo takes it: on the CPU and contiguous (itself where it is)."""
    return tensor.detach().to("cpu").contiguous()


def _put(target: torch.Tensor | Sequence[torch.Tensor], wire: torch.Tensor) -> None:
    """Copy a result back to where the caller wants it, unless it is there."""
    with torch.no_grad():
        if not isinstance(target, torch.Tensor):
            for part, values in zip(target, wire.chunk(len(target)), strict=True):
                part.copy_(values.view(part.shape))
        elif target.data_ptr() != wire.data_ptr() or target.device != wire.device:
            target.copy_(wire.view(target.shape))


def _code(tensor: torch.Tensor) -> int:
    code = CODES.get(tensor.dtype)
    if code is None:
        raise ValueError(f"a tensor of {_name(tensor)} cannot be sent: convert it, to float32 say.")
    return code


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _reduction(op: str) -> Any:
    if op not in REDUCE:
        raise ValueError(f"op={op!r} is no reduction: use one of {', '.join(REDUCE)}.")
    return REDUCE[op]


def _misfit(src: int, dst: int, sent: Mail, posted: Mail) -> str:
    return (
        f"message mismatch: message number {sent.index} from rank {src} to rank {dst} has "
        f"{sent.describe()} "
        f"({sent.nbytes} bytes) and rank {dst} receives it into {posted.describe()} "
        f"({posted.nbytes} bytes); send and "
        "receive the same number of elements of the same dtype."
    )


def _call(call: tuple[int, int, int, tuple[int, ...]] | None) -> str:
    if call is None:
        return "a call that is no longer on record"
    operation, dtype, root, shape = call
    tensor = "" if CALLS[operation] == "barrier" else f" of {describe(shape, dtype)}"
    return f"{CALLS[operation]}{tensor}{f' from root {root}' if root >= 0 else ''}"
