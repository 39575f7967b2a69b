"""Checks of a student's ring all-reduce: what was seen, what was expected, one hint.

The student's two functions work in place on the chunks of a rank's tensor, `chunks[i]`, and send
only to the right neighbour:

    reduce_scatter(comm, chunks)   rank r begins with chunk r; every rank ends with one whole sum
    all_gather(comm, chunks)       ... and now every rank with all of them

Each check runs them on 1 to 5 real ranks for some tenths of a second, and reads the resulting
tensors and the Trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dlviz.analysis.messages import message_bytes
from dlviz.cluster import Comm, RunError
from dlviz.grading.assignments.ring_all_reduce.hints import (
    sends_of,
    why_astray,
    why_bytes,
    why_no_sum,
    why_not_gathered,
    why_not_scattered,
    why_rounds,
    why_unwaited,
)
from dlviz.grading.assignments.ring_all_reduce.run import (
    MOST_RANKS,
    Attempt,
    Function,
    attempt,
    why,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, listed, number
from dlviz.grading.harness.sandbox import TimeUp, ended_by, run_alone
from dlviz.grading.harness.sizes import EVEN, ONE_ALONE, Size, one_number_alone
from dlviz.trace import Trace

__all__ = [
    "check_all_gather",
    "check_bytes",
    "check_no_hang",
    "check_reduce_scatter",
    "check_rounds",
    "check_sums",
    "rehearse",
    "rehearse_broken",
]
RANKS = (2, 3, 4, 5, 1)


@dataclass(frozen=True)
class Ranks(Size):
    """A number of ranks at which a program is tried."""

    ranks: int

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= MOST_RANKS:
            raise ValueError(f"{self.ranks} ranks: the checks take 1 to {MOST_RANKS}.")

    @classmethod
    def listed(cls, sizes: Sequence[Ranks]) -> str:
        numbers = sorted(size.ranks for size in sizes)
        return f"on {listed([*map(str, numbers)])} rank{'s' * (numbers != [1])}"

    @staticmethod
    def in_common(passed: Sequence[Ranks], failed: Sequence[Ranks]) -> str:
        right = {size.ranks for size in passed} - {1}
        wrong = {size.ranks for size in failed}
        if {2, 4} <= right and {3, 5} & wrong:
            return EVEN
        # on 2 ranks both neighbours are one rank, and any order of the chunks works
        only = one_number_alone(passed, failed)
        return ONE_ALONE.format(only) if only > 2 else ""


def on_ranks(
    *cells: Callable[[int], int], functions: int = 2, late: bool = False
) -> Callable[[Sequence[Function], Sequence[Ranks]], dict[Ranks, Any]]:
    """A check's `run`: the first `functions` functions, with tensors of so many cells for n
    ranks."""

    def run(programs: Sequence[Function], sizes: Sequence[Ranks]) -> dict[Ranks, Any]:
        def tried(size: Ranks) -> list[Attempt]:
            n = size.ranks
            return [attempt(n, count(n), programs[:functions], late=late) for count in cells]

        return at_each(sizes, tried)

    return run


def _gathering(programs: Sequence[Function], sizes: Sequence[Ranks]) -> dict[Ranks, Any]:
    """Run both functions; if the first is wrong, the second alone, from the result of a correct
    one."""
    left: dict[Ranks, Any] = {}
    failed = None
    for size in sizes:
        n = size.ranks
        try:
            if failed is None or not isinstance(failed.__cause__, TimeUp):
                both = attempt(n, 3 * n, programs)
                _check_scattered(both)
                left[size] = [both]
                continue
        except CheckFailed as summary:
            failed = summary
        try:
            alone = attempt(n, 3 * n, programs[1:], scattered=True)
            left[size] = [replace(alone, instead=failed.seen)]
        except CheckFailed as summary:
            left[size] = summary
            if isinstance(summary.__cause__, TimeUp):
                break
    return left


ring = partial(check, points=3, size=Ranks, sizes=RANKS)
_even = on_ranks(lambda n: 4 * n)  # chunks of four cells


@ring(
    "after reduce_scatter each rank holds one whole chunk",
    run=on_ranks(lambda n: 3 * n, functions=1),
)
def check_reduce_scatter(tries: Sequence[Attempt]) -> None:
    """After reduce_scatter each rank holds one whole chunk, and together they hold them all."""
    _check_scattered(tries[0])


@ring("after all_gather each rank holds all chunks whole", run=_gathering)
def check_all_gather(tries: Sequence[Attempt]) -> str:
    """all_gather brings whole chunks to all ranks, from the student's reduce_scatter, or if that
    is wrong, from the result of a correct one."""
    _check_gathered(tries[0], why_not_gathered)
    if not tries[0].instead:
        return ""
    return (
        "This began with the result of a correct reduce_scatter, since yours is not right yet: "
        + tries[0].instead
    )


@ring("every rank ends with the sum", run=on_ranks(lambda n: 2 * n + 1, lambda n: n - 1))
def check_sums(tries: Sequence[Attempt]) -> None:
    """Both in a row give every rank the sum, for tensors that cannot be cut evenly and for
    tensors shorter than the number of ranks."""
    for tried in tries:
        _check_gathered(tried, why_no_sum)


@ring("2(n-1) rounds, each rank sending to its right neighbour", run=_even)
def check_rounds(tries: Sequence[Attempt]) -> None:
    """2(n-1) rounds, in each of which every rank sends to its right neighbour.

    A message belongs to the round after the last message that its sender had received.
    """
    from dlviz.viz import message_frames

    (tried,), n = tries, tries[0].ranks
    _check_sends(tried)
    expected = f"2(n-1) = {2 * (n - 1)} rounds, each rank sending to its right neighbour"
    table = tried.trace.messages
    pairs = set(zip(table.src.tolist(), table.dst.tolist(), strict=True))
    astray = sorted((src, dst) for src, dst in pairs if dst != (src + 1) % n)
    if astray:
        src, dst = astray[0]
        raise CheckFailed(
            f"on {n} ranks, rank {src} sent to rank {dst}",
            f"{expected}, rank {(src + 1) % n}",
            why_astray(tried, pairs, astray),
        )
    rounds = len(message_frames(tried.trace)) - 1
    if rounds != 2 * (n - 1):
        raise CheckFailed(
            f"on {n} ranks, {number(rounds, 'round')}", expected, why_rounds(tried, rounds)
        )


@ring("each rank sends 2(n-1)/n times the tensor's bytes", run=_even)
def check_bytes(tries: Sequence[Attempt]) -> None:
    """Each rank sends 2(n-1)/n times the tensor's bytes."""
    (tried,), n = tries, tries[0].ranks
    _check_sends(tried)
    sent, nbytes = message_bytes(tried.trace), tried.starts[0].nbytes
    expected = 2 * (n - 1) * nbytes // n
    wrong = np.flatnonzero(sent != expected)
    if len(wrong):
        raise CheckFailed(
            f"on {n} ranks with {nbytes} bytes each, rank {wrong[0]} sent {sent[wrong[0]]} bytes",
            f"2(n-1)/n · {nbytes} = {expected} bytes from every rank",
            why_bytes(tried, sent.tolist(), expected, nbytes // n),
        )


@ring(
    "nobody hangs, no message is left over or touched on its way",
    run=on_ranks(lambda n: 4 * n, late=True),
)
def check_no_hang(tries: Sequence[Attempt]) -> None:
    """Every rank returns though one is late, every message is received, and no tensor is touched
    while its message is in transit."""
    (tried,) = tries
    _check_sends(tried)
    table = tried.trace.messages
    lost = np.flatnonzero(~np.isfinite(table.received))
    if len(lost):
        src, dst = table.src[lost[0]], table.dst[lost[0]]
        raise CheckFailed(
            f"on {tried.ranks} ranks, rank {src} sent rank {dst} a message that it never received",
            "every message is received",
            why_unwaited(tried)
            or f"does a rank receive as many messages as its neighbour sends? {sends_of(tried)}",
        )
    if tried.faults():
        raise CheckFailed(
            f"on {tried.ranks} ranks, {tried.faults()[0]}",
            "wait() is called on every request, and until it has returned the tensor in transit is "
            "left alone",
            "isend and irecv return immediately, the message takes its time. What may not happen "
            "to the tensor meanwhile, and what shows that the message has arrived?",
        )


def rehearse(*functions: Function, ranks: int = 4, cells: int = 12) -> Rehearsal:
    """Run the functions one after the other on `ranks` ranks, each with a tensor of so many
    cells."""
    from dlviz.viz import decode

    try:
        run = run_alone(_watched, ranks, functions, cells)
    except RunError as error:
        trace = Trace(meta={"ranks": ranks}) if error.trace is None else error.trace
        messages = f"{number(len(trace.messages), 'message')}; " if len(trace.messages) else ""
        return Rehearsal(trace, f"{messages}{ended_by(error)}\nHint: {why(error, ranks, cells)}")
    counts = np.array([decode(held.numpy(), ranks) for held in run.results])
    whole = np.array(
        [[(part == 1).all() for part in np.array_split(own, ranks)] for own in counts]
    )  # (rank, chunk)
    if len(functions) > 1:
        holding = f"{whole.all(axis=1).sum()} of {ranks} ranks hold all chunks whole"
        right = whole.all()
    else:
        holding = f"{whole.any(axis=1).sum()} of {ranks} ranks hold a whole chunk"
        right = whole.any(axis=1).all() and whole.any(axis=0).all()
    summary = f"{number(len(run.trace.messages), 'message')}; every rank returned; {holding}"
    cost = len(functions) * (ranks - 1) * cells * 8 // ranks
    return Rehearsal(
        run.trace, summary, bool(right and set(message_bytes(run.trace).tolist()) == {cost})
    )


def rehearse_broken() -> Rehearsal:
    """A reduce-scatter with a mistake, to be found in its picture, which shows no line of code."""
    run = rehearse(broken_scatter)
    run.trace.spans.where[:] = ""
    return run


def broken_scatter(comm: Comm, chunks: Sequence[torch.Tensor]) -> None:
    """Sends the same chunk in each round."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for _ in range(comm.size - 1):
        comm.sendrecv(chunks[comm.rank], right, chunks[left], left, op="sum")


def _watched(comm: Comm, functions: Sequence[Function], cells: int) -> torch.Tensor:
    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, cells), dtype=torch.float64)
    comm.watch(tensor, "chunks")
    chunks = list(tensor.tensor_split(comm.size))
    for function in functions:
        # not whole: the student's code runs inside, and its own lines are recorded
        with comm.recorder.open("phase", function.__name__, {}, whole=False):
            function(comm, chunks)
    return tensor


def _check_scattered(tried: Attempt) -> None:
    whole, n = tried.whole(0), tried.ranks
    without = np.flatnonzero(~whole.any(axis=1))
    nowhere = np.flatnonzero(~whole.any(axis=0))
    if len(without) or len(nowhere):
        rank = int(without[0]) if len(without) else 0
        seen = f"{tried.where}, rank {rank} holds {tried.says(rank, 0)}"
        if not len(without):
            seen = f"{tried.where}, chunk {nowhere[0]} is whole on no rank"
        raise CheckFailed(
            seen,
            f"a chunk that holds all {n} ranks once on each rank, and every chunk on some rank",
            why_not_scattered(tried),
        )
    _check_sends(tried)


def _check_gathered(tried: Attempt, why: Callable[[Attempt, int], str]) -> None:
    whole = tried.whole(-1)
    for rank in np.flatnonzero(~whole.all(axis=1))[:1].tolist():
        raise CheckFailed(
            f"{tried.where}, rank {rank} ends with {tried.says(rank, -1)}",
            f"every chunk is whole on every rank: it holds all {tried.ranks} ranks once",
            why(tried, rank),
        )
    _check_sends(tried)


def _check_sends(tried: Attempt) -> None:
    """Fail if no message was sent."""
    if tried.ranks > 1 and not len(tried.trace.messages):
        raise CheckFailed(
            f"{tried.where}, no message was sent",
            "messages from every rank to its right neighbour",
            "the chunks have to travel: which rank sends in the first round, and to whom?",
        )
