"""Checks of a student's halo exchange: what was seen, what was expected, one hint.

    needed               which input rows a block of output rows reads
    fetch, give_back     these rows from the ranks that have them; their gradients back, and added
    HaloConv             a convolution with both: y, dx, dw, and the bytes of a step

Results are compared with one process, and each check but the first runs on 1 to 5 real ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dlviz.grading.assignments.halo_exchange.hints import (
    back_of,
    in_rows,
    returns,
    standing,
    wanted,
    why_back,
    why_dw,
    why_needed,
    why_outputs,
    why_rows,
    why_sent,
    why_step_sent,
)
from dlviz.grading.assignments.halo_exchange.model import Geometry, near, window
from dlviz.grading.assignments.halo_exchange.run import (
    BLOCKS,
    STEPS,
    ExchangeRun,
    Kernel,
    LayerRun,
    Needed,
    Strips,
    exchange,
    needed,
    received,
    trained,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal

__all__ = [
    "check_back", "check_back_sent", "check_gradients", "check_needed", "check_outputs",
    "check_rows", "check_rows_sent", "check_step_sent", "rehearse", "rehearse_layer",
]  # fmt: skip
# ranks, rows, kernel, stride, dilation, padding: blocks of unequal length, an even kernel, blocks
# thinner than the halo, strides
SIZES = [
    (3, 11, 3), (2, 9, 4), (4, 14, 5, 1, 1, 2), (4, 7, 3, 1, 3, 3), (3, 13, 3, 2),
    (4, 17, 5, 2, 1, 2),
]  # fmt: skip
KERNELS = [(3,), (5, 1, 1, 2), (3, 1, 2, 2), (4,), (3, 2), (5, 2, 2, 3)]
GRADIENTS = "the gradients that one process has of the whole image"
Programs = Sequence[Callable[..., Any]]


def _needing(programs: Programs, sizes: Sequence[Kernel]) -> dict[Kernel, Any]:
    return at_each(sizes, lambda size: needed(size, programs[0]))


def _fetching(programs: Programs, sizes: Sequence[Strips]) -> dict[Strips, Any]:
    return at_each(sizes, lambda size: exchange(size, programs[0]))


def _returning(programs: Programs, sizes: Sequence[Strips]) -> dict[Strips, Any]:
    return at_each(sizes, lambda size: exchange(size, programs[0], back=True))


def _training(programs: Programs, sizes: Sequence[Strips]) -> dict[Strips, Any]:
    return at_each(sizes, lambda size: trained(size, programs[0]))


strips = partial(check, size=Strips, sizes=SIZES)


@check("the rows that windows read", points=2, size=Kernel, sizes=KERNELS, run=_needing)
def check_needed(left: Needed) -> None:
    """The first row that a block of output rows reads, and the one behind the last."""
    size = left.size
    reads = Geometry(0, size.kernel, size.stride, size.dilation, size.padding).reads
    for (lo, hi), seen in zip(BLOCKS, left.found, strict=True):
        if seen != reads(lo, hi):
            raise CheckFailed(
                f"{size}, output rows {lo} to {hi - 1} need {seen or 'no pair of numbers'}",
                f"{reads(lo, hi)}: the first row, and the one behind the last",
                why_needed(left),
            )


@strips("every rank has the rows it needs", points=3, run=_fetching)
def check_rows(tried: ExchangeRun) -> None:
    """Each rank has the rows that it needs, in their order, with zeros outside of the image."""
    size, image = tried.size, torch.cat([own.given for own in tried.left], 2)
    for rank, own in enumerate(tried.left):
        due = window(image, size.need[rank])
        _of_shape(f"{size}, fetch of rank {rank}", own.found, due)
    stands = {r: standing(own.found, image) for r, own in enumerate(tried.left)}
    for rank, (first, end) in enumerate(size.need):
        if stands[rank] != wanted(size, rank):
            raise CheckFailed(
                f"{size}, rank {rank} needs rows {first} to {end - 1} and has "
                + _listed(stands[rank]),
                _listed(wanted(size, rank)),
                why_rows(tried, rank, stands),
            )


@strips("each rank sends what the others need of its rows", points=2, run=_fetching)
def check_rows_sent(tried: ExchangeRun) -> None:
    """In forward a rank sends the rows that another one needs, each once, and no others."""
    _check_sent(tried, "the rows of its own that other ranks need")


@strips("the gradient of every row is whole", points=3, run=_returning)
def check_back(tried: ExchangeRun) -> None:
    """The gradients of a rank's rows: from all ranks that have read them, added."""
    size, every = tried.size, [own.given for own in tried.left]
    for rank, own in enumerate(tried.left):
        parts = returns(size, rank, every)
        due = torch.stack(parts).sum(0)
        found = _of_shape(f"{size}, give_back of rank {rank}", own.found, due)
        if not near(found, due):
            raise CheckFailed(
                f"{size}, {_wrong(f'dx of rank {rank}', found, due)}",
                "of each row the sum of its gradients on all ranks that need it",
                why_back(size, rank, found, parts),
            )


@strips("each rank sends back what belongs to others", points=2, run=_returning)
def check_back_sent(tried: ExchangeRun) -> None:
    """In backward a rank sends the gradients of the rows that it has from others, and no others."""
    _check_sent(tried, "the gradients of the rows that it has from others")


