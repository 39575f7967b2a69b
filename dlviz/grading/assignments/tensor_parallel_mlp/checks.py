"""Checks of a student's tensor-parallel MLP: what was seen, what was expected, one hint.

    CopyToRanks (f), SumOverRanks (g)    autograd functions of x and the communicator
    ParallelMLP                          the module that holds a rank's part (run.py)

Each check runs them on real ranks for some tenths of a second, and reads outputs, gradients and
the Trace. Symbols: n ranks, B rows of x, h the hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dlviz.cluster import dtype_name
from dlviz.grading.assignments.tensor_parallel_mlp.hints import (
    gradients,
    held,
    joined,
    plain,
    same,
    seen_of,
    why_bytes,
    why_calls,
    why_gradient,
    why_output,
    why_part,
)
from dlviz.grading.assignments.tensor_parallel_mlp.run import (
    DIRECTIONS,
    MLPSize,
    Parallel,
    Passed,
    Program,
    State,
    attempt,
    attempt_function,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, listed, number, passes
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import step_seconds
from dlviz.trace import Trace

__all__ = [
    "check_all_reduces",
    "check_bytes",
    "check_f",
    "check_g",
    "check_gradients",
    "check_outputs",
    "check_parts",
    "rehearse",
    "rehearse_functions",
]
RATE = 256e3  # FLOP/s of a rank in a rehearsal
MESSAGE = 0.001  # s that a message takes in a rehearsal
# ranks, rows, hidden, inner. Rows are few, so that y is smaller than a whole weight.
SIZES = ((2, 3, 4, 10), (3, 2, 6, 9), (4, 2, 4, 12), (1, 2, 3, 4))
SUMS = ([("all_reduce",)], [("reduce_scatter",), ("all_gather",)])  # which make an all-reduce


def both_directions(programs: Sequence[Program], sizes: Sequence[MLPSize]) -> Mapping[MLPSize, Any]:
    return at_each(sizes, lambda size: attempt(programs[0], size))


mlp = partial(check, size=MLPSize, sizes=SIZES, run=both_directions)


function = partial(
    check,
    points=2,
    size=MLPSize,
    sizes=((2, 3, 4), (3, 2, 5), (4, 2, 4), (1, 2, 3)),
    run=lambda programs, sizes: at_each(
        sizes, lambda size: (size, attempt_function(programs[0], size))
    ),
)


@function("f hands on x, and sums the gradients over the ranks")
def check_f(tried: tuple[MLPSize, list[Passed]]) -> None:
    """f gives x, in backward the sum of the ranks' gradients, and does not change its argument."""
    _check_function("f", *tried)


@function("g sums over the ranks, and hands on the gradient")
def check_g(tried: tuple[MLPSize, list[Passed]]) -> None:
    """g gives the sum of the ranks' x, in backward the gradient unchanged, and does not change
    its argument."""
    _check_function("g", *tried)


def _check_function(name: str, size: MLPSize, left: Sequence[Passed]) -> None:
    for direction in DIRECTIONS:
        given = [own.given[direction] for own in left]
        total = torch.stack(given).sum(0)
        sums = (name == "g") == (direction == "forward")
        for rank, own in enumerate(left):
            wanted, seen = total if sums else given[rank], own.got[direction]
            if seen is None or not same(seen, wanted):
                raise CheckFailed(
                    f"{size}, on rank {rank} {name} {_gives(direction)} {_like(seen, given, rank)}",
                    "the sum over the ranks" if sums else "what it gets, unchanged",
                    _why_function(name, direction, seen, given),
                )
    for rank, own in enumerate(left):
        if own.changed:
            raise CheckFailed(
                f"{size}, on rank {rank} {name} has changed {own.changed[0]} that it was given",
                "a new tensor holds the sum",
                "all_reduce puts the sum into its tensor. Others still need the old numbers: "
                ".clone() it first.",
            )


def _gives(direction: str) -> str:
    return "gives" if direction == "forward" else "gives, in backward,"


