"""The backend's own collectives, for code in which the collective is not the lesson.

Each call is compared with the other ranks' calls under the same sequence number before any data
moves. Ranks that can read each other's memory synchronize in shared memory and copy what they need
(control/group.py); otherwise gloo does it. Tensors on GPUs go by NCCL if each rank has a GPU of its
own, else through the host. On a paced run a collective starts at the latest rank's clock and lasts
as long as `dlviz.sim` says.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from dlviz.cluster.control.form import NO_TENSOR, describe, dtype_name, form_of
from dlviz.cluster.control.group import Group
from dlviz.cluster.control.waiting import raise_if_lost
from dlviz.cluster.groups.reduction import reduce_all, reduce_slice
from dlviz.cluster.messages.requests import PeerLost
from dlviz.cluster.operations import check_rank, check_tensor, reduction, renamed
from dlviz.cluster.pacing.clock import START_LINE
from dlviz.cluster.process import Process
from dlviz.cluster.transport import wire_of

GLANCE = 1e-3  # s between two looks at gloo's work
ON_DEVICE = 64  # added to the operation of a call whose tensor NCCL takes
TYPES = {  # of elements that NCCL can add up
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool,
}  # fmt: skip
CALLS = (
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "shared",
    "broadcast_object",
    "all_gather_object",
    "sparse_doubling",
    "sparse_split",
    "sparse_dense",
)
NUMBERS = {name: number for number, name in enumerate(CALLS)}
ROOTS = {  # others: from src
    "reduce": "to dst", "gather": "to dst", "all_reduce": "at server", "sparse_dense": "with bits",
}  # fmt: skip


class Collectives:
    """The part of a Comm that calls the backend's collectives."""

    def __init__(self, process: Process, members: tuple[int, ...], number: int, name: str):
        self.process = process
        self.recorder = process.recorder
        self.log = process.log
        self.waiting = process.waiting
        self.groups = process.groups
        self.groups.add(number, name, members)
        self.members = members
        self.name = name
        self.number = number
        self.size = len(members)
        self.rank = members.index(process.rank)
        self._group: Group | None = None
        self._gloo: Any = None
        self._nccl: Any = None
        self._transport: Any = process.transport.among(members)
        if self._transport.device is not None and self.size > 1:  # all its ranks are here
            self._nccl = self._transport.join(f"{name}.{number}", members)

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self.collective("barrier", None, lambda call: None)
        self.recorder.lane.pace.settle()

    @renamed("root", "src")
    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> None:
        """Copy `tensor` of rank `src` into `tensor` of every rank."""
        check_tensor("broadcast", tensor)
        self._broadcast("broadcast", tensor, check_rank(self, "src", src))

    def _broadcast(self, name: str, tensor: torch.Tensor, src: int) -> None:
        wire = self._wire(tensor)

        def copy(call: Call) -> None:
            if self._by_backend(wire):
                options = dist.BroadcastOptions()
                options.rootRank, options.rootTensor = src, 0
                self._carry(wire, lambda backend: backend.broadcast([wire], options))
                return
            with self.group.shown(wire, call) as read:
                if self.rank != src:
                    read(src, 0, wire)

        self.collective(name, tensor, copy, src)
        _put(tensor, wire)

    @renamed("root", "dst")
    def reduce(self, tensor: torch.Tensor, dst: int = 0, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks into `tensor` of rank `dst`; on other ranks it holds no
        result. `op` as in `all_reduce`."""
        self._reduce("reduce", tensor, op, check_rank(self, "dst", dst))

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks, in place on every rank; `op` is sum, avg (of floating
        point), max, min or product."""
        self._reduce("all_reduce", tensor, op)

    def all_gather(self, out: torch.Tensor | Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
        """Gather every rank's `tensor`, in rank order, into `out`: one tensor of size times its
        elements, or a list of `size` tensors."""
        check_tensor("all_gather", tensor)
        self._all_gather("all_gather", out, tensor)

    def _all_gather(
        self, name: str, out: torch.Tensor | Sequence[torch.Tensor], tensor: torch.Tensor
    ) -> None:
        wire = self._wire(tensor)
        whole = self._whole(name, out, wire, "out")

        def gather(call: Call) -> None:
            if self._by_backend(wire):
                row = wire.view(-1)
                self._carry(wire, lambda backend: backend._allgather_base(whole, row))
                return
            with self.group.shown(wire, call) as read:
                for place, part in enumerate(whole.chunk(self.size) if len(whole) else ()):
                    read(place, 0, part)

        self.collective(name, tensor, gather, scale=self.size)
        _put(out, whole)

    def gather(
        self,
        tensor: torch.Tensor,
        gather_list: torch.Tensor | Sequence[torch.Tensor] | None = None,
        dst: int = 0,
    ) -> None:
        """Gather every rank's `tensor`, in rank order, into `gather_list` of rank `dst`: a list of
        `size` tensors, or one of size times the elements; None on other ranks."""
        check_tensor("gather", tensor)
        dst = check_rank(self, "dst", dst)
        wire, here = self._wire(tensor), self._holds("gather", "gather_list", gather_list, dst)
        whole = self._whole("gather", gather_list, wire, "gather_list") if here else wire
        parts = [*whole.view(self.size, wire.numel())] if here else []

        def move(call: Call) -> None:
            if self._by_backend(wire):
                options = dist.GatherOptions()
                options.rootRank = dst
                into, row = [parts] if here else [], wire.view(-1)
                self._carry(wire, lambda backend: backend.gather(into, [row], options))
                return
            with self.group.shown(wire, call) as read:
                for place, part in enumerate(parts):
                    read(place, 0, part)

        self.collective("gather", tensor, move, dst, scale=self.size)
        if gather_list is not None:
            _put(gather_list, whole)

    def scatter(
        self,
        tensor: torch.Tensor,
        scatter_list: torch.Tensor | Sequence[torch.Tensor] | None = None,
        src: int = 0,
    ) -> None:
        """Put part r of `scatter_list` of rank `src` (a list of `size` tensors, or one of size
        times the elements; None on other ranks) into `tensor` of rank r."""
        check_tensor("scatter", tensor)
        src = check_rank(self, "src", src)
        wire, here = self._wire(tensor), self._holds("scatter", "scatter_list", scatter_list, src)
        whole = self._whole("scatter", scatter_list, wire, "scatter_list") if here else None

        def move(call: Call) -> None:
            if self._by_backend(wire):
                options = dist.ScatterOptions()
                options.rootRank = src
                parts = [] if whole is None else [[*whole.view(self.size, wire.numel())]]
                row = wire.view(-1)
                self._carry(wire, lambda backend: backend.scatter([row], parts, options))
                return
            # Elsewhere never read: but all members show as many bytes.
            shown = wire.new_empty(self.size * wire.numel()) if whole is None else whole
            with self.group.shown(shown, call) as read:
                read(src, self.rank * wire.numel(), wire)

        self.collective("scatter", tensor, move, src, scale=self.size)
        _put(tensor, wire)

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        """What `obj` is on rank `src`, pickled there, on every rank (on `src` itself `obj`). Raises
        TypeError where it cannot be pickled."""
        src = check_rank(self, "src", src)
        mine = self._pickled("broadcast_object", obj) if self.rank == src else torch.empty(0)
        length = torch.tensor([len(mine)])
        self._broadcast("broadcast_object", length, src)
        data = mine if self.rank == src else torch.empty(int(length), dtype=torch.uint8)
        self._broadcast("broadcast_object", data, src)
        return obj if self.rank == src else _unpickled(data)

    def all_gather_object(self, object_list: list[Any], obj: Any) -> None:
        """Put every rank's `obj`, pickled there, into `object_list`, which has `size` places, in
        rank order. Raises TypeError where one cannot be pickled."""
        if not isinstance(object_list, list) or len(object_list) != self.size:
            raise ValueError(
                f"all_gather_object: object_list={object_list!r} has to be a list of {self.size} "
                f"places, one for each rank: give [None] * {self.size}; the object comes second."
            )
        mine = self._pickled("all_gather_object", obj)
        lengths = torch.empty(self.size, dtype=torch.int64)
        self._all_gather("all_gather_object", lengths, torch.tensor([len(mine)]))
        row = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        row[: len(mine)] = mine
        rows = torch.empty(self.size, len(row), dtype=torch.uint8)
        self._all_gather("all_gather_object", rows, row)
        for place, length in enumerate(lengths.tolist()):
            object_list[place] = _unpickled(rows[place, :length])

    def reduce_scatter(
        self, out: torch.Tensor, tensor: torch.Tensor | Sequence[torch.Tensor], op: str = "sum"
    ) -> None:
        """Reduce `tensor` (size times the elements of `out`, or a list) over all ranks and leave
        part r of the result in `out` of rank r."""
        check_tensor("reduce_scatter", out, "out")
        op, wire = reduction(op, out), self._wire(out)
        whole, row = self._whole("reduce_scatter", tensor, wire, "tensor"), wire.view(-1)

        def scatter(call: Call) -> None:
            if self._by_backend(wire):
                how = dist.ReduceScatterOptions()
                how.reduceOp = _reduction(op)
                self._carry(wire, lambda backend: backend._reduce_scatter_base(row, whole, how))
                self._average(wire, op)
                return
            start = self.rank * wire.numel()
            with self.group.shown(whole, call) as read:
                reduce_slice(read, self.size, start, row, op)

        self.collective("reduce_scatter", out, scatter, scale=self.size)
        _put(out, wire)

    def all_to_all(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        """Send part r of `tensor` to rank r and put what rank r sent into part r of `out`; the
        parts are equal and lie along dim 0."""
        check_tensor("all_to_all", out, "out")
        check_tensor("all_to_all", tensor)
        if tensor.numel() % self.size or out.numel() != tensor.numel():
            raise ValueError(
                f"tensor of {tensor.numel()} elements and out of {out.numel()} cannot be "
                f"exchanged by {self.size} "
                f"ranks: make both the same multiple of {self.size}."
            )
        wire = self._wire(tensor)
        whole = torch.empty_like(wire).view(-1)

        def exchange(call: Call) -> None:
            if self._by_backend(wire):
                row = wire.view(-1)
                self._carry(wire, lambda backend: backend.alltoall_base(whole, row, [], []))
                return
            with self.group.shown(wire, call) as read:
                part = len(whole) // self.size
                for place in range(self.size):
                    read(place, self.rank * part, whole[place * part : (place + 1) * part])

        self.collective("all_to_all", tensor, exchange)
        _put(out, whole)

    def _reduce(self, name: str, tensor: torch.Tensor, op: str, root: int = -1) -> None:
        """`all_reduce`, or `reduce` to a root."""
        check_tensor(name, tensor)
        op, wire = reduction(op, tensor), self._wire(tensor)

        def total(call: Call) -> None:
            if not self._by_backend(wire):
                reduce_all(self.group, wire, op, call, root)
                return
            if root < 0:
                how = dist.AllreduceOptions()
                how.reduceOp = _reduction(op)
                self._carry(wire, lambda backend: backend.allreduce([wire], how))
            else:
                options = dist.ReduceOptions()
                options.rootRank, options.reduceOp = root, _reduction(op)
                self._carry(wire, lambda backend: backend.reduce([wire], options))
            self._average(wire, op)

        self.collective(name, tensor, total, root)
        _put(tensor, wire)

    def _average(self, wire: torch.Tensor, op: str) -> None:
        """Make an average of a sum, where `op` is one."""
        if op == "avg":
            wire.div_(self.size)

    def _whole(self, call: str, parts: Any, part: torch.Tensor, name: str) -> torch.Tensor:
        """The parts of all ranks as one row: `parts` is a tensor, or a list of as many as ranks."""
        if isinstance(parts, list | tuple):
            for place, each in enumerate(parts):
                check_tensor(call, each, f"{name}[{place}]")
            counts = [each.numel() for each in parts]
            if counts != [part.numel()] * self.size:
                raise ValueError(
                    f"{call}: {name} lists tensors of {counts} elements: give one for each of "
                    f"{self.size} ranks, of {part.numel()} each."
                )
            whole = torch.cat([self._wire(each).flatten() for each in parts])
        else:
            check_tensor(call, parts, name)
            whole = self._wire(parts)
        if whole.is_cpu != part.is_cpu:
            whole = whole.to(part.device)
        if whole.numel() != self.size * part.numel() or whole.dtype != part.dtype:
            raise ValueError(
                f"{call}: {name} holds {whole.numel()} elements of {dtype_name(whole.dtype)}: "
                f"{self.size} ranks with {part.numel()} of "
                f"{dtype_name(part.dtype)} each need {self.size * part.numel()}."
            )
        return whole.view(-1)

    def _holds(self, call: str, name: str, parts: Any, root: int) -> bool:
        """Whether this rank is the root, which alone gives the `parts` of all."""
        here = self.rank == root
        if here == (parts is None):
            raise ValueError(
                f"{call}: rank {self.rank} of {self.name} gives "
                f"{f'no {name}' if here else f'a {name}'}: rank {root} has to, and no other rank."
            )
        return here

    def _pickled(self, call: str, obj: Any) -> torch.Tensor:
        """The bytes of an object of this rank."""
        try:
            data = cloudpickle.dumps(obj)
        except Exception as error:
            raise TypeError(
                f"{call}: the {type(obj).__name__} of rank {self.rank} cannot be pickled "
                f"({error}): give tensors, numbers, lists or dicts."
            ) from None
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    # -- a call --------------------------------------------------------------------------------
    def collective(
        self,
        op: str,
        tensor: torch.Tensor | None,
        move: Callable[[Call], None],
        root: int = -1,
        scale: int = 1,
    ) -> None:
        """Compare the call with the others', and `move` the bytes; recorded, paced and
        registered."""
        lane = self.recorder.lane
        self.log.snapshot()
        sequence = self.agree(op, tensor, root)
        lane.pace.begin(START_LINE)
        nbytes = 0 if tensor is None else tensor.nbytes * scale
        fields = {"group": self.name, "sequence": sequence, "nbytes": nbytes}
        fields |= {"root": self.members[root]} if root >= 0 else {}
        with self.recorder.open("collective", op, fields):
            call = Call(self, op, lane, sequence, tensor)
            if tensor is None or self._by_backend(tensor):
                self.group.rendezvous(call)
            try:
                move(call)
            except OSError:  # a member that had arrived is gone, and its memory with it
                self._ask_why(sequence)
                raise
            lane.pace.collective(call.start, op.removesuffix("_object"), self.members, nbytes)
        self.log.snapshot()

    def agree(self, op: str, tensor: torch.Tensor | None, root: int = -1) -> int:
        """Publish this rank's next collective, `op` of `tensor`, and return its sequence number.
        Raises ValueError, which names both ranks, if another member makes another call; RankLost if
        a member is known to be lost: what it wrote of a call that failed must not pass for this
        one. A collective made of messages begins with it."""
        if op not in NUMBERS:
            raise ValueError(f"op={op!r} is no collective: use one of {', '.join(CALLS)}.")
        if self.waiting.lost:
            self.waiting.met |= self.waiting.lost.keys() & {*self.members}
            raise_if_lost(self.members, self.waiting.lost)
        calls = self.groups.calls
        sequence = calls.get(self.number, 0)
        calls[self.number] = sequence + 1
        form = NO_TENSOR if tensor is None else form_of(tensor.shape, tensor.dtype)
        where = 0 if tensor is None or not self._on_device(tensor) else ON_DEVICE
        self.group.register_call(sequence, (NUMBERS[op] + where, root, form))
        self.compare_calls(sequence)
        return sequence

    def compare_calls(self, sequence: int) -> None:
        """Raise if another member made another call under this sequence number."""
        place = self.group.other_call(sequence)
        if place >= 0:
            self._ask_why(sequence)  # a member that caught RankLost makes another call
            mine, other = (self.group.read_call(each, sequence) for each in (self.rank, place))
            raise ValueError(
                f"collective mismatch: as call number {sequence} in group {self.name}, "
                f"rank {self.members[self.rank]} makes {_call(mine)} and "
                f"rank {self.members[place]} makes {_call(other)}; "
                "all ranks of a group must make the same calls in the same order."
            )

    def _ask_why(self, sequence: int) -> None:
        """A collective has failed: raise RankLost if a member is lost."""
        place = partial(self.place_of, sequence)
        self.waiting.ask_why(self.members, place, "collective", self.recorder.lane)

    def place_of(self, sequence: int) -> dict[str, Any]:
        """The fields of a `Wait` in a collective, besides operation and tensor."""
        return {
            "group": self.name,
            "group_id": self.number,
            "members": self.members,
            "sequence": sequence,
        }

    @property
    def group(self) -> Group:
        """These ranks in shared memory (made when first used)."""
        if self._group is None:
            self._group = self.groups.memory_group(self.number, self.members, self._transport)
        return self._group

    @property
    def gloo(self) -> Any:
        """The gloo group of these ranks (made when first used)."""
        if self._gloo is None:
            name = f"{self.name}.{self.number}"
            if self.waiting.may_lose:  # as in `_wait`
                connecting = Connecting(self, name)
                self.waiting.wait(connecting, "collective", self.recorder.lane)
                self._gloo = connecting.group()
            else:
                self._gloo = self.groups.connect(name, self.members)
        return self._gloo

    def _on_device(self, tensor: torch.Tensor) -> bool:
        """Whether NCCL takes the tensor where it is."""
        if tensor.is_cpu or self._nccl is None or tensor.device != self._transport.device:
            return False
        return tensor.dtype in TYPES and tensor.nbytes > 0

    def _wire(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor contiguous, and on the CPU unless NCCL takes it."""
        return wire_of(tensor, self._transport if self._on_device(tensor) else None)

    def _by_backend(self, tensor: torch.Tensor) -> bool:
        """Whether gloo or NCCL does a collective of it."""
        return not self._transport.reaches or self._on_device(tensor)

    def _carry(self, wire: torch.Tensor, start: Callable[[Any], Any]) -> None:
        """Run the backend's operation that `start` starts."""
        if wire.is_cpu:
            self._wait(start(self.gloo))
        else:
            self._transport.carry(lambda: start(self._nccl))

    def _wait(self, work: Any) -> None:
        try:
            if self.waiting.may_lose:  # gloo would not notice that a rank that it needs is lost
                self.waiting.wait(GlooWork(self, work), "collective", self.recorder.lane)
            work.wait()
        except RuntimeError as error:
            raise self.broken(error) from None

    def broken(self, error: RuntimeError) -> PeerLost:
        """What gloo's error means."""
        return PeerLost(f"rank {self.members[self.rank]} lost a rank of {self.name}: {error}")


class Call:
    """What a rank in a collective waits for: that all members have arrived. `start` is the device
    time of the latest one at their first rendezvous."""

    left = None
    start: Any = None
    _compared = False

    def __init__(
        self, comm: Collectives, op: str, lane: Any, sequence: int, tensor: torch.Tensor | None
    ):
        self.op = op
        self.lane = lane
        self._comm = comm
        self._sequence = sequence
        self._tensor = tensor

    @property
    def done(self) -> bool:
        return self._comm.group.all_arrived

    def give_up(self, lost: dict[int, str]) -> None:
        raise_if_lost(self._comm.members, lost)

    def all_arrived(self, latest: float | None) -> None:
        """All have arrived: the first time, compare their calls."""
        if not self._compared:
            self.start, self._compared = latest, True
            self._comm.compare_calls(self._sequence)

    def details(self) -> dict[str, Any]:
        found = self._comm.place_of(self._sequence)
        if self._tensor is not None:
            found |= {"shape": tuple(self._tensor.shape), "dtype": dtype_name(self._tensor.dtype)}
        return found


class GlooWork:
    """A gloo collective of all members, as something to wait for."""

    left = GLANCE

    def __init__(self, comm: Collectives, work: Any):
        self._comm = comm
        self._work = work

    @property
    def done(self) -> bool:
        return self._work.is_completed()

    def give_up(self, lost: dict[int, str]) -> None:
        raise_if_lost(self._comm.members, lost)

    def details(self) -> dict[str, Any]:
        return self._comm.place_of(self._comm.groups.calls[self._comm.number] - 1)


class Connecting(GlooWork):
    """Making a gloo group, which needs all members, on a thread: it is left behind if one of them
    is lost meanwhile."""

    def __init__(self, comm: Collectives, name: str):
        super().__init__(comm, None)
        self._made: list[Any] = []
        self._thread = threading.Thread(target=self._make, args=(name,), name="dlviz", daemon=True)
        self._thread.start()
        comm.groups.threads.add(self._thread.ident or 0)

    def _make(self, name: str) -> None:
        try:
            self._made.append(self._comm.groups.connect(name, self._comm.members))
        except RuntimeError as error:
            self._made.append(error)

    @property
    def done(self) -> bool:
        return bool(self._made)

    def group(self) -> Any:
        """The group. Raises PeerLost if the connection broke."""
        (made,) = self._made
        if isinstance(made, RuntimeError):
            raise self._comm.broken(made)
        return made


def _put(target: torch.Tensor | Sequence[torch.Tensor], wire: torch.Tensor) -> None:
    """Copy a result back to where the caller wants it, unless it is there."""
    if target is wire:
        return
    with torch.no_grad():
        if not isinstance(target, torch.Tensor):
            for part, values in zip(target, wire.chunk(len(target)), strict=True):
                part.copy_(values.view(part.shape))
        elif target.data_ptr() != wire.data_ptr() or target.device != wire.device:
            target.copy_(wire.view(target.shape))


def _unpickled(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().tobytes())


def _reduction(op: str) -> Any:
    """What the backend does; an average is its sum, divided here: gloo has none."""
    return getattr(dist.ReduceOp, "SUM" if op == "avg" else op.upper())


def _call(call: tuple[int, int, bytes] | None) -> str:
    if call is None:
        return "a call that is no longer on record"
    operation, root, form = call
    tensor = "" if form == NO_TENSOR else f" of {describe(form)}"
    where = " on its GPU" if operation >= ON_DEVICE else ""
    name = CALLS[operation % ON_DEVICE]
    end = f" {ROOTS.get(name, 'from src')}={root}" if root >= 0 else ""
    return f"{name}{tensor}{where}{end}"
