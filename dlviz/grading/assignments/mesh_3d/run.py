"""Run a student's training step on a mesh of real ranks, and record the results for a check.

    groups(rank, sizes)                            {axis: the ranks of this rank's group}
    train_step(comm, mesh, part, tokens, targets)  leaves gradients in `part`, returns the loss

Each replica gets its own rows, and each rank only its part of the weights; everything else it
learns from messages. The axis of a message is read from the Trace by the mesh positions of
sender and receiver, so it does not matter through which Comm it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dlviz.cluster import RECEIVES, SENDS, Comm, RunError
from dlviz.grading.assignments.mesh_3d.model import (
    BLOCKS,
    StagePart,
    State,
    Widths,
    gradients,
    part_of,
)
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import Dealt, copied, fresh
from dlviz.grading.harness.feedback import listed
from dlviz.grading.harness.guard import Watch, calls_of_dlviz
from dlviz.grading.harness.sandbox import why_ended
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Machine
from dlviz.trace import Trace

Program = Callable[..., Any]
Key = tuple[str, tuple[int, ...]]  # an axis, and the ranks of a group; "across" where on none
STEPS, RATE = 2, 0.01
AXES = ("dp", "pp", "tp")
LOSS = 8  # bytes up to which a tensor counts as a loss, which may be summed along any path
NUMBER = 8  # bytes
GIVEN = ("collectives", "parallel/tensor")
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "is no rank of": "the ranks of mesh.pp are numbered within the group: 0 is the first stage, "
    "and the last stage has no next one.",
    "this rank itself": "with one stage there is nobody to send to: does each message depend on "
    "being first or last?",
    "message mismatch": "what one stage sends, the other receives: activations in forward, their "
    "gradient in backward, both of the shape of part.empty().",
    "collective mismatch": "all ranks of a group call the same collectives in the same order. "
    "Which rank leaves one out, or which two axes are mixed up?",
    "does not require grad": "what arrives from the previous stage is a leaf: .requires_grad_() "
    "makes autograd store its gradient, and nothing is computed on .detach().",
    "mesh has no axis": "the axes are mesh.dp, mesh.pp and mesh.tp.",
    "NoneType": "a gradient exists only after backward. Is x.grad read before it, or was x never a "
    "leaf?",
    "unsupported operand": "only the last stage has the loss. What do the others put in?",
    "a leaf Variable that requires grad": "a parameter is changed in place. Sum its .grad instead.",
    "positional argument": "groups gets (rank, sizes), train_step (comm, mesh, part, tokens, "
    "targets), f and g (a Comm, a tensor).",
}


EXPECTS = "every rank finishes"
OWN = OwnWork(
    "f, g, all_reduce and the calls of comm and of the axes of mesh", "which ranks need which sum?"
)


@dataclass(frozen=True)
class MeshSize(Size):
    """A mesh, in the order of its axes."""

    legend = "dp x pp x tp"
    dp: int
    pp: int
    tp: int
    order: str = "dp pp tp"

    @property
    def ranks(self) -> int:
        return self.dp * self.pp * self.tp

    @property
    def short(self) -> str:
        return f"{self.dp}x{self.pp}x{self.tp}"

    @property
    def axes(self) -> dict[str, int]:
        return {axis: getattr(self, axis) for axis in self.order.split()}

    def __str__(self) -> str:
        return f"on a mesh of {', '.join(f'{a}={n}' for a, n in self.axes.items())}"

    @staticmethod
    def in_common(passed: Sequence[MeshSize], failed: Sequence[MeshSize]) -> str:
        known = [s for s in passed if not s.trivial]
        if known and all(len({*s.axes.values()}) == 1 for s in known):
            if all(len({*s.axes.values()}) > 1 for s in failed):
                return (
                    "it works where all axes are equally long. Which axis' length stands in place "
                    "of another's?"
                )
        return ""

    def place(self, rank: int) -> dict[str, int]:
        """A rank's number on each axis."""
        where = np.unravel_index(rank, [*self.axes.values()])
        return {axis: int(at) for axis, at in zip(self.axes, where, strict=True)}

    def rank(self, **place: int) -> int:
        shape = [*self.axes.values()]
        return int(np.ravel_multi_index([place[axis] for axis in self.axes], shape))

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """The ranks that differ from `rank` on that axis alone."""
        here = self.place(rank)
        return tuple(self.rank(**{**here, axis: i}) for i in range(self.axes[axis]))

    def apart(self, ranks: Sequence[int]) -> list[str]:
        """The axes on which these ranks differ."""
        places = [self.place(rank) for rank in ranks]
        return [axis for axis in self.axes if len({place[axis] for place in places}) > 1]

    def key(self, ranks: Sequence[int]) -> Key:
        """The axis along which these ranks lie, and their group on it."""
        apart = self.apart(ranks)
        if len(apart) == 1:
            return apart[0], self.group(ranks[0], apart[0])
        return "across", tuple(sorted(ranks))


