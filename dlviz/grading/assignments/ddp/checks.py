"""Checks of a student's DDP: what was seen, what was expected, one hint.

    cut_into_buckets(parameters, most)    lists of parameters, in backward's order
    class BucketedGradients               averages gradients over the ranks (run.py)

The class gets correct buckets, so its points do not depend on the first function. Each check
runs it on real ranks for some tenths of a second and reads gradients and the Trace. Symbols: n
ranks, |g| the bytes of all gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from dlviz.analysis.messages import message_bytes
from dlviz.cluster import Comm, RunError
from dlviz.grading.assignments.ddp.hints import (
    NOBODY,
    Gradients,
    says,
    why_alone,
    why_cut,
    why_launched,
)
from dlviz.grading.assignments.ddp.run import (
    RATE,
    Even,
    Program,
    RankStep,
    Shards,
    StudentTraining,
    Unseen,
    attempt,
    cut,
)
from dlviz.grading.harness.check import at_each, check, each_alone
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, listed, number, passes, raised
from dlviz.grading.harness.guard import calls_of_dlviz
from dlviz.grading.harness.sandbox import HINTS, ended_by, run_alone, why_ended
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import step_seconds
from dlviz.trace import Trace

__all__ = [
    "check_buckets",
    "check_bytes",
    "check_gradients",
    "check_launches",
    "check_no_hang",
    "check_overlap",
    "rehearse",
    "rehearse_buckets",
]
FORWARD = 0.005  # s that a layer takes forward in a rehearsal; backward takes twice that
MESSAGE = 0.003  # s that a message takes there
LISTS = "a list of lists of parameters"
CUT_RIGHT = "The buckets were cut as part 2 asks, whatever your own function returns."
CUT_WRONG = (
    "These buckets come from your cut_into_buckets and are not yet what part 2 asks for. The "
    "checks of the class give it correct buckets."
)


@dataclass(frozen=True)
class CutSize(Size):
    """The number of parameters of a network, and the most bytes of a bucket."""

    legend = "parameters x bytes"
    parameters: int
    most: int

    @property
    def trivial(self) -> bool:
        return self.parameters == 1

    def __str__(self) -> str:
        return f"for {number(self.parameters, 'parameter')} and {self.most} bytes"

    @property
    def made(self) -> list[nn.Parameter]:
        """Of 8 to 56 bytes each."""
        sizes = [1 + 3 * i % 7 for i in range(1, self.parameters + 1)]
        return [nn.Parameter(torch.zeros(size, dtype=torch.float64)) for size in sizes]


def _cut(programs: Sequence[Callable[..., Any]], sizes: Sequence[CutSize]) -> dict[CutSize, Any]:
    """Each size with its buckets, as parameter numbers; a run that does not finish is repeated
    size by size, so that one size costs no other."""
    try:
        found = run_alone(_cut_each, 1, programs[0], sizes).results[0]
    except RunError as error:
        if len(sizes) > 1:
            return each_alone(_cut, programs, sizes)
        failed = CheckFailed(f"{sizes[0]}, {ended_by(error, plain=True)}", LISTS, why_ended(error))
        failed.__cause__ = error
        return {sizes[0]: failed}
    return {
        size: CheckFailed(summary, LISTS, hint) if hint else (size, buckets)
        for size, (buckets, summary, hint) in zip(sizes, found, strict=True)
    }


def _cut_each(
    comm: Comm, program: Callable[..., Any], sizes: Sequence[CutSize]
) -> list[tuple[Any, str, str]]:
    """At each size the buckets, or the error that the function raised, and a hint."""
    found = []
    for size in sizes:
        try:
            found.append((_numbers(program, size), "", ""))
        except Exception as error:
            hint = HINTS.get(type(error).__name__, "start from the line at which it stopped.")
            found.append((None, f"{size}, the function raised {raised(error)}", hint))
    return found


def _numbers(program: Callable[..., Any], size: CutSize) -> list[list[int]] | str | None:
    """The buckets; the call, if dlviz made them; None if they are not lists of lists."""
    made = size.made
    place = {id(p): i for i, p in enumerate(made)}
    borrowed: list[str] = []
    with calls_of_dlviz(borrowed):
        buckets = program(list(made), size.most)
    if borrowed:
        return borrowed[0]
    if not isinstance(buckets, list | tuple):
        return None
    if not all(isinstance(each, list | tuple) for each in buckets):
        return None
    return [[place.get(id(p), -1) for p in each] for each in buckets]


@check(
    "parameters are cut into buckets in backward's order",
    points=3,
    size=CutSize,
    sizes=((5, 72), (8, 72), (8, 24), (6, 10_000), (1, 64)),
    run=_cut,
)
def check_buckets(left: tuple[CutSize, Any]) -> None:
    """Each parameter is in one bucket, the last one first; a bucket is as full as its bytes
    allow."""
    size, seen = left
    place = {p: i for i, p in enumerate(size.made)}
    right, by_numbers = (
        [[place[p] for p in each] for each in cut([*place], most)]
        for most in (size.most, 8 * size.most)
    )
    expected = f"lists of the parameters with the numbers {_brief(right)}"
    if isinstance(seen, str):
        raise CheckFailed(
            f"{size}, the buckets were made by {seen}",
            expected,
            "you may look at dlviz's own buckets. Where to cut is yours to find.",
        )
    if seen is None or any(i < 0 for each in seen for i in each):
        raise CheckFailed(
            f"{size}, what was returned is no list of lists of the parameters",
            expected,
            "return the list of buckets; a bucket is a list of the parameters themselves, not of "
            "their sizes or of copies.",
        )
    if seen != right:
        raise CheckFailed(
            f"{size}, lists of the parameters with the numbers {_brief(seen)}",
            expected,
            why_cut(seen, by_numbers, [p.nbytes for p in place], size.most),
        )


def on_ranks(
    net: type[Unseen] | type[Even] = Unseen, late: bool = False
) -> Callable[[Sequence[Program], Sequence[Shards]], Mapping[Shards, Any]]:
    return lambda programs, sizes: at_each(
        sizes, lambda size: attempt(programs[0], size, net, late=late)
    )


ddp = partial(check, size=Shards)
trained, watched = on_ranks(), on_ranks(Even)


@ddp(
    "all ranks end with the mean gradient of one process",
    points=5,
    sizes=((3, 7), (2, 8), (2, 5, 1), (4, 6, 2), (1, 4)),
    run=trained,
)
def check_gradients(tried: StudentTraining) -> None:
    """In each of two steps every gradient is that of one process of plain torch on the whole
    batch, also with uneven shards and where some ranks, or all, do not use a layer."""
    names = [name for name, _ in tried.model.named_parameters()]
    for step, (alone, own) in enumerate(_one_process(tried)):
        for rank, left in enumerate(tried.left):
            seen = left.steps[step].gradients
            wrong = [i for i, each in enumerate(alone) if not _same(seen[i], each)]
            if wrong:
                what, hint = says(tried, rank, wrong, seen, own)
                raise CheckFailed(
                    f"{tried.size}, in step {step} rank {rank} ends with a gradient of "
                    f"{names[wrong[0]]} that is {_what(what, seen[wrong[0]])} "
                    f"({len(wrong)} of {len(names)} are wrong)",
                    "the mean over the examples of all ranks, on every rank, used there or not",
                    _why_wrong(tried, step, rank, wrong, seen[wrong[0]], hint),
                )
    _check_launched(tried)


def _what(what: str, seen: torch.Tensor | None) -> str:
    return "None" if seen is None else what


def _why_wrong(
    tried: StudentTraining,
    step: int,
    rank: int,
    wrong: list[int],
    seen: torch.Tensor | None,
    hint: str,
) -> str:
    own = tried.left[rank]
    if seen is None and not tried.size.uses(rank):
        return (
            "this rank has not used the parameter, but other ranks have: the mean is for all of "
            "them, so it is put into p.grad here too."
        )
    if step and own.hooks[step]:
        return (
            "step 0 is right. Hooks are registered again in each step, in addition to the old "
            "ones: which method is called once?"
        )
    if step:
        return "step 0 is right. What must begin() reset before the next backward fills it?"
    if own.unwaited:
        return (
            f"nobody waited for the all-reduce submitted {own.unwaited[0]}: its result was read "
            "before it was there."
        )
    if own.written:
        return (
            f"the tensor submitted {own.written[0]} was written to before anybody had waited for "
            "it. What has to be done before a bucket is launched, and what after?"
        )
    if any(each != tried.elements for each in own.reduced):
        return why_launched(tried, rank, 0)
    whole = [i for i, each in enumerate(tried.buckets) if {*each} <= {*wrong}]
    if _moved(tried):
        return (
            "the parameters have changed, but they were equal on all ranks already. Which tensors "
            "differ from rank to rank?"
        )
    if sum(len(tried.buckets[i]) for i in whole) == len(wrong) and len(whole) == 1:
        return f"these are the gradients of bucket {whole[0]}, the others are right. {hint}"
    return hint


@ddp(
    "one all-reduce for each bucket, in the same order on all ranks",
    points=3,
    sizes=((3, 6, 1), (2, 6), (4, 8, 1), (2, 4, 2)),
    run=trained,
)
def check_launches(tried: StudentTraining) -> None:
    """On every rank the all-reduces of each step are those of the buckets, in list order."""
    _check_launched(tried)
    for step in range(len(tried.left[0].reduced)):
        for rank, own in enumerate(tried.left):
            if own.reduced[step] != tried.elements:
                raise CheckFailed(
                    f"{tried.size}, in step {step} rank {rank} all-reduces "
                    f"{_elements(own.reduced[step])}",
                    f"the {len(tried.elements)} buckets in their order, "
                    f"{_elements(tried.elements)}",
                    why_launched(tried, rank, step),
                )


@ddp(
    "each rank sends 2(n-1)/n times the gradients' bytes",
    points=2,
    sizes=((3, 6), (2, 4), (4, 4)),
    run=watched,
)
def check_bytes(tried: StudentTraining) -> None:
    """In a step each rank sends 2(n-1)/n times |g|, the cost of all buckets' all-reduces."""
    n, steps = tried.size.ranks, len(tried.left[0].steps)
    nbytes = 8 * sum(tried.elements)
    expected, sent = 2 * (n - 1) * nbytes / n, message_bytes(tried.trace) / steps
    most = 2 * 8 * n * len(tried.elements)  # chunks differ by a number
    wrong = np.flatnonzero(np.abs(sent - expected) > most)
    if len(wrong):
        raise CheckFailed(
            f"{tried.size}, rank {wrong[0]} sends {sent[wrong[0]]:.0f} bytes in a step",
            f"2(n-1)/n · |g| = {expected:.0f} bytes, for |g| = {nbytes}",
            _why_bytes(tried, float(sent[wrong[0]])),
        )


