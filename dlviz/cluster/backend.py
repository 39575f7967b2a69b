"""The backend's own collectives, for code in which the collective is not the lesson.

Each call is compared with those that the other ranks of the group made under the same sequence
number before a byte moves. On a paced run it starts at the latest rank's clock and lasts what
`dlviz.sim` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dlviz import sim
from dlviz.cluster.board import FORM, describe, form_of
from dlviz.cluster.clock import START_LINE
from dlviz.cluster.requests import PeerLost, name_of, wire_of

if TYPE_CHECKING:
    from dlviz.cluster.process import Process
    from dlviz.trace import Recorder

REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
CALLS = (
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
)


NO_TENSOR = bytes(FORM.size)


class Collectives:
    """The part of a Comm that calls gloo's collectives."""

    process: Process
    recorder: Recorder
    members: tuple[int, ...]
    name: str
    number: int
    size: int
    rank: int
    _group: Any = None

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._collective("barrier", None, lambda group: group.barrier())
        if self.recorder.lane.clock is not None:
            self.recorder.lane.clock.settle()

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Copy `tensor` of `root` into `tensor` of every rank."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = self._root(root), 0
        wire = wire_of(tensor)
        self._collective("broadcast", tensor, lambda group: group.broadcast([wire], options), root)
        _put(tensor, wire)

    def reduce(self, tensor: torch.Tensor, root: int = 0, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks into `tensor` of `root`; the other ranks' holds no
        result."""
        options = dist.ReduceOptions()
        options.rootRank, options.reduceOp = self._root(root), _reduction(op)
        wire = wire_of(tensor)
        self._collective("reduce", tensor, lambda group: group.reduce([wire], options), root)
        _put(tensor, wire)

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum") -> None:
        """Reduce `tensor` over all ranks, in place on every rank; `op` is sum, max, min or prod."""
        options = dist.AllreduceOptions()
        options.reduceOp = _reduction(op)
        wire = wire_of(tensor)
        self._collective("all_reduce", tensor, lambda group: group.allreduce([wire], options))
        _put(tensor, wire)

    def all_gather(self, out: torch.Tensor | Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
        """Gather every rank's `tensor`, in rank order, into `out`: one tensor of size times its
        elements, or a list of `size` tensors."""
        wire, whole = wire_of(tensor), self._whole(out, tensor, "out")
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
        wire, whole = wire_of(out), self._whole(tensor, out, "tensor")
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
        wire, whole = wire_of(tensor), torch.empty(tensor.shape, dtype=tensor.dtype)
        self._collective(
            "all_to_all", tensor, lambda group: group.alltoall_base(whole, wire, [], [])
        )
        _put(out, whole)

    def _whole(
        self, parts: torch.Tensor | Sequence[torch.Tensor], part: torch.Tensor, name: str
    ) -> torch.Tensor:
        whole = (
            wire_of(parts)
            if isinstance(parts, torch.Tensor)
            else torch.cat([wire_of(p).flatten() for p in parts])
        )
        if whole.numel() != self.size * part.numel() or whole.dtype != part.dtype:
            raise ValueError(
                f"{name} holds {whole.numel()} elements of {name_of(whole)}: {self.size} ranks "
                f"with {part.numel()} of "
                f"{name_of(part)} each need {self.size * part.numel()}."
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
        form = NO_TENSOR if tensor is None else form_of(tensor.shape, tensor.dtype)
        nbytes = 0 if tensor is None else tensor.nbytes * scale
        process.board.post_call(process.rank, self.number, sequence, CALLS.index(op), root, form)
        self._compare(sequence)
        if clock is not None:
            clock.begin(START_LINE)
        fields = {"group": self.name, "sequence": sequence, "nbytes": nbytes}
        with self.recorder.open("collective", op, fields):
            process.post(op, Call(self, sequence, tensor))
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


def _put(target: torch.Tensor | Sequence[torch.Tensor], wire: torch.Tensor) -> None:
    """Copy a result back to where the caller wants it, unless it is there."""
    with torch.no_grad():
        if not isinstance(target, torch.Tensor):
            for part, values in zip(target, wire.chunk(len(target)), strict=True):
                part.copy_(values.view(part.shape))
        elif target.data_ptr() != wire.data_ptr() or target.device != wire.device:
            target.copy_(wire.view(target.shape))


def _reduction(op: str) -> Any:
    if op not in REDUCE:
        raise ValueError(f"op={op!r} is no reduction: use one of {', '.join(REDUCE)}.")
    return REDUCE[op]


def _call(call: tuple[int, int, bytes] | None) -> str:
    if call is None:
        return "a call that is no longer on record"
    operation, root, form = call
    tensor = "" if form == NO_TENSOR else f" of {describe(form)}"
    return f"{CALLS[operation]}{tensor}{f' from root {root}' if root >= 0 else ''}"


@dataclass(frozen=True)
class Call:
    """What a rank in a collective waits for."""

    comm: Collectives
    sequence: int
    tensor: torch.Tensor | None

    def details(self) -> dict[str, Any]:
        found = {
            "group": self.comm.name,
            "group_id": self.comm.number,
            "members": self.comm.members,
            "sequence": self.sequence,
        }
        if self.tensor is not None:
            found |= {"shape": tuple(self.tensor.shape), "dtype": name_of(self.tensor)}
        return found
