"""Run a student's DDP on real ranks, and record the results for a check.

    averager = program(comm, buckets)        once on each rank; registers its hooks
    averager.begin(examples, total)          before each backward, which calls the hooks
    averager.finish()                        after it: every p.grad is the mean

The ranks train a network that no notebook shows for some steps, in float64, each on examples
that it draws itself. A tensor is copied when it is submitted to a lane, and the result is
written back as late as possible, when the program waits for it: a program that does not wait, or
writes meanwhile, fails on every run. Symbols: n ranks.
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

from dlviz.cluster import Comm, Handle, Lane, RunError
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import drawn
from dlviz.grading.harness.feedback import number, shown_line
from dlviz.grading.harness.guard import Watch, line_of
from dlviz.grading.harness.sandbox import why_ended
from dlviz.grading.harness.sizes import ONE_ALONE, Size, one_number_alone
from dlviz.machine import Machine
from dlviz.models import seed_layers
from dlviz.parallel.step.layers import LayerSpans, layers_of
from dlviz.trace import Trace

Parameters = list[nn.Parameter]
Program = Callable[[Comm, list[Parameters]], Any]
STEPS, RATE = 2, 0.1
LATE = 0.1  # s by which one rank is late to each backward in checks that must tolerate it
METHODS = {"begin": "(examples, total)", "finish": "()"}
DIFFERENT = (
    "two ranks have different buckets in the same all-reduce. On a rank that does not use some "
    "parameter its hook is not called, so a bucket is not full: does it still leave, with zeros "
    "for that parameter, and does no later one leave before it?"
)
IN_ORDER = (
    "two ranks have different buckets in the same all-reduce. Every rank launches them in the "
    "order of the list, each as a whole: which rank does not?"
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "collective mismatch": DIFFERENT,
    "message mismatch": DIFFERENT,
    "'NoneType' object has no attribute": "p.grad is None until backward has reached that "
    "parameter: was the bucket full, and does every rank use all of its parameters?",
    "expected Tensor as element": "p.grad is None until backward has reached that parameter: was "
    "the bucket full, and does every rank use all of its parameters?",
    "positional argument": "__init__ gets (comm, buckets), begin gets (examples, total), the hook "
    "gets the parameter, finish gets nothing. A method's first parameter is self.",
    "object has no attribute": "is that made in __init__ or in begin, before it is first used?",
}


OWN = OwnWork(
    "hooks and buckets of your own, with all_reduce for a bucket", "when does a bucket leave?"
)


@dataclass(frozen=True)
class Shards(Size):
    """The number of ranks, the examples of the batch, and who uses the spare layer: 0 all ranks,
    1 odd ranks, 2 none."""

    legend = "ranks x examples"
    ranks: int
    examples: int
    spare: int = 0

    def __str__(self) -> str:
        unused = ("", ", a layer used by odd ranks alone", ", a layer used by no rank")
        what = number(self.examples, "example")
        return f"on {number(self.ranks, 'rank')} with {what}{unused[self.spare]}"

    @property
    def short(self) -> str:
        unused = ("", " (a layer unused on some ranks)", " (a layer unused)")
        return f"{self.ranks}x{self.examples}{unused[self.spare]}"

    @staticmethod
    def in_common(passed: Sequence[Shards], failed: Sequence[Shards]) -> str:
        return ONE_ALONE.format(2) if one_number_alone(passed, failed) == 2 else ""

    @property
    def shares(self) -> list[int]:
        """The examples of each rank."""
        return [len(part) for part in np.array_split(range(self.examples), self.ranks)]

    def uses(self, rank: int) -> bool:
        return self.spare == 0 or (self.spare == 1 and rank % 2 == 1)


class Unseen(nn.Module):
    """The network of the checks: a norm, a layer that is used twice, and a spare one in the
    middle."""

    inputs, outputs = 5, 4

    def __init__(self, seed: int):
        super().__init__()
        width = 6 + seed % 4
        self.first = nn.Linear(self.inputs, width)
        self.norm = nn.LayerNorm(width)
        self.twice = nn.Linear(width, width)
        self.spare = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, self.outputs)
        seed_layers(self, seed).double()

    def forward(self, inputs: torch.Tensor, spare: bool) -> torch.Tensor:
        hidden = self.norm(self.first(inputs)).tanh()
        if spare:
            hidden = hidden + self.spare(hidden).tanh()
        return self.last(self.twice(self.twice(hidden).tanh()).tanh())


class Even(nn.Sequential):
    """The network of rehearsals: six layers of one matrix each, of the same size."""

    inputs = outputs = 24

    def __init__(self, seed: int):
        layers = [nn.Linear(self.inputs, self.outputs, bias=False) for _ in range(6)]
        super().__init__(*layers)
        seed_layers(self, seed).double()

    def forward(self, inputs: torch.Tensor, spare: bool = True) -> torch.Tensor:
        return super().forward(inputs)


def cut(parameters: Sequence[nn.Parameter], most: int) -> list[Parameters]:
    """The buckets as the notebook defines them: from the last parameter to the first, a new one
    where the next gradient would exceed `most` bytes."""
    buckets: list[Parameters] = []
    for p in reversed(parameters):
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > most:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


def bucket_bytes(net: nn.Module) -> int:
    """Two fifths of the network's bytes: buckets of different sizes, the spare layer not in the
    last."""
    return sum(p.nbytes for p in net.parameters()) * 2 // 5


@dataclass(frozen=True)
class RankStep:
    """A rank's examples of one step, and its gradients at the end."""

    inputs: torch.Tensor
    targets: torch.Tensor
    gradients: list[torch.Tensor | None]