def _why_bytes(tried: StudentTraining, sent: float) -> str:
    if not any(tried.left[0].reduced):
        return why_launched(tried, 0, 0)
    if not sent:
        return (
            "the Trace has no messages. Reduce buckets with all_reduce(comm, tensor), as imported "
            "above; comm.all_reduce leaves no message that a picture could show."
        )
    if any(seen != tried.elements for own in tried.left for seen in own.reduced):
        return why_launched(tried, 0, 0)
    return "which type has the tensor that is sent, and is every gradient in exactly one bucket?"


@ddp(
    "buckets are under way while backward goes on",
    points=3,
    sizes=((3, 6), (2, 4), (4, 8)),
    run=watched,
)
def check_overlap(tried: StudentTraining) -> str:
    """On each rank a layer's backward begins between the launch of a bucket and the wait for it.
    What counts is the order of the rank's calls, not the clock."""
    for rank, own in enumerate(tried.left):
        if not any(at < until for step in own.on_lane for at, until in step):
            raise CheckFailed(
                f"{tried.size}, rank {rank} begins no layer's backward while a bucket is in flight",
                "a bucket leaves as soon as it is full, and backward goes on meanwhile",
                why_alone(tried, rank),
            )
    return CUT_RIGHT


@ddp(
    "nobody hangs, and every bucket is waited for",
    points=2,
    sizes=((2, 4), (3, 6, 1), (4, 4), (1, 2)),
    run=on_ranks(late=True),
)
def check_no_hang(tried: StudentTraining) -> None:
    """Every rank returns though one is late to each backward, or does not use a layer; and
    finish returns when all buckets are reduced."""
    _check_launched(tried)
    for rank, own in enumerate(tried.left):
        if own.unwaited:
            raise CheckFailed(
                f"{tried.size}, rank {rank} never waited for the all-reduce submitted "
                f"{own.unwaited[0]}",
                "finish returns when the all-reduces of all buckets are done",
                "submit returns immediately, with a handle. What shows that the lane has finished?",
            )