def _like(seen: Any, given: Sequence[torch.Tensor], rank: int) -> str:
    """What a function returned, in terms of what it got on each rank."""
    total, n = torch.stack([*given]).sum(0), len(given)
    known = {
        "what it gets, unchanged": given[rank],
        "the sum over the ranks": total,
        "the mean over the ranks": total / n,
        f"{n} times what it gets": n * given[rank],
        f"{n} times the sum": n * total,
        "zeros": torch.zeros_like(total),
    }
    if seen is None:
        return "no tensor"
    return next((what for what, each in known.items() if same(seen, each)), "something else")


def _why_function(
    name: str, direction: str, seen: torch.Tensor | None, given: Sequence[torch.Tensor]
) -> str:
    total = torch.stack([*given]).sum(0)
    if seen is None:
        return f"what does {direction} of {name} return, and is it a gradient of x first?"
    if torch.allclose(seen.double(), total, rtol=1e-5, atol=1e-5):
        if not same(seen, total):
            return "the numbers are float64: which line makes float32 of them?"
    elif same(seen, total / len(given)):
        return "the sum is required: the ranks hold parts of one sum, nothing is divided."
    return {
        ("f", "forward"): "x is the same on every rank already: before the first product there is "
        "nothing to add.",
        ("f", "backward"): "each rank has used x for columns of its own, so each has a part of the "
        "gradient of x. What does every rank need?",
        ("g", "forward"): "each rank has a share of y. Does g return the tensor that holds the "
        "sum?",
        ("g", "backward"): "y is the same on every rank, and so is its gradient: y is the sum of "
        "the shares, so a share's gradient is that of y, once.",
    }[name, direction]


@mlp("each rank holds its part of the weights, and never a whole one", points=3)
def check_parts(tried: Parallel) -> None:
    """After __init__ a rank has the r-th part of up and of down, and the whole down.bias; it has
    no whole weight then, in forward or in backward."""
    _check_shapes(tried)
    size, state = tried.size, tried.size.whole(tried.seed)
    for rank, own in enumerate(tried.left):
        for name, whole in state.items():
            seen, wanted = own.steps[0].part[name], size.part(name, whole, rank)
            if not same(seen, wanted):
                raise CheckFailed(
                    f"{size}, what rank {rank} holds as {name} is not its part",
                    f"part {rank} of {size.ranks} of the whole {name}",
                    why_part(size, name, seen, whole),
                )
        if own.retained:
            raise CheckFailed(
                f"{size}, after __init__ the whole {own.retained[0]} is still in rank {rank}'s "
                "memory",
                f"1/{size.ranks} of it",
                "a slice shares the memory of the tensor that it is cut from, and keeps all of it "
                "alive: .clone() makes a new tensor."
                if own.retained[0] in own.sliced
                else "the parameters are new tensors, and something else keeps the whole alive: "
                "state, or a tensor of it, in an attribute or outside?",
            )
        if own.whole:
            raise CheckFailed(
                f"{size}, rank {rank} has a tensor as large as a whole weight: {own.whole[0]}",
                "parts of the weights alone, in forward and in backward",
                "the weights stay where they are, a part on each rank. What is sent instead?",
            )


def _check_shapes(tried: Parallel, whole_too: bool = False) -> None:
    """Check that each rank holds tensors of the shapes of its part, or with `whole_too` of the
    whole."""
    size, state = tried.size, tried.size.whole(tried.seed)
    for rank, own in enumerate(tried.left):
        for name, whole in state.items():
            seen, shape = own.steps[0].part.get(name), tuple(size.part(name, whole, rank).shape)
            right = seen is not None and seen.dtype == whole.dtype
            part = size.own(name, seen, rank) if whole_too else seen
            if not right or part is None or tuple(part.shape) != shape:
                what = "no parameter" if seen is None else f"{tuple(seen.shape)}"
                if seen is not None and seen.dtype != whole.dtype:
                    what += f" of {dtype_name(seen.dtype)}"
                raise CheckFailed(
                    f"{size}, rank {rank} holds {what} as {name}",
                    f"{shape} of the {tuple(whole.shape)} of the whole",
                    why_part(size, name, seen, whole),
                )


