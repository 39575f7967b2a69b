"""A student's buckets of gradients on real ranks: what they left, for a check to judge.

    averager = program(comm, buckets)        once on each rank; it registers its hooks
    averager.begin(examples, total)          before each backward, which calls the hooks
    averager.finish()                        after it: now every p.grad is the mean

The ranks train a network that no notebook shows for some steps, in float64, each on examples that
it draws itself. What is submitted to a lane begins at the unlucky moment, when the program waits
for it: a program that goes on without waiting does so on every run. Symbols: n ranks.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from dlviz.cluster import Comm, RunError
from dlviz.cluster.lanes import Handle, Lane
from dlviz.grading.alone import ended_by, run_alone, why_ended
from dlviz.grading.feedback import CheckFailed, listed, number, shown_line
from dlviz.grading.guard import Watch, check_open, line_of
from dlviz.machine import Machine
from dlviz.models import seed_layers
from dlviz.parallel.layers import LayerSpans
from dlviz.trace import Trace

Parameters = list[nn.Parameter]
Program = Callable[[Comm, list[Parameters]], Any]
STEPS, RATE = 2, 0.1
LATE = 0.1  # s by which one rank comes late to each backward where a program must not mind
METHODS = {"begin": "(examples, total)", "finish": "()"}
DIFFERENT = (
    "in one and the same all-reduce two ranks have different buckets. On a rank that makes no use "
    "of some parameter its hook is not called, and so a bucket is not full: does it still leave, "
    "and does no later one leave before it?"
)
KNOWN = {  # hints by what stands in the message of a run that did not come to its end
    "collective mismatch": DIFFERENT,
    "message mismatch": DIFFERENT,
    "'NoneType' object has no attribute": "p.grad is None until backward has come to that "
    "parameter: was the bucket full, and does every rank use all of its parameters?",
    "expected Tensor as element": "p.grad is None until backward has come to that parameter: was "
    "the bucket full, and does every rank use all of its parameters?",
    "positional argument": "__init__ gets (comm, buckets), begin gets (examples, total), the hook "
    "gets the parameter, finish gets nothing. A method's first parameter is self.",
    "object has no attribute": "is that made in __init__ or in begin, before it is first used?",
}


@dataclass(frozen=True)
class Shards:
    """A number of ranks, of examples in the batch, and who uses the spare layer: 0 all ranks, 1
    those with an odd number, 2 none."""

    ranks: int
    examples: int
    spare: int = 0

    @property
    def trivial(self) -> bool:
        return self.ranks == 1

    def __str__(self) -> str:
        unused = ("", ", a layer used by odd ranks alone", ", a layer used by no rank")
        what = number(self.examples, "example")
        return f"on {number(self.ranks, 'rank')} with {what}{unused[self.spare]}"

    @staticmethod
    def listed(sizes: Sequence[Shards]) -> str:
        return f"at ranks x examples = {listed([size.short for size in sizes])}"

    @property
    def short(self) -> str:
        unused = ("", " (a layer unused on some ranks)", " (a layer unused)")
        return f"{self.ranks}x{self.examples}{unused[self.spare]}"

    @staticmethod
    def in_common(passed: Sequence[Shards], failed: Sequence[Shards]) -> str:
        right, wrong = ({s.ranks for s in sizes} - {1} for sizes in (passed, failed))
        if right == {2} and len(wrong - {2}) == len(wrong) > 1:
            return "it works on 2 ranks alone. Where does yours rely on that number?"
        return ""

    @property
    def shares(self) -> list[int]:
        """The examples of each rank."""
        return [len(part) for part in np.array_split(range(self.examples), self.ranks)]

    def uses(self, rank: int) -> bool:
        return self.spare == 0 or (self.spare == 1 and rank % 2 == 1)


class Unseen(nn.Module):
    """What the checks train: a norm, a layer that is used twice, and a spare one in the middle."""

    def __init__(self, seed: int):
        super().__init__()
        width = 6 + seed % 4
        self.first = nn.Linear(5, width)
        self.norm = nn.LayerNorm(width)
        self.twice = nn.Linear(width, width)
        self.spare = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, 4)
        seed_layers(self, seed).double()

    def forward(self, inputs: torch.Tensor, spare: bool) -> torch.Tensor:
        hidden = self.norm(self.first(inputs)).tanh()
        if spare:
            hidden = hidden + self.spare(hidden).tanh()
        return self.last(self.twice(self.twice(hidden).tanh()).tanh())


class Even(nn.Sequential):
    """What is watched: six layers of one matrix each, of the same size."""

    def __init__(self, seed: int):
        layers = [nn.Linear(24, 24, bias=False) for _ in range(6)]
        super().__init__(*layers)
        seed_layers(self, seed).double()

    def forward(self, inputs: torch.Tensor, spare: bool = True) -> torch.Tensor:
        return super().forward(inputs)


def cut(parameters: Sequence[nn.Parameter], most: int) -> list[Parameters]:
    """The buckets as the notebook defines them: from the last parameter to the first, a new one
    where the next gradient would bring it over `most` bytes."""
    buckets: list[Parameters] = []
    for p in reversed(parameters):
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > most:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


def bucket_bytes(net: nn.Module) -> int:
    """Two fifths of the network's bytes: its buckets are of different sizes, and the spare layer's
    is not the last."""
    return sum(p.nbytes for p in net.parameters()) * 2 // 5


@dataclass(frozen=True)
class RankStep:
    """What a rank had in one step: its examples, and when it had finished its gradients."""

    inputs: torch.Tensor
    targets: torch.Tensor
    gradients: list[torch.Tensor | None]


@dataclass(frozen=True)
class Trained:
    """What one rank left: its steps, its parameters at the end, the number of elements of each
    all-reduce, and what it did that it may not do."""

    steps: list[RankStep] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)
    reduced: list[list[int]] = field(default_factory=list)  # of each step
    unwaited: list[str] = field(default_factory=list)
    borrowed: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """A run of the student's program."""

    size: Shards
    net: type[Unseen] | type[Even]
    seed: int
    left: list[Trained]
    trace: Trace

    @property
    def model(self) -> nn.Module:
        return self.net(self.seed)

    @property
    def buckets(self) -> list[list[int]]:
        """The parameters of each bucket, by their numbers."""
        parameters = list(self.model.parameters())
        place = {p: i for i, p in enumerate(parameters)}
        return [[place[p] for p in own] for own in cut(parameters, bucket_bytes(self.model))]

    @property
    def elements(self) -> list[int]:
        """How many each bucket has."""
        sizes = [p.numel() for p in self.model.parameters()]
        return [sum(sizes[i] for i in bucket) for bucket in self.buckets]