@dataclass(frozen=True)
class MeshShare:
    """A rank's input: its part of the weights, and tokens and targets of each step."""

    weights: State
    batches: list[tuple[torch.Tensor, torch.Tensor]]  # (B, s) each


@dataclass(frozen=True)
class Given:
    """A mesh's input: whole weights, and tokens and targets of all replicas in each step."""

    weights: State
    batches: list[tuple[torch.Tensor, torch.Tensor]]  # (replicas, B, s) each

    @classmethod
    def drawn(cls, size: MeshSize, widths: Widths) -> Given:
        generator = fresh()
        batches = [widths.batch(generator, size.dp) for _ in range(STEPS)]
        return cls(widths.whole(generator), batches)

    def dealt(self, size: MeshSize) -> Dealt[MeshShare]:
        """Each rank's share."""
        places = [size.place(rank) for rank in range(size.ranks)]
        return Dealt(
            [
                MeshShare(
                    part_of(self.weights, size.pp, at["pp"], size.tp, at["tp"]),
                    [(x[at["dp"]].clone(), y[at["dp"]].clone()) for x, y in self.batches],
                )
                for at in places
            ]
        )


@dataclass
class Grouped(Left):
    """What `groups` returned for each rank, as numbers, or its repr."""

    got: list[dict[str, list[int]] | str]


@dataclass
class MeshLeft(Left):
    """A rank's results of each step: the returned loss, and its gradients by the names of the
    whole weights."""

    losses: list[float | str] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor | None]] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """A step of one process: the weights before it, the mean loss, its gradients, and the first
    and the last stage's share of the embedding's."""

    weights: State
    loss: float
    gradients: State
    shares: State