@mlp("all ranks end with the output of one process", points=3)
def check_outputs(tried: Parallel) -> None:
    """In each of two steps, with changed weights in the second, y on every rank is that of one
    process of plain torch, with the bias in it once. A rank may hold whole weights."""
    _check_shapes(tried, whole_too=True)
    for step in range(len(tried.left[0].steps)):
        wanted = plain(tried.size.batch(tried.seed, step)[0], _weights(tried, step))
        for rank, own in enumerate(tried.left):
            if not same(own.steps[step].output, wanted):
                what, hint = why_output(tried, rank, step)
                raise CheckFailed(
                    f"{tried.size}, in step {step} the output on rank {rank} is {what}",
                    "the output of one process with the whole weights",
                    hint,
                )
    _check_untouched(tried)


def _weights(tried: Parallel, step: int) -> State:
    """The whole MLP's weights in a step: first the given ones, then those that the ranks hold."""
    if not step:
        return tried.size.whole(tried.seed)
    return joined(held(tried, step))


def _check_untouched(tried: Parallel) -> None:
    for rank, own in enumerate(tried.left):
        for step in own.steps:
            if step.changed:
                raise CheckFailed(
                    f"{tried.size}, rank {rank} has changed {step.changed[0]} in place",
                    "arguments are left unchanged",
                    "arguments belong to the caller: a sum by all_reduce, or a result of your own, "
                    "goes into a new tensor.",
                )


@mlp("all ranks end with the gradients of one process", points=4)
def check_gradients(tried: Parallel) -> None:
    """In each of two steps the gradients of a rank's part, of down.bias and of x are those of
    one process of plain torch with all parts. A rank may hold whole weights."""
    _check_shapes(tried, whole_too=True)
    size = tried.size
    for step in range(len(tried.left[0].steps)):
        wanted = gradients(*size.batch(tried.seed, step), joined(held(tried, step)))
        for rank, seen in enumerate(seen_of(tried, step)):
            right = {name: size.part(name, each, rank) for name, each in wanted.items()}
            wrong = [name for name in right if not same(seen.get(name), right[name])]
            if wrong:
                what, hint = why_gradient(tried, rank, step, wrong)
                raise CheckFailed(
                    f"{size}, in step {step} the gradient of {wrong[0]} on rank {rank} is {what} "
                    f"(wrong: {', '.join(wrong)})",
                    "the gradients of one process: of this rank's part, of down.bias and of x",
                    hint,
                )
    _check_untouched(tried)


@mlp("one all-reduce forwards and one backwards", points=2)
def check_all_reduces(tried: Parallel) -> None:
    """In each direction a rank calls one all-reduce of a tensor the size of y. An all-reduce
    written with messages is accepted: check_bytes counts its messages."""
    size, n = tried.size, tried.size.ranks
    for step, direction in (
        (step, direction) for step in range(len(tried.left[0].steps)) for direction in DIRECTIONS
    ):
        sent = tried.sent(direction, step)
        for rank, own in enumerate(tried.left if n > 1 else ()):
            calls = own.steps[step].calls[direction]
            whole = all(count == size.rows * size.hidden for _, count in calls)
            by_hand = not calls and sent.all()
            if not by_hand and not (whole and [(name,) for name, _ in calls] in SUMS):
                raise CheckFailed(
                    f"{size}, in {direction} rank {rank} calls {_summary(calls)}",
                    f"one all-reduce of {size.rows * size.hidden} elements, as many as y has",
                    why_calls(calls, size, direction),
                )


def _summary(calls: Sequence[tuple[str, int]]) -> str:
    if not calls:
        return "no all-reduce"
    return listed([f"{name} of {number(count, 'element')}" for name, count in calls])


@dataclass(frozen=True)
class CountedSize(MLPSize):
    """A size for counting bytes: on 2 ranks many algorithms send as many as a ring."""

    @staticmethod
    def in_common(passed: Sequence[MLPSize], failed: Sequence[MLPSize]) -> str:
        return ""