@dataclass
class Trained(Left):
    """Results of one rank: its steps, its parameters at the end, the elements of each
    all-reduce, for each one on a lane how many layers' backward had begun at its launch and at
    its wait, and forbidden calls."""

    steps: list[RankStep] = field(default_factory=list)
    cut: list[list[int]] = field(default_factory=list)  # the parameters of each bucket
    parameters: list[torch.Tensor] = field(default_factory=list)
    reduced: list[list[int]] = field(default_factory=list)  # of each step
    on_lane: list[list[tuple[int, int]]] = field(default_factory=list)  # of each step
    hooks: list[int] = field(default_factory=list)  # registered in each step
    written: list[str] = field(default_factory=list)
    unwaited: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StudentTraining:
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
        """The parameter numbers of each bucket."""
        parameters = list(self.model.parameters())
        place = {p: i for i, p in enumerate(parameters)}
        return [[place[p] for p in own] for own in cut(parameters, bucket_bytes(self.model))]

    @property
    def elements(self) -> list[int]:
        """The elements of each bucket."""
        sizes = [p.numel() for p in self.model.parameters()]
        return [sum(sizes[i] for i in bucket) for bucket in self.buckets]


def attempt(
    program: Program,
    size: Shards,
    net: type[Unseen] | type[Even] = Unseen,
    late: bool = False,
    machine: Machine | None = None,
    cutter: Callable[[list[nn.Parameter], int], Any] = cut,
) -> StudentTraining:
    """Train with the student's program, with buckets that `cutter` makes; on a `machine` one paced
    step, with lanes that begin immediately.

    Raises CheckFailed, caused by the RunError if any, if the run does not finish or ready-made
    code did the work.
    """
    seed = int(np.random.default_rng().integers(1000))

    def known(error: RunError) -> str:
        if cutter is not cut or error.trace is None:  # buckets that may be wrong
            return _why(error, size, None)
        return _why(error, size, StudentTraining(size, net, seed, [], error.trace))

    run = harness.attempt(
        _worked, size.ranks, program, size, net, seed, late, cutter, machine=machine,
        where=size, own=OWN, expects="every rank returns from begin, backward and finish",
        known=known,
    )  # fmt: skip
    return StudentTraining(size, net, seed, run.results, run.trace)


def _why(error: RunError, size: Shards, tried: StudentTraining | None) -> str:
    said = str(error).partition("\n\n")[0]
    if "deadlock" in said:
        return (
            "an all-reduce waits for the same call on every rank: does each rank all-reduce all "
            "buckets, also those that its own backward did not fill?"
        )
    if "mismatch" in said and tried and (hint := _why_different(tried)):
        return hint
    if "mismatch" in said and not size.spare:  # all ranks use all parameters
        return IN_ORDER
    return why_ended(error, KNOWN)