@dataclass(frozen=True)
class Meshed:
    """A run of the student's step. The steps of the Trace are counted from `first`."""

    size: MeshSize
    widths: Widths
    given: Given
    left: list[MeshLeft]
    trace: Trace
    first: int = 0

    @cached_property
    def reference(self) -> list[Reference]:
        """Each step, in one process."""
        state, found = self.given.weights, []
        for tokens, targets in self.given.batches:
            loss, whole, shares = gradients(state, tokens.flatten(0, 1), targets.flatten(0, 1))
            found.append(Reference(state, loss, whole, shares))
            state = {name: each - RATE * whole[name] for name, each in state.items()}
        return found

    @cached_property
    def sent(self) -> np.ndarray:
        """Which messages were sent in the first step, by the clock of their senders."""
        spans, table = self.trace.spans, self.trace.messages
        found = np.zeros(len(table), bool)
        own = (spans.kind == "phase") & (spans.name == "step") & (spans.step == self.first)
        for rank, begin, end in zip(spans.rank[own], spans.start[own], spans.end[own], strict=True):
            found |= (table.src == rank) & (table.sent >= begin) & (table.sent <= end)
        return found

    @cached_property
    def between_stages(self) -> np.ndarray:
        """Which messages carry all activations of a replica to another stage."""
        table = self.trace.messages
        stage = np.array([self.size.place(rank)["pp"] for rank in range(self.size.ranks)])
        whole = table.count == self.widths.activations
        return whole & (stage[table.src] != stage[table.dst])

    @cached_property
    def handed_on(self) -> dict[tuple[int, int], int]:
        """How many such messages each sender sends each receiver in the first step."""
        table = self.trace.messages
        own = self.sent & self.between_stages
        pairs: dict[tuple[int, int], int] = {}
        for src, dst in zip(table.src[own].tolist(), table.dst[own].tolist(), strict=True):
            pairs[src, dst] = pairs.get((src, dst), 0) + 1
        return pairs

    @cached_property
    def summed(self) -> dict[Key, float]:
        """Bytes sent in each group in the first step, except between stages and for losses. The
        backend's collectives, which leave no messages, count as a ring."""
        table, spans = self.trace.messages, self.trace.spans
        own = self.sent & ~self.between_stages & (table.nbytes > LOSS)
        found: dict[Key, float] = {}
        for src, dst, nbytes in zip(table.src[own], table.dst[own], table.nbytes[own], strict=True):
            key = self.size.key([int(src), int(dst)])
            found[key] = found.get(key, 0.0) + float(nbytes)
        for row in spans[(spans.kind == "collective") & (spans.step == self.first)].rows():
            if row.nbytes is None or row.nbytes <= LOSS or row.name not in TIMES:
                continue
            ranks = _members(row.group, self.size.ranks)
            if len(ranks) > 1:
                key, share = self.size.key(ranks), TIMES[row.name] * (len(ranks) - 1) / len(ranks)
                found[key] = found.get(key, 0.0) + share * row.nbytes
        return found

    def odd_sums(self) -> list[tuple[Key, float, float]]:
        """The groups that sent other bytes than wanted: group, sent, wanted."""
        keys = [(axis, self.size.group(r, axis)) for axis in AXES for r in range(self.size.ranks)]
        table = [(key, self.summed.get(key, 0.0), self.wanted(key)) for key in keys]
        return [row for row in table if abs(row[1] - row[2]) > 0.5]

    def bytes_along(self, axis: str, rank: int) -> float:
        """Bytes that a rank sends along an axis in the first step, except losses."""
        table = self.trace.messages
        own = self.sent & (table.src == rank) & (table.nbytes > LOSS)
        own &= [int(dst) in self.size.group(rank, axis) for dst in table.dst]
        return float(table.nbytes[own].sum())

    def wanted(self, key: Key) -> float:
        """Bytes that a group's sums take by a ring: 2(n-1) times those of its tensors."""
        axis, ranks = key
        w, blocks = self.widths, BLOCKS // self.size.pp
        embedding = w.vocabulary * w.hidden
        tensors = {
            "tp": 2 * blocks * w.activations,  # f and g of each block
            "dp": embedding + 2 * blocks * w.hidden * w.inner // self.size.tp,
            "pp": embedding,
        }
        return 2 * (len(ranks) - 1) * NUMBER * tensors[axis]


TIMES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1, "reduce": 1}


def _members(group: str, ranks: int) -> list[int]:
    found = re.fullmatch(r"\w+ \((.*)\)", group)
    return [int(each) for each in re.findall(r"\d+", found[1])] if found else [*range(ranks)]


def attempt(
    program: Program, size: MeshSize, widths: Widths | None = None, machine: Machine | None = None
) -> Meshed:
    """Run two of the student's steps. Raises CheckFailed, caused by the RunError if any, if the
    run does not finish or ready-made code did the work."""
    widths = widths or Widths()
    given = Given.drawn(size, widths)
    run = harness.attempt(
        stepped, size.ranks, program, size.axes, widths, given.dealt(size), machine=machine,
        where=size, own=OWN, expects=EXPECTS, known=_known(size),
    )  # fmt: skip
    return Meshed(size, widths, given, run.results, run.trace)


def attempt_groups(program: Program, size: MeshSize) -> Grouped:
    """Call `groups` for each rank of a mesh."""
    run = harness.attempt(
        grouped, 1, program, size.axes,
        where=size, own=OWN, expects=EXPECTS, known=_known(size), plain=True,
    )  # fmt: skip
    return run.results[0]