@check(
    "a rank sends 2(n-1)/n times the bytes of y each way",
    points=2,
    size=CountedSize,
    sizes=[size for size in SIZES if size[0] > 1],
    run=both_directions,
)
def check_bytes(tried: Parallel) -> None:
    """In each direction of each step a rank sends 2(n-1)/n · B·h · 8 bytes, by the messages of the
    Trace; the backend's all-reduce, whose messages no Trace shows, counts as a ring."""
    size, expected = tried.size, tried.size.all_reduced
    for step, direction in (
        (step, direction) for step in range(len(tried.left[0].steps)) for direction in DIRECTIONS
    ):
        sent = tried.sent(direction, step)
        wrong = np.flatnonzero(sent != expected)
        if len(wrong):
            rank = int(wrong[0])
            raise CheckFailed(
                f"{size}, rank {rank} sends {sent[rank]:.0f} bytes in {direction}",
                f"2(n-1)/n · {8 * size.rows * size.hidden} = {expected} bytes from every rank, as "
                "a ring sends for a tensor the size of y",
                why_bytes(tried, rank, step, direction),
            )


def rehearse_functions(f: Program, g: Program, ranks: int = 4) -> Rehearsal:
    """The results of f and g for one number on each rank, 10 to the power of r: a digit of a sum
    shows how often it contains that rank's number."""
    size, summary, right = MLPSize(ranks, 1, 1), [], True
    digits = [torch.full((1, 1), 10.0**r, dtype=torch.float64) for r in range(ranks)]
    given = listed([f"{each.item():g}" for each in digits])
    for name, each, asked in (("f", f, check_f), ("g", g, check_g)):
        try:
            left = attempt_function(
                each, size, [dict.fromkeys(DIRECTIONS, digit) for digit in digits]
            )
        except CheckFailed as failed:
            right = False
            summary.append(failed.in_short)
            continue
        right = right and passes(asked.judge, (size, left))
        for direction in DIRECTIONS:
            got = [own.got[direction] for own in left]
            numbers = ["none" if made is None else f"{made.sum():g}" for made in got]
            summary.append(f"{name} {direction}: {given} became {listed(numbers)}")
    return Rehearsal(Trace(meta={"ranks": ranks}), "\n".join(summary), right)


@dataclass(repr=False)
class MLPRehearsal(Rehearsal):
    """A rehearsed step: the numbers that rank 0 holds, the bytes that it sent, and these in
    all-reduces of a tensor the size of y."""

    numbers: int = 0
    nbytes: int = 0
    all_reduces: float = 0.0


def rehearse(
    program: Callable[..., Any], ranks: int = 4, rows: int = 4, hidden: int = 16, inner: int = 32
) -> Rehearsal:
    """Run one paced step of an MLP: each product takes the time of its FLOPs."""
    size = MLPSize(ranks, rows, hidden, inner)
    topology = Topology.switch(ranks, Link(MESSAGE, float("inf")))
    machine = Machine(replace(classroom(ranks).device, flops=RATE), topology, step=None)
    try:
        tried = attempt(program, size, steps=1, machine=machine)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, ranks)
    numbers = sum(each.numel() for each in tried.left[0].steps[0].part.values())
    sent = sum(int(tried.sent(direction, 0)[0]) for direction in DIRECTIONS)
    checks = (check_outputs, check_gradients, check_parts, check_all_reduces)
    outputs, back, *others = (passes(each.judge, tried) for each in checks)
    summary = (
        f"{number(ranks, 'rank')}; rank 0 holds {numbers} of "
        f"{sum(each.numel() for each in size.whole(0).values())} numbers and sends {sent} bytes; "
        f"a step of {1000 * step_seconds(tried.trace, 'wall')[0]:.0f} ms; "
        f"the output is {'that' if outputs else 'not that'} of one process, "
        f"the gradients are {'those' if back else 'not those'} of one process"
    )
    right = outputs and back and all(others)
    once = size.all_reduced
    if ranks > 1:
        right = right and passes(check_bytes.judge, tried)
    times = sent / once if once else 0.0
    return MLPRehearsal(tried.trace.only(step=0), summary, right, numbers, sent, times)