@strips("the rows of y of one process", points=2, run=_training)
def check_outputs(tried: LayerRun) -> None:
    """In each step a rank has its rows of y, whatever the step before."""
    size = tried.size
    for step in range(STEPS):
        image = tried.image(step)
        for rank, own in enumerate(tried.each(step)):
            due = tried.conv.forward(window(image, size.need[rank]), tried.weight)
            where = f"{size}, forward of rank {rank} in step {step}"
            seen = _of_shape(where, own.y, due)
            if not near(seen, due):
                raise CheckFailed(
                    f"{where}: {_wrong('its y', seen, due)}",
                    "its rows of what one process computes of the whole image",
                    why_outputs(tried, step, rank),
                )


@strips("dx and dw of one process", points=2, run=_training)
def check_gradients(tried: LayerRun) -> None:
    """In each step the gradients of a rank's rows, and on all ranks that of the weight."""
    size = tried.size
    for step in range(STEPS):
        every, weights = zip(*(back_of(tried, step, r) for r in range(size.ranks)), strict=True)
        dw = torch.stack(weights).sum(0)
        for rank, own in enumerate(tried.each(step)):
            where = f"{size}, backward of rank {rank} in step {step}"
            parts = returns(size, rank, every)
            dx = torch.stack(parts).sum(0)
            seen = _of_shape(f"{where}, dx", own.dx, dx)
            if not near(seen, dx):
                raise CheckFailed(
                    f"{where}: {_wrong('its dx', seen, dx)}",
                    GRADIENTS,
                    why_back(size, rank, seen, parts),
                )
            seen = _of_shape(f"{where}, dw", own.dw, dw)
            if not near(seen, dw):
                raise CheckFailed(
                    f"{where}: its dw is wrong", GRADIENTS, why_dw(tried, step, rank, seen)
                )


@strips("a step sends halos, and dw", points=2, run=_training)
def check_step_sent(tried: LayerRun) -> None:
    """In a step a rank sends rows in forward, gradients of rows in backward, and dw."""
    for rank, sent in enumerate(tried.sent):
        if abs(sent - tried.due(rank)) > 64:
            raise CheckFailed(
                f"{tried.size}, rank {rank} sends {sent:,.0f} bytes in a step",
                f"{tried.due(rank):,.0f}: halos in both directions, and dw in an all-reduce",
                why_step_sent(tried, rank),
            )


def _check_sent(tried: ExchangeRun, what: str) -> None:
    for rank, due in enumerate(tried.size.rows_sent(tried.back)):
        if tried.sent[rank] != due:
            raise CheckFailed(
                f"{tried.size}, rank {rank} sends {in_rows(tried.sent[rank])}",
                f"{due}: {what}",
                why_sent(tried, rank),
            )


def _of_shape(where: str, found: torch.Tensor | None, due: torch.Tensor) -> torch.Tensor:
    """The tensor. Raises CheckFailed if it has not the shape that is due."""
    if found is not None and found.shape == due.shape:
        return found
    raise CheckFailed(
        f"{where} returned "
        + ("no tensor" if found is None else f"a tensor of the shape {tuple(found.shape)}"),
        f"a tensor of the shape {tuple(due.shape)}",
        "which line returns?"
        if found is None
        else "how many rows are asked for, and of which "
        "block? A pair is the first row and the one behind the last.",
    )


def _listed(stand: Sequence[int | str]) -> str:
    return ", ".join(map(str, stand))


def _wrong(what: str, seen: torch.Tensor, due: torch.Tensor) -> str:
    rows = [i for i in range(due.shape[2]) if not near(seen[:, :, i], due[:, :, i])]
    verb = "are" if rows[1:] else "is"
    return f"row{'s' * (len(rows) > 1)} {_listed(rows)} of {what} {verb} wrong"


# -- rehearsals ------------------------------------------------------------------------------------


@dataclass(repr=False)
class RowsRun(Rehearsal):
    """A rehearsal with the rows that rank 1 received."""

    received: float = 0


def _same_size(kernel: int, stride: int, dilation: int) -> Strips:
    return Strips(4, 32, kernel, stride, dilation, dilation * (kernel - 1) // 2)


def rehearse(
    program: Callable[..., Any], kernel: int = 3, stride: int = 1, dilation: int = 1
) -> RowsRun:
    """Fetch the rows of an image of 32 rows on 4 ranks."""
    size = _same_size(kernel, stride, dilation)
    try:
        tried = exchange(size, program)
    except CheckFailed as failed:
        return RowsRun(**vars(Rehearsal.stopped(failed, size.ranks)))
    came = received(tried.trace)
    lines = [f"{size}:"]
    for rank, ((lo, hi), (first, end)) in enumerate(zip(size.own, size.need, strict=True)):
        lines.append(
            f"  rank {rank} has rows {lo:2} to {hi - 1:2}, needs {first:2} to {end - 1:2}, "
            f"receives {came[rank]:g}, sends {tried.sent[rank]:g}"
        )
    return _rehearsed(RowsRun, tried, lines, (check_rows, check_rows_sent), received=came[1])


def rehearse_layer(program: Callable[..., Any], kernel: int = 3, stride: int = 1) -> Rehearsal:
    """Run a layer forward and backward, twice, over an image of 32 rows on 4 ranks."""
    size = _same_size(kernel, stride, 1)
    try:
        tried = trained(size, program)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, size.ranks)
    lines = [f"{size}: a rank sends at most {max(tried.sent):,.0f} bytes in a step"]
    judges = check_outputs, check_gradients, check_step_sent
    return _rehearsed(Rehearsal, tried, lines, judges)


def _rehearsed(kind: Any, tried: Any, lines: list[str], judges: Sequence[Any], **found: Any) -> Any:
    try:
        for each in judges:
            each.judge(tried)
    except CheckFailed as failed:
        return kind(tried.trace, "\n".join([*lines, "not yet right", failed.in_short]))
    return kind(tried.trace, "\n".join([*lines, "and all of it is right"]), True, **found)