def _why_different(tried: StudentTraining) -> str:
    """What a rank launches in place of a bucket, by the spans of its lanes."""
    spans, wanted = tried.trace.spans, tried.elements
    names = [name for name, _ in tried.model.named_parameters()]
    unused = next((i for i, name in enumerate(names) if name.startswith("spare")), -1)
    for row in spans[(spans.kind == "collective") & (spans.bucket >= 0)].rows():
        i, seen = row.bucket, (row.nbytes or 0) // 8
        if not seen or i >= len(wanted) or seen == wanted[i]:
            continue
        open_there = unused in tried.buckets[i] and not tried.size.uses(row.rank)
        if seen in wanted[i + 1 :] and open_there:
            return (
                f"rank {row.rank} launches bucket {wanted.index(seen)} before bucket {i}, which is "
                "not full there: the rank does not use a parameter, so its hook is not called. On "
                "other ranks it is. What must a full bucket wait for?"
            )
        if seen in wanted:
            return (
                f"rank {row.rank} launches bucket {wanted.index(seen)} as number {i}. All ranks "
                "launch them in the order of the list: what decides the order on that one?"
            )
        if open_there and wanted[i] - seen == [*tried.model.parameters()][unused].numel():
            return (
                f"rank {row.rank} launches bucket {i} with {seen} of its {wanted[i]} numbers: "
                "those of a parameter that it does not use are left out. Other ranks include "
                "them, and all must add tensors of one length. What takes their place here?"
            )
    return ""


