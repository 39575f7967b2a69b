"""Run a student's shards, clipping and training on real ranks, and record the results for a check.

    own = shard(comm, flat), mean_shard(comm, flat)    whole(comm, own, length)
    clip(comm, shards, most)                           shards of several layers, in place
    trainer = Stage1(comm, net, weights, most)         Stage2, Stage3: the same
    trainer.step(x, target),  trainer.weights()

Each rank trains on rows that it draws itself, so it learns of the others' gradients only from
messages. Bytes are read from the Trace, and memory from the storages that are alive.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dlviz.analysis.messages import bytes_sent
from dlviz.cluster import Comm, Storages
from dlviz.grading.assignments.zero.model import How, Net, Vectors, trained
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import copied, drawn
from dlviz.grading.harness.feedback import CheckFailed, number
from dlviz.grading.harness.guard import Watch
from dlviz.grading.harness.sizes import ONE_ALONE, Size, one_number_alone
from dlviz.trace import Trace

Program = Callable[..., Any]
STEPS, ROWS, BYTES = 3, 2, 8  # of a float64
OWN = OwnWork(
    "shards of your own, by comm's collectives or messages", "which values does a rank hold?"
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "that have been freed": "the layer was freed before its backward has read it. When is it used "
    "for the last time?",
    "backward of layer": "this is no whole layer. backward reads the whole layer too: gather "
    "it once more, and free it when backward is done.",
    "got NoneType in place": "nothing is there any more: was the layer freed before it was read?",
    "forward of layer": "this is no whole layer: a layer is gathered before its forward.",
    "each need": "comm's collectives take shards of one length on all ranks. The last one may be "
    "shorter: how many zeros are missing there?",
    "update got": "weights, gradient and states of a shard have its length, padding included.",
    "is of type NoneType": "a function returns nothing: which one has no return?",
    "collective mismatch": "all ranks call the same collectives in the same order, on tensors of "
    "one length: do lengths differ where the ranks do not divide a layer?",
    "must match the": "two tensors have different lengths: one is a shard, maybe "
    "padded, the other whole or cut?",
    "positional argument": "shard and mean_shard get (comm, flat), whole gets (comm, own, length), "
    "clip gets (comm, shards, most), __init__ gets (comm, net, weights, most), step gets (x, "
    "target). A method's first parameter is self.",
    "object has no attribute": "is that made in __init__, and spelled as in the tables?",
}
attempted = partial(harness.attempt, own=OWN, expects="every rank returns", known=KNOWN)


class Lengths(Size):
    ranks: int

    @staticmethod
    def in_common(passed: Sequence[Any], failed: Sequence[Any]) -> str:
        only = one_number_alone(passed, failed)
        return ONE_ALONE.format(only) if only else ""


@dataclass(frozen=True)
class Vector(Lengths):
    """A number of ranks, and the values of a flat vector."""

    legend = "ranks x values"
    ranks: int
    values: int

    def __str__(self) -> str:
        return f"on {number(self.ranks, 'rank')} with a vector of {number(self.values, 'value')}"


@dataclass(frozen=True)
class StageSize(Lengths):
    """The stage of ZeRO, the number of ranks, the width of the net's middle layers (of all layers,
    if `even`), and the norm to which gradients are clipped; 0 is none."""

    legend = "ranks x width x clip"
    stage: int
    ranks: int
    width: int
    most: float = 0.0
    even: bool = False

    def __str__(self) -> str:
        clip = f", clipped to {self.most:g}" if self.most else ""
        return f"stage {self.stage} on {number(self.ranks, 'rank')}, width {self.width}{clip}"

    @property
    def short(self) -> str:
        return f"{self.ranks}x{self.width}x{self.most or 'none'}"

    @property
    def clip(self) -> float:
        return self.most or float("inf")

    @property
    def widths(self) -> list[int]:
        ends = [self.width] * 2 if self.even else [1, 1]
        return [self.width if self.even else 5, *[self.width] * (6 if self.even else 8), *ends]

    @property
    def lengths(self) -> list[int]:
        return Net(self.widths).lengths

    @property
    def values(self) -> int:
        return sum(self.lengths)

    @property
    def sharded(self) -> int:
        """The values of a rank's shards of all layers, padding included."""
        return sum(-(-n // self.ranks) for n in self.lengths)

    def begin(self, seed: int) -> Vectors:
        """The weights before the first step, the same on every rank."""
        generator = torch.Generator().manual_seed(seed)
        draw = partial(torch.randn, generator=generator, dtype=torch.float64)
        wide = zip(self.lengths, self.widths, strict=False)
        return [draw(n) / into**0.5 for n, into in wide]


# -- shards and clipping ---------------------------------------------------------------------------


@dataclass
class ShardsLeft(Left):
    """A vector that all ranks have, and one of the rank's own; of each (of the mean of the others)
    the rank's shard, and what was gathered, as far as they are tensors."""

    given: Vectors
    found: dict[str, Vectors] = field(default_factory=dict)


def sharded(size: Vector, *programs: Program) -> list[ShardsLeft]:
    """Shard and gather two vectors. Raises CheckFailed if the run does not finish."""
    common = drawn(size.values)
    return attempted(_sharded, size.ranks, size, common, *programs, where=size).results


def _sharded(comm: Comm, size: Vector, common: torch.Tensor, *programs: Program) -> ShardsLeft:
    given, watch = [common, drawn(size.values)], Watching(comm)
    left, (*cuts, whole) = ShardsLeft([each.clone() for each in given]), programs
    with watch.watching():
        for name, cut, flat in zip(("shard", "mean_shard"), cuts, given, strict=True):
            part = cut(comm, flat)
            found = whole(comm, part, size.values) if isinstance(part, torch.Tensor) else None
            if isinstance(found, torch.Tensor):
                left.found[name] = [copied(part), copied(found)]
    return watch.report(left)


@dataclass
class Clipped(Left):
    """A rank's shards before and after they were clipped to the `most`, in two calls."""

    before: list[Vectors]
    after: list[Vectors]
    most: tuple[float, float]


def clipped(size: Vector, program: Program) -> list[Clipped]:
    return attempted(_clipped, size.ranks, size, program, where=size).results


def _clipped(comm: Comm, size: Vector, program: Program) -> Clipped:
    lengths = [size.values + comm.rank, 1, 2 * size.values]
    before = [[drawn(n) * (1 + comm.rank) for n in lengths] for _ in range(2)]
    left, watch = Clipped(before, [], (1.0, 1e3)), Watching(comm)
    for given, most in zip(before, left.most, strict=True):
        shards = [each.clone() for each in given]
        with watch.watching():
            program(comm, shards, most)
        left.after.append([copied(each) for each in shards])
    return watch.report(left)


# -- training --------------------------------------------------------------------------------------


@dataclass
class TrainingLeft(Left):
    """A rank's batches (x, target), the bytes that it holds after each step and at the peak of
    each, and the weights of all layers in the end (None if there are no such tensors)."""

    batches: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    weights: Vectors | None = None


@dataclass(frozen=True)
class Attempt:
    """A run of the student's training."""

    size: StageSize
    seed: int
    left: list[TrainingLeft]
    trace: Trace

    @property
    def batches(self) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
        """[step][rank]"""
        return [[own.batches[step] for own in self.left] for step in range(STEPS)]

    @property
    def sent(self) -> list[float]:
        """Bytes that each rank sends in a step."""
        return (bytes_sent(self.trace.only(step=range(STEPS))) / STEPS).tolist()

    @property
    def order(self) -> list[str]:
        """Rank 0's collectives of step 0, but for those of a number a rank."""
        rows, short = self.trace.only(rank=0, step=0).spans.rows(), BYTES * self.size.ranks
        return [row.name for row in rows if row.kind == "collective" and row.nbytes > short]

    @property
    def unchanged(self) -> bool:
        """Whether every rank ends with the weights that it began with."""
        begin = torch.cat(self.size.begin(self.seed))
        return all(torch.equal(torch.cat(own.weights or []), begin) for own in self.left)

    def leaves(self, how: How) -> bool:
        """Whether every rank ends with the weights that these gradients would make."""
        size = self.size
        made = trained(size.widths, size.begin(self.seed), self.batches, size.clip, how)
        return all(
            torch.allclose(torch.cat(own.weights or []), torch.cat(made), rtol=0, atol=1e-9)
            for own in self.left
        )


def attempt(size: StageSize, program: Program) -> Attempt:
    """Train for some steps. Raises CheckFailed, caused by the RunError if any, if the run does not
    finish, if ready-made code did the work, or if there are no weights to judge."""
    seed = int(torch.randint(1000, ()))
    run = attempted(_trained, size.ranks, size, seed, program, where=size)
    for rank, own in enumerate(run.results):
        if own.weights is None:
            raise CheckFailed(
                f"{size}, weights() of rank {rank} returned no flat vectors of the net's lengths",
                f"a list of {size.lengths[0]}, {size.lengths[1]}, ... values",
                "it returns the whole layers, without padding, in their order.",
            )
    return Attempt(size, seed, run.results, run.trace)


def _trained(comm: Comm, size: StageSize, seed: int, program: Program) -> TrainingLeft:
    net, left, watch = Net(size.widths), TrainingLeft(), Watching(comm)
    into, out = size.widths[0], size.widths[-1]
    left.batches = [(drawn(ROWS, into), 3 * drawn(ROWS, out)) for _ in range(STEPS)]
    ahead = [[each.numpy().copy() for each in batch] for batch in left.batches]
    with Unheard(comm) as storages, watch.watching():
        for dtype in (torch.float64, torch.float32, torch.int64):
            comm.all_reduce(torch.ones(1, dtype=dtype))
        before = storages.now.total  # the memory between ranks counts from a dtype's first use on
        trainer = program(comm, net, size.begin(seed), size.clip)
        for step, batch in enumerate(ahead):
            storages.begin_step()
            # not whole: the student's code runs inside, and its own lines are recorded
            with comm.recorder.open("phase", f"step {step}", {"step": step}, whole=False):
                trainer.step(*map(torch.tensor, batch))
            left.peak.append(storages.peak.total - before)
            gc.collect()
            left.held.append(storages.now.total - before)
        found = trainer.weights()
        if isinstance(found, list | tuple) and [getattr(w, "shape", 0) for w in found] == [
            (n,) for n in size.lengths
        ]:
            left.weights = [copied(w) for w in found]
    return watch.report(left)


class Unheard(Storages):
    """Its own work is not watched, since that takes time: no line of the program runs inside."""

    def look(self, operands: Any) -> None:
        hears = sys.getprofile()
        sys.setprofile(None)
        try:
            super().look(operands)
        finally:
            sys.setprofile(hears)


class Watching(Watch):
    """Records who calls the collectives, too."""

    def __init__(self, comm: Comm):
        super().__init__("collectives")
        for name in ("send", "recv", "isend", "irecv", "agree"):
            setattr(comm, name, self.recording(getattr(comm, name)))

    def report(self, left: Any) -> Any:
        left.borrowed.extend(self.borrowed)
        left.raised.extend(self.raised)
        return left