def attempt(
    program: Program,
    size: Shards,
    net: type[Unseen] | type[Even] = Unseen,
    late: bool = False,
    machine: Machine | None = None,
    cutter: Callable[[list[nn.Parameter], int], Any] = cut,
) -> Training:
    """Train with the student's program, with buckets that `cutter` makes; on a `machine` one paced
    step, with lanes that begin at once.

    Raises CheckFailed, caused by the RunError if there is one, where the run does not come to its
    end, and where ready-made code did the work.
    """
    seed = int(np.random.default_rng().integers(1000))
    expected = "every rank returns from begin, backward and finish"
    try:
        args = (program, size, net, seed, late, cutter)
        run = run_alone(_worked, size.ranks, *args, machine=machine)
    except RunError as error:
        raise CheckFailed(f"{size}, {ended_by(error)}", expected, _why(error)) from error
    borrowed = [line for own in run.results for line in own.borrowed]
    if borrowed:
        raise CheckFailed(
            f"{size}, ready-made code was called: {borrowed[0]}",
            "hooks and buckets of your own, with all_reduce for a bucket",
            "what the ready-made code does is what you are to write: when does a bucket leave?",
        )
    check_open(str(size), [own.raised for own in run.results])
    return Training(size, net, seed, run.results, run.trace)


def _why(error: RunError) -> str:
    said = str(error).partition("\n\n")[0]
    if "deadlock" in said:
        return (
            "an all-reduce waits for the same call on every rank: does each rank all-reduce as "
            "many buckets, those too that its own backward did not fill?"
        )
    return why_ended(error, KNOWN)