@dataclass(repr=False)
class CutRehearsal(Rehearsal):
    """The result of a student's cut: the parameter numbers of each bucket."""

    buckets: Sequence[Sequence[int]] = ()


def rehearse_buckets(
    program: Callable[..., Any], parameters: int = 5, most: int = 72
) -> CutRehearsal:
    """Cut the parameters of a small network, by default the first size of the check."""
    size, nothing = CutSize(parameters, most), Trace(meta={"ranks": 1})
    left = _cut([program], [size])[size]
    try:
        if isinstance(left, CheckFailed):
            raise left
        check_buckets.judge(left)
    except CheckFailed as failed:
        return CutRehearsal(nothing, failed.in_short)
    sizes, buckets = [p.nbytes for p in size.made], left[1]
    summary = [
        f"bucket {i}: parameter{'s' * (len(own) > 1)} {listed([*map(str, own)])}, "
        f"{sum(sizes[each] for each in own)} bytes"
        for i, own in enumerate(buckets)
    ]
    return CutRehearsal(nothing, "\n".join(summary), right=True, buckets=buckets)


def rehearse(
    cutter: Callable[..., Any], program: Program, ranks: int = 4, examples: int = 8
) -> Rehearsal:
    """Run one paced step of a network of six equal layers with the student's buckets."""
    size = Shards(ranks, examples)
    topology = Topology.switch(ranks, Link(MESSAGE, float("inf")))
    machine = Machine(classroom(ranks).device, topology, FORWARD)
    try:
        tried = attempt(program, size, Even, machine=machine, cutter=cutter)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, ranks)
    means, hides = passes(check_gradients.judge, tried), passes(check_overlap.judge, tried)
    summary = (
        f"{number(ranks, 'rank')}; {number(len(tried.left[0].reduced[0]), 'all-reduce')}, "
        f"{'under' if hides else 'not under'} backward; a step of "
        f"{1000 * step_seconds(tried.trace)[0]:.0f} ms; "
        f"the gradients are {'those' if means else 'not those'} of one process"
    )
    right = means and hides and passes(check_launches.judge, tried)
    if tried.left[0].cut != tried.buckets:
        right, summary = False, f"{summary}\n{CUT_WRONG}"
    return Rehearsal(tried.trace.only(step=0), summary, right)


