"""Checks of a student's ZeRO: what was seen, what was expected, one hint.

    shard, mean_shard, whole    a rank's part of a vector, of a mean, and all parts gathered
    clip                        all ranks' shards by one norm
    Stage1, Stage2, Stage3      optimizer, gradients and weights in shards: weights, bytes, memory

The stages are compared with one process of plain torch, and each check runs on 1 to 5 real ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dlviz.grading.assignments.zero.hints import (
    close,
    least,
    most_at_peak,
    most_held,
    units,
    why_bytes,
    why_clipped,
    why_held,
    why_peak,
    why_weights,
    wrong_shards,
)
from dlviz.grading.assignments.zero.model import right
from dlviz.grading.assignments.zero.run import (
    BYTES,
    Attempt,
    Clipped,
    ShardsLeft,
    StageSize,
    Vector,
    attempt,
    clipped,
    sharded,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal

__all__ = [
    "STAGE_1", "STAGE_2", "STAGE_3", "check_bytes", "check_clip", "check_memory", "check_shards",
    "check_weights", "rehearse",
]  # fmt: skip
STAGE_1, STAGE_2, STAGE_3 = (
    [(stage, 3, 16), (stage, 4, 15), (stage, 2, 16, 0.1)] for stage in (1, 2, 3)
)


def _sharding(programs: Sequence[Callable[..., Any]], sizes: Sequence[Vector]) -> dict[Vector, Any]:
    return at_each(sizes, lambda size: sharded(size, *programs))


def _clipping(programs: Sequence[Callable[..., Any]], sizes: Sequence[Vector]) -> dict[Vector, Any]:
    return at_each(sizes, lambda size: clipped(size, programs[0]))


def _training(programs: Sequence[Callable[..., Any]], sizes: Sequence[StageSize]) -> dict[Any, Any]:
    return at_each(sizes, lambda size: attempt(size, programs[0]))


@check(
    "every value is in one shard",
    points=2,
    size=Vector,
    sizes=((3, 11), (2, 8), (4, 3), (4, 18)),
    run=_sharding,
)
def check_shards(left: list[ShardsLeft]) -> None:
    """The shards of a vector, and of the ranks' mean, have ceil(n/ranks) values at most, and give
    the vector again, whatever its length."""
    size = Vector(len(left), len(left[0].given[0]))
    for rank in range(size.ranks):
        if found := wrong_shards(left, rank):
            raise CheckFailed(
                f"{size}, rank {rank}: {found[0]}",
                f"shards of {-(-size.values // size.ranks)} values; whole of them is the vector, "
                "and the mean of all ranks' vectors",
                found[1],
            )


@check(
    "one norm for all ranks' shards",
    points=1,
    size=Vector,
    sizes=((2, 5), (3, 4), (4, 6)),
    run=_clipping,
)
def check_clip(left: list[Clipped]) -> None:
    """All shards of all ranks are multiplied by most / norm, or left alone if the norm is less."""
    for call, most in enumerate(left[0].most):
        norm = float(torch.cat([g for own in left for g in own.before[call]]).norm())
        factor = min(1.0, most / norm)
        for rank, own in enumerate(left):
            if not close(own.after[call], [g * factor for g in own.before[call]]):
                raise CheckFailed(
                    f"on {len(left)} ranks whose shards have the norm {norm:.4g}, clipped to "
                    f"{most:g}, rank {rank} has other shards than {factor:.4g} times its own",
                    "the same factor on all ranks",
                    why_clipped(left, call),
                )


stage = partial(check, size=StageSize, run=_training)


@stage("the weights of one process", points=2, sizes=STAGE_1)
def check_weights(tried: Attempt) -> None:
    """After three steps all ranks have the weights of one process with all rows."""
    if not tried.leaves(right):
        raise CheckFailed(
            f"{tried.size}, the weights after three steps are not those of one process",
            "Adam on the mean of all ranks' gradients, clipped by its norm, on every rank",
            why_weights(tried),
        )


@stage("each rank sends what the stage needs", points=1, sizes=STAGE_1)
def check_bytes(tried: Attempt) -> None:
    """A rank sends (n-1)/n of the weights twice in a step, in stage 3 three times."""
    due, size = 2 + (tried.size.stage == 3), tried.size
    fewest, most = (due * each for each in units(size))
    for rank, sent in enumerate(tried.sent):
        if not fewest <= sent <= most + 64 * size.ranks:
            raise CheckFailed(
                f"{size}, rank {rank} sends {sent:,.0f} bytes in a step",
                f"{most:,.0f} bytes: {due} times (n-1)/n of the weights",
                why_bytes(tried, sent),
            )


@stage("a rank holds its shards, and no more", points=2, sizes=STAGE_1)
def check_memory(tried: Attempt) -> None:
    """The bytes of all tensors of a rank, between two steps and in stages 2 and 3 at the peak."""
    size = tried.size
    if tried.unchanged:
        raise CheckFailed(
            f"{size}, the weights are as they were in the beginning",
            "a step that trains, in which memory can be counted",
            why_weights(tried),
        )
    for rank, own in enumerate(tried.left):
        if max(own.held) > most_held(size):
            what = "all weights" if size.stage < 3 else "the weights of its shards"
            raise CheckFailed(
                f"{size}, rank {rank} holds {max(own.held):,} bytes between two steps",
                f"about {least(size):,}: {what}, and Adam's two states of its shards",
                why_held(size, max(own.held)),
            )
        if size.stage > 1 and max(own.peak) > most_at_peak(size):
            raise CheckFailed(
                f"{size}, rank {rank} holds {max(own.peak):,} bytes at the peak of a step",
                f"{most_at_peak(size):,} at most: what it holds between steps, shards of the "
                "gradients, and what the one layer at work needs",
                why_peak(tried, max(own.peak)),
            )


# -- rehearsals ------------------------------------------------------------------------------------


@dataclass(repr=False)
class StageRun(Rehearsal):
    """A rehearsal with the values (8 bytes) that a rank holds between steps, and sends in one."""

    held: float = 0
    sent: float = 0


def rehearse(program: Callable[..., Any], stage: int, ranks: int = 4, width: int = 16) -> StageRun:
    """Train eight layers of width x width weights and their biases on real ranks."""
    size = StageSize(stage, ranks, width, even=True)
    try:
        tried = attempt(size, program)
    except CheckFailed as failed:
        return StageRun(**vars(Rehearsal.stopped(failed, ranks)))
    held, peak = (max(getattr(own, name)[-1] for own in tried.left) for name in ("held", "peak"))
    sent = max(tried.sent)
    lines = [
        f"{len(size.lengths)} layers of {size.lengths[0]} weights, {ranks} ranks, stage {stage}; "
        "of a rank, at most:"
    ]
    for what, n in (
        ("held between two steps", held),
        ("held at the peak", peak),
        ("sent in a step", sent),
    ):
        lines.append(f"  {what:23} {n:8,.0f} bytes = {n / BYTES:7,.0f} values")
    try:
        for each in (check_weights, *((check_bytes, check_memory) if ranks > 1 else ())):
            each.judge(tried)
    except CheckFailed as failed:
        return StageRun(tried.trace, "\n".join([*lines, "not yet right", failed.in_short]))
    summary = "\n".join([*lines, "and the weights are those of one process"])
    return StageRun(tried.trace, summary, True, held / BYTES, sent / BYTES)