class LaneWatch(Watch):
    """Notes what a program submits to lanes and waits for, and each collective."""

    def __init__(self, comm: Comm, unlucky: bool):
        super().__init__("collectives")
        self.reduced: list[int] = []
        self.jobs: list[LaneJob] = []
        self._unlucky = unlucky
        self._comm, self._make, self._making = comm, comm.lane, False
        comm.lane = self.noting(self._lane)
        self._hear(comm)

    def _lane(self, name: str) -> Lane:
        self._making = True  # a lane is made by an all-reduce of its own
        lane = self._make(name)
        self._making = False
        submit = lane.submit
        lane.submit = self.noting(lambda function, *args: self._submit(submit, function, args))
        self._hear(lane.comm)
        return lane

    def _hear(self, comm: Comm) -> None:
        agree = comm.agree

        def heard(op: str, tensor: torch.Tensor | None, root: int = -1) -> int:
            if not self._making:
                self.reduced.append(tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
            return agree(op, tensor, root)

        comm.agree = self.noting(heard)

    def _submit(self, submit: Any, function: Callable[..., Any], args: tuple) -> Handle:
        job = LaneJob(function, len(self.jobs), line_of(inspect.currentframe()))
        if not self._unlucky:
            job.begun.set()
        self.jobs.append(job)
        handle = submit(job, *args)
        job.wait = wait = handle.wait

        def waited(**fields: Any) -> Any:
            for earlier in self.jobs[: job.number + 1]:  # a lane works in order
                earlier.waited = True
                earlier.begun.set()
            return wait(**{"bucket": job.number, **fields})

        handle.wait = self.noting(waited)
        return handle

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Keep nothing waiting where what runs inside raises: the rank could not end."""
        try:
            yield
        finally:
            self.release()

    def release(self) -> list[LaneJob]:
        """Let begin what nobody has waited for."""
        left = [job for job in self.jobs if not job.waited]
        for job in left:
            job.begun.set()
        self.jobs.clear()
        return left

    def close(self) -> list[str]:
        """Wait for what nobody has waited for; the lines that submitted it."""
        left = self.release()
        for job in left:
            job.wait()
        return [f"at {shown_line(job.line)}" for job in left]


class LaneJob:
    """Something submitted to a lane, as a span of it."""

    def __init__(self, function: Callable[..., Any], number: int, line: str):
        self.function = function
        self.number = number
        self.line = line
        self.begun = threading.Event()
        self.waited = False
        self.wait: Callable[..., Any]

    def __call__(self, comm: Comm, *args: Any) -> Any:
        self.begun.wait()
        nbytes = sum(each.nbytes for each in args if isinstance(each, torch.Tensor))
        comm.hold()  # so that by the wall too it begins when it begins, and ends before its wait
        with comm.span("collective", f"bucket {self.number}", bucket=self.number, nbytes=nbytes):
            result = self.function(comm, *args)
            comm.hold()
        return result


def _worked(
    comm: Comm,
    program: Program,
    size: Shards,
    net: type[Unseen] | type[Even],
    seed: int,
    late: bool,
    cutter: Callable[[list[nn.Parameter], int], Any],
) -> Trained:
    model, left, draw = net(seed), Trained(), torch.Generator()
    draw.manual_seed(int(np.random.default_rng().integers(2**60)))  # each rank its own
    parameters = list(model.parameters())
    LayerSpans(comm, model)
    watch = LaneWatch(comm, unlucky=comm.machine is None)
    examples, wide = size.shares[comm.rank], next(model.parameters()).shape[1]
    with watch.watching(), watch.releasing():
        averager = program(comm, cutter(parameters, bucket_bytes(model)))
        for step in range(STEPS if comm.machine is None else 1):
            model.zero_grad()
            inputs = torch.randn(examples, wide, generator=draw, dtype=torch.float64)
            with comm.span("phase", f"step {step}", step=step):
                outputs = model(inputs, size.uses(comm.rank))
                targets = torch.randn(outputs.shape, generator=draw, dtype=torch.float64)
                loss = nn.functional.mse_loss(outputs, targets)
                averager.begin(examples, size.examples)
                if late and comm.rank == comm.size - 1:
                    time.sleep(LATE)
                loss.backward()
                averager.finish()
            gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
            left.steps.append(RankStep(inputs, targets, gradients))
            left.unwaited.extend(watch.close())
            left.reduced.append(watch.reduced[:])
            watch.reduced.clear()
            with torch.no_grad():
                for p in parameters:
                    if p.grad is not None:
                        p -= RATE * p.grad
    left.parameters.extend(p.detach() for p in parameters)
    left.borrowed.extend(watch.borrowed)
    left.raised.extend(watch.raised)
    return left