class LaneWatch(Watch):
    """Records what a program submits to lanes and waits for, each collective, and how many
    layers' backward has begun in the step."""

    def __init__(self, comm: Comm, model: nn.Module, unlucky: bool):
        super().__init__("collectives")
        self.reduced: list[int] = []
        self.jobs: list[LaneJob] = []
        self.layers = self.hooks = 0
        self._unlucky = unlucky
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook = self._counted(parameter)
        for layer in layers_of(model).values():
            layer.register_forward_hook(self._forward)
        self._comm, self._make, self._making = comm, comm.lane, False
        comm.lane = self.recording(self._lane)
        self._hear(comm)

    def _counted(self, parameter: nn.Parameter) -> Callable[..., Any]:
        register = parameter.register_post_accumulate_grad_hook

        def registered(hook: Callable[..., Any]) -> Any:
            self.hooks += 1
            return register(hook)

        return registered

    def _forward(self, layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.register_hook(self._backward)

    def _backward(self, gradient: torch.Tensor) -> None:
        self.layers += 1

    def _lane(self, name: str) -> Lane:
        self._making = True  # a lane is made by an all-reduce of its own
        lane = self._make(name)
        self._making = False
        submit, jobs = lane.submit, []
        lane.submit = self.recording(
            lambda function, *args: self._submit(submit, jobs, function, args)
        )
        self._hear(lane.comm)
        return lane

    def _hear(self, comm: Comm) -> None:
        agree = comm.agree

        def heard(op: str, tensor: torch.Tensor | None, root: int = -1) -> int:
            if not self._making:
                self.reduced.append(tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
            return agree(op, tensor, root)

        comm.agree = self.recording(heard)

    def _submit(
        self, submit: Any, before: list[LaneJob], function: Callable[..., Any], args: tuple
    ) -> Handle:
        """Submit a job to a lane that already has the jobs `before`."""
        line = line_of(inspect.currentframe())
        job = LaneJob(self, function, args, len(self.jobs), line, self._unlucky)
        self.jobs.append(job)
        before.append(job)
        through = [*before]  # finished with this job: a lane works in order
        handle = submit(job)
        job.wait = wait = handle.wait

        def waited(**fields: Any) -> Any:
            for earlier in through:
                earlier.waited = True
                earlier.begin()
            result = wait(**{"bucket": job.number, **fields})
            for earlier in through:
                earlier.land()
            return result

        handle.wait = self.recording(waited)
        return handle

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Release all jobs if the body raises: the rank could not end otherwise."""
        try:
            yield
        finally:
            for job in self.jobs:
                job.begin()

    def close(self, left: Trained) -> None:
        """End a step: wait for jobs that nobody has waited for, and record all of them."""
        for job in self.jobs:
            if not job.waited:
                job.begin()
                job.wait()
        where = [f"at {shown_line(job.line)}" for job in self.jobs]
        done = [*zip(self.jobs, where, strict=True)]
        left.unwaited.extend(line for job, line in done if not job.waited)
        left.written.extend(line for job, line in done if job.written)
        left.on_lane.append([(job.launched, job.until) for job in self.jobs if job.reduces])
        left.hooks.append(self.hooks)
        left.reduced.append(self.reduced[:])
        self.reduced.clear()
        self.jobs.clear()
        self.layers = self.hooks = 0


class LaneJob:
    """A job of a lane, recorded as a span. An unlucky one works on copies made at submission,
    and begins when it is waited for."""

    def __init__(
        self,
        watch: LaneWatch,
        function: Callable[..., Any],
        args: tuple,
        number: int,
        line: str,
        unlucky: bool,
    ):
        self.number = number
        self.line = line
        self.launched, self.until = watch.layers, -1  # layers
        self.waited = self.written = self.reduces = False
        self.wait: Callable[..., Any]
        self._watch = watch
        self._function = function
        self._given = args
        self._args = [*map(_copied, args)] if unlucky else [*args]
        self._before = [*map(_copied, self._args)]
        self._landed = not unlucky
        self._may_begin = threading.Event()
        if not unlucky:
            self._may_begin.set()

    def begin(self) -> None:
        """Let the lane run the job: somebody waits for it, or nobody ever will."""
        if self.until < 0:
            self.until = self._watch.layers
        self._may_begin.set()

    def land(self) -> None:
        """Copy the lane's results into the program's tensors."""
        if self._landed:
            return
        self._landed = True
        for given, made, before in zip(self._given, self._args, self._before, strict=True):
            if _is_tensor(given):
                self.written |= not torch.equal(given, before)
                given.detach().copy_(made)

    def __call__(self, comm: Comm) -> Any:
        self._may_begin.wait()
        nbytes, before = sum(map(_nbytes, self._args)), len(self._watch.reduced)
        comm.hold()  # so that by the wall clock too it begins on time, and ends before its wait
        with comm.span("collective", f"bucket {self.number}", bucket=self.number, nbytes=nbytes):
            result = self._function(comm, *self._args)
            comm.hold()
        self.reduces = len(self._watch.reduced) > before
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
    model, left = net(seed), Trained()
    steps = STEPS if comm.machine is None else 1
    examples = size.shares[comm.rank]
    given = [(drawn(examples, net.inputs), drawn(examples, net.outputs)) for _ in range(steps)]
    parameters = list(model.parameters())
    LayerSpans(comm, model)
    watch = LaneWatch(comm, model, unlucky=comm.machine is None)
    with watch.watching(), watch.releasing():
        buckets = cutter(parameters, bucket_bytes(model))
        averager = program(comm, buckets)
        for step, (inputs, targets) in enumerate(given):
            model.zero_grad()
            with comm.span("phase", f"step {step}", step=step):
                outputs = model(inputs, size.uses(comm.rank))
                loss = nn.functional.mse_loss(outputs, targets)
                averager.begin(examples, size.examples)
                if late and comm.rank == comm.size - 1:
                    time.sleep(LATE)
                loss.backward()
                averager.finish()
            gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
            left.steps.append(RankStep(inputs, targets, gradients))
            watch.close(left)
            with torch.no_grad():
                for p in parameters:
                    if p.grad is not None:
                        p -= RATE * p.grad
    place = {p: i for i, p in enumerate(parameters)}
    left.cut.extend([place.get(p, -1) for p in each] for each in buckets)
    left.parameters.extend(p.detach() for p in parameters)
    left.borrowed.extend(watch.borrowed)
    left.raised.extend(watch.raised)
    return left


def _is_tensor(given: Any) -> bool:
    return isinstance(given, torch.Tensor)


def _copied(given: Any) -> Any:
    return given.detach().clone() if _is_tensor(given) else given


def _nbytes(given: Any) -> int:
    return given.nbytes if _is_tensor(given) else 0