def _check_launched(tried: StudentTraining) -> None:
    """Fail if nothing was all-reduced, by the Trace too."""
    spans = tried.trace.spans
    own = (spans.name == "all_reduce") & (spans.start > spans.start[spans.kind == "phase"].min())
    sent = len(tried.trace.messages) or own.any()  # those of the backend leave no message
    if tried.size.ranks > 1 and not (sent and any(tried.left[0].reduced)):
        raise CheckFailed(
            f"{tried.size}, nothing was all-reduced", "an all-reduce for each bucket", NOBODY
        )


def _one_process(tried: StudentTraining) -> list[tuple[Gradients, list[Gradients]]]:
    """For each step: the gradients of one process of plain torch on all examples, and each
    rank's own."""
    model, size = tried.model, tried.size
    parameters, found = list(model.parameters()), []
    for steps in zip(*(own.steps for own in tried.left), strict=True):
        own = [_gradients(model, [each], [r], [1.0], size) for r, each in enumerate(steps)]
        weights = [share / size.examples for share in size.shares]
        alone = _gradients(model, steps, range(size.ranks), weights, size)
        found.append((alone, own))
        with torch.no_grad():
            for p, gradient in zip(parameters, alone, strict=True):
                if gradient is not None:
                    p -= RATE * gradient
    return found


def _gradients(
    model: nn.Module,
    steps: Sequence[RankStep],
    ranks: Sequence[int],
    weights: Sequence[float],
    size: Shards,
) -> Gradients:
    model.zero_grad()
    losses = [
        weight * nn.functional.mse_loss(model(step.inputs, size.uses(rank)), step.targets)
        for step, rank, weight in zip(steps, ranks, weights, strict=True)
    ]
    torch.stack(losses).sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def _moved(tried: StudentTraining) -> bool:
    """Whether the program has changed the parameters, beyond the updates of the steps."""
    at_start = [p.detach() for p in tried.model.parameters()]
    for own in tried.left:
        for i, (before, after) in enumerate(zip(at_start, own.parameters, strict=True)):
            taken = [g for g in (step.gradients[i] for step in own.steps) if g is not None]
            rest = before - RATE * sum(taken, torch.zeros_like(before))
            if not torch.allclose(rest, after, rtol=1e-9, atol=1e-12):
                return True
    return False


def _same(seen: torch.Tensor | None, wanted: torch.Tensor | None) -> bool:
    if seen is None or wanted is None:  # none or zeros where no rank uses a parameter
        return wanted is None and (seen is None or not seen.any())
    return torch.allclose(seen, wanted, rtol=1e-9, atol=1e-12)


def _elements(sizes: Sequence[int]) -> str:
    return f"tensors of {listed([*map(str, sizes)])} numbers" if sizes else "nothing"


def _brief(buckets: list[list[int]]) -> str:
    return ", ".join(map(str, buckets))