def _known(size: MeshSize) -> Callable[[RunError], str]:
    """Finds a hint for a run that did not finish."""
    return lambda error: _why_astray(size, error) or why_ended(error, KNOWN)


def _why_astray(size: MeshSize, error: RunError) -> str:
    """A hint if a rank sends activations to, or awaits them from, a rank outside its group on
    pp."""
    for wait in error.waits or []:
        hands_on = wait.op in SENDS + RECEIVES and len(wait.shape or ()) == 3  # (B, s, h)
        if hands_on and wait.peer is not None and wait.peer not in size.group(wait.rank, "pp"):
            asks, preposition = ("sends", "to") if wait.op in SENDS else ("waits for", "from")
            return (
                f"rank {wait.rank} {asks} activations or their gradient {preposition} rank "
                f"{wait.peer}, which differs from it on "
                f"{listed(size.apart([wait.rank, wait.peer]))}. A stage's neighbour differs only "
                "on pp: in which group is its number one more or one less?"
            )
    return ""


def grouped(comm: Comm, program: Program, axes: dict[str, int]) -> Grouped:
    """Call `groups` for each rank, in one process without a mesh."""
    left = Grouped([])
    for rank in range(prod(axes.values())):
        with calls_of_dlviz(left.borrowed):
            got = program(rank, dict(axes))
        left.got.append(_numbers(got))
    return left


def _numbers(got: Any) -> dict[str, list[int]] | str:
    """As plain lists of numbers, else its repr: code of the program's own objects runs here, not
    in the judge."""
    try:
        return {str.__str__(axis): [int(each) for each in got[axis]] for axis in got}
    except (TypeError, ValueError, KeyError, IndexError):
        return str.__str__(repr(got)[:80])


def stepped(
    comm: Comm,
    program: Program,
    axes: dict[str, int],
    widths: Widths,
    dealt: Dealt[MeshShare],
    first: int = 0,
) -> MeshLeft:
    """Run the student's step on a rank."""
    mesh, watch, left = comm.mesh(**axes), Watch(*GIVEN), MeshLeft()
    for each in (comm, *(getattr(mesh, axis) for axis in AXES)):
        for name in ("send", "recv", "isend", "irecv", "agree"):
            setattr(each, name, watch.recording(getattr(each, name)))
    own = dealt.take(comm.rank)
    part = StagePart(widths, own.weights)
    names = dict(zip(own.weights, part.parameters(), strict=True))
    for step, (tokens, targets) in enumerate(own.batches):
        part.zero_grad()
        comm.barrier()
        with watch.watching(), PacedProducts(comm), comm.span("phase", "step", step=first + step):
            loss = program(comm, mesh, part, tokens, targets)
        left.losses.append(_plain(loss))
        left.gradients.append(
            {name: p.grad if p.grad is None else copied(p.grad) for name, p in names.items()}
        )
        with torch.no_grad():
            for p in part.parameters():
                if p.grad is not None:
                    p -= RATE * p.grad
    left.borrowed.extend(watch.borrowed)
    left.raised.extend(watch.raised)
    return left


def _plain(loss: Any) -> float | str:
    """As a number if it is one, else its repr."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(copied(loss))
    return float(loss) if isinstance(loss, int | float) else str.__str__(repr(loss))


class PacedProducts(TorchDispatchMode):
    """On a paced run matrix products are spans that take their FLOPs' time."""

    def __init__(self, comm: Comm):
        super().__init__()
        self._comm = comm

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._comm.machine is None or func._overloadpacket is not torch.ops.aten.mm:
            return func(*args, **(kwargs or {}))
        (m, k), (_, n) = (each.shape for each in args)
        kind = "forward" if torch._C._current_graph_task_id() < 0 else "backward"
        seconds = 2 * prod((m, k, n)) / self._comm.machine.device.flops
        with self._comm.compute(kind, f"{m}x{k}·{k}x{n}", seconds):
            return func(*args, **(kwargs or {}))
