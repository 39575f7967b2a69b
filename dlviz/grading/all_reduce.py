"""Checks of a ring all-reduce that a student wrote: what was seen, what was expected, one hint.

The student's two functions work in place on the chunks of a rank's tensor, chunk i of n being
`chunks[i]`, and send to the right neighbour alone:

    reduce_scatter(comm, chunks)   rank r begins with chunk r; every rank ends with one whole sum
    all_gather(comm, chunks)       ... and now every rank with all of them

Each check runs them on real ranks for a few tenths of a second and reads what the ranks then held
and the Trace. Tensors are filled by `viz.encode`, so a check can say whose contributions a chunk
holds. A program that raises, hangs or is killed is told of in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlviz.grading.attempt import Attempt, Function, attempt, rehearse
from dlviz.grading.feedback import CheckFailed, Rehearsal
from dlviz.metrics import bytes_sent
from dlviz.trace import Trace

__all__ = [
    "CheckFailed",
    "Rehearsal",
    "check_all_gather",
    "check_bytes",
    "check_no_hang",
    "check_reduce_scatter",
    "check_steps",
    "check_sums",
    "rehearse",
]
RANKS = (2, 3, 4, 5)
REPLACED = (
    "the list holds the sums, the tensor does not: an assignment puts another tensor into the "
    "list. Change the cells that the chunk has."
)


def check_reduce_scatter(reduce_scatter: Function, ranks: Sequence[int] = RANKS) -> None:
    """After reduce_scatter each rank holds one whole chunk, and together they hold them all."""

    def check(n: int) -> None:
        _check_scattered(attempt(n, 3 * n, [reduce_scatter]))

    _on_each(ranks, check)
    _passed("after reduce_scatter each rank holds one whole chunk", ranks)


def check_all_gather(
    reduce_scatter: Function, all_gather: Function, ranks: Sequence[int] = RANKS
) -> None:
    """all_gather brings whole chunks to all ranks: those that the student's reduce_scatter leaves,
    or where that is not right yet, those that a right one would."""

    def check(n: int) -> None:
        try:
            tried = attempt(n, 3 * n, [reduce_scatter, all_gather])
            _check_scattered(tried)
        except CheckFailed:
            tried = attempt(n, 3 * n, [all_gather], scattered=True)
        _check_gathered(tried, _why_not_gathered)

    _on_each(ranks, check)
    _passed("after all_gather each rank holds all chunks whole", ranks)


def check_sums(
    reduce_scatter: Function, all_gather: Function, ranks: Sequence[int] = RANKS
) -> None:
    """Both in a row give every rank the sum, for tensors that cannot be cut evenly and for ones
    shorter than the ranks."""

    def check(n: int) -> None:
        for cells in (2 * n + 1, n - 1):
            _check_gathered(attempt(n, cells, [reduce_scatter, all_gather]), _why_no_sum)

    _on_each(ranks, check)
    _passed("every rank ends with the sum", ranks)


def check_steps(
    reduce_scatter: Function, all_gather: Function, ranks: Sequence[int] = RANKS
) -> None:
    """2(n-1) steps, in each of which every rank sends to its right neighbour.

    A message belongs to the step after that of the last message that its sender had received.
    """

    def check(n: int) -> None:
        trace = attempt(n, 4 * n, [reduce_scatter, all_gather]).trace
        _check_sends(trace, n)
        table = trace.messages
        expected = f"2(n-1) = {2 * (n - 1)} steps, each rank sending to its right neighbour"
        pairs = set(zip(table.src.tolist(), table.dst.tolist(), strict=True))
        astray = sorted((src, dst) for src, dst in pairs if dst != (src + 1) % n)
        if astray:
            src, dst = astray[0]
            raise CheckFailed(
                f"on {n} ranks, rank {src} sent to rank {dst}",
                f"{expected}, rank {(src + 1) % n}",
                "in a ring a rank knows two others: one it sends to and one it receives from. "
                "What it wants to tell the rest goes by way of them.",
            )
        steps = _steps(trace)
        if steps != 2 * (n - 1):
            raise CheckFailed(
                f"on {n} ranks, {steps} step{'s' * (steps != 1)}",
                expected,
                "a chunk has to come past every other rank once to be whole, and once more to be "
                "known to all. How many steps does each of your loops take?"
                if steps < 2 * (n - 1)
                else "count a rank's sends. If there are no more than there should be, some rank "
                "sends only after it has received, so its neighbour stands still meanwhile: in a "
                "step all ranks can have a message under way at once.",
            )

    _on_each(ranks, check)
    _passed("2(n-1) steps round the ring", ranks)


def check_bytes(
    reduce_scatter: Function, all_gather: Function, ranks: Sequence[int] = RANKS
) -> None:
    """Each rank sends 2(n-1)/n times the tensor's bytes."""

    def check(n: int) -> None:
        trace = attempt(n, 4 * n, [reduce_scatter, all_gather]).trace
        _check_sends(trace, n)
        sent, nbytes = bytes_sent(trace), 4 * n * 8
        expected = 2 * (n - 1) * nbytes // n
        wrong = np.flatnonzero(sent != expected)
        if not len(wrong):
            return
        rank = int(wrong[0])
        if len(set(sent.tolist())) > 1:
            hint = (
                f"rank {sent.argmax()} sends most, rank {sent.argmin()} least. In a ring all ranks "
                "do the same: what does yours let one rank do for the others?"
            )
        elif sent[rank] > expected:
            hint = "does a message carry one chunk or more, and does it go out once?"
        else:
            hint = "some messages are missing: does each of the two loops take all its steps?"
        raise CheckFailed(
            f"on {n} ranks with {nbytes} bytes each, rank {rank} sent {sent[rank]} bytes",
            f"2(n-1)/n · {nbytes} = {expected} bytes from every rank",
            hint,
        )

    _on_each(ranks, check)
    _passed("each rank sends 2(n-1)/n times the tensor's bytes", ranks)


def check_no_hang(
    reduce_scatter: Function, all_gather: Function, ranks: Sequence[int] = RANKS
) -> None:
    """Every rank returns though one comes late, every message is received, and no tensor is touched
    while it is on its way."""

    def check(n: int) -> None:
        tried = attempt(n, 4 * n, [reduce_scatter, all_gather], late=True)
        _check_sends(tried.trace, n)
        table = tried.trace.messages
        lost = np.flatnonzero(~np.isfinite(table.received))
        if len(lost):
            src, dst = table.src[lost[0]], table.dst[lost[0]]
            raise CheckFailed(
                f"on {n} ranks, rank {src} sent rank {dst} a message that it never received",
                "every message is received",
                "do sender and receiver take the same number of steps?",
            )
        if tried.faults:
            raise CheckFailed(
                f"on {n} ranks, {tried.faults[0]}",
                "wait() is called on every request, and until it has returned the tensor that is "
                "on its way is left alone",
                "isend and irecv return at once, the message takes its time. What may not happen "
                "to the tensor meanwhile, and what tells you that the message is through?",
            )

    _on_each(ranks, check)
    _passed("nobody hangs, no message is left over or touched on its way", ranks)


def _on_each(ranks: Sequence[int], check: Callable[[int], None]) -> None:
    for n in ranks:
        try:
            check(n)
        except CheckFailed as failed:
            if n == 3 and {2, 4} <= {*ranks} and _passes(check, 4):
                hint = "it works on 2 and on 4 ranks. What in it holds for powers of two alone?"
                failed = CheckFailed(failed.seen, failed.expected, hint)
            raise failed from None


def _passes(check: Callable[[int], None], n: int) -> bool:
    try:
        check(n)
    except CheckFailed:
        return False
    return True


def _passed(what: str, ranks: Sequence[int]) -> None:
    *most, last = map(str, ranks)
    print(f"Right: {what}, on {', '.join(most)}{' and ' * bool(most)}{last} ranks.")


def _check_scattered(tried: Attempt) -> None:
    whole, n = tried.whole(0), tried.ranks
    expected = f"a chunk that holds all {n} ranks once on each rank, and every chunk on some rank"
    without = np.flatnonzero(~whole.any(axis=1))
    nowhere = np.flatnonzero(~whole.any(axis=0))
    if len(without) or len(nowhere):
        rank = int(without[0]) if len(without) else 0
        seen = f"{tried.where}, rank {rank} holds {tried.says(rank, 0)}"
        if not len(without):
            seen = f"{tried.where}, chunk {nowhere[0]} is whole on no rank"
        raise CheckFailed(seen, expected, _why_not_scattered(tried))


def _check_gathered(tried: Attempt, why: Callable[[Attempt, int], str]) -> None:
    whole = tried.whole(-1)
    for rank in np.flatnonzero(~whole.all(axis=1))[:1].tolist():
        raise CheckFailed(
            f"{tried.where}, rank {rank} ends with {tried.says(rank, -1)}",
            f"every chunk holds all {tried.ranks} ranks once, on every rank",
            why(tried, rank),
        )


def _check_sends(trace: Trace, n: int) -> None:
    """That there are messages at all."""
    if not len(trace.messages):
        collective = (trace.spans.kind == "collective").any()
        raise CheckFailed(
            f"on {n} ranks, no message was sent"
            + (" by your code: the backend's own collective did the work" if collective else ""),
            "messages from every rank to its right neighbour",
            "use comm.send, comm.recv, comm.isend and comm.irecv, and no collective."
            if collective
            else "the chunks have to travel: which rank sends in the first step, and to whom?",
        )


def _why_not_scattered(tried: Attempt) -> str:
    n, whole = tried.ranks, tried.whole(0)
    counts = np.stack(tried.held[0])  # (ranks, cells, ranks)
    own = counts[np.arange(n), :, np.arange(n)]  # each rank's contribution to its own cells
    untouched = (counts == np.eye(n, dtype=int)[:, None]).all()
    if tried.replaced():
        return REPLACED
    if untouched and not len(tried.trace.messages):
        return (
            "nothing was sent. What does rank 0 do in the first step, and what rank 1? If you have "
            f"a loop: how often does it run on {n} ranks?"
        )
    if untouched:
        return "messages arrive, but no cell has changed: what becomes of what arrives?"
    if whole.any() and not whole.any(axis=1).all():
        owner = int(whole.any(axis=1).argmax())
        return (
            f"rank {owner} holds whole chunks and others hold none: each rank has to end with one, "
            "so each has to do its share of the adding."
        )
    if (counts < 0).any():
        return (
            "some cells hold what no sum of the ranks' numbers for them can be: a chunk was added "
            "to another one. Which chunk arrives, and which one is it added to?"
        )
    if (counts > 1).any():
        return (
            "a contribution was added twice. Follow one chunk round the ring: what does a rank "
            "pass on in the step after it has added to a chunk?"
        )
    if (own == 0).any():
        return "a rank's own share of a chunk is gone: what arrives must not replace it."
    return (
        "sums have begun to grow but none is complete. How many steps does a chunk need to come "
        "past every rank, and which chunk does a rank pass on after its first step?"
    )


def _why_not_gathered(tried: Attempt, rank: int) -> str:
    counts = tried.held[-1][rank]
    if tried.replaced():
        return REPLACED
    if (counts > 1).any():
        return "a chunk that arrives in all_gather is whole already: is it added or copied?"
    if (counts < 0).any():
        return (
            "some cells hold what no sum of the ranks' numbers for them can be. Sender and "
            "receiver of a message have to mean the same chunk, and a chunk that arrives is whole "
            "already."
        )
    return (
        "whole chunks have not come to all ranks. How many steps does one need, and what does a "
        "rank pass on after it has received one?"
    )


def _why_no_sum(tried: Attempt, rank: int) -> str:
    if not tried.whole(0).any(axis=0).all():
        return "sums were not complete when all_gather began: mend reduce_scatter first."
    if (tried.held[-1][rank] > 1).any():
        return "all_gather adds to sums that were complete: mend it first."
    return (
        "reduce_scatter left each sum whole on some rank, but all_gather did not bring them to "
        "all: do both mean the same chunk, and does all_gather take all its steps?"
    )


def _steps(trace: Trace) -> int:
    from dlviz.viz import message_frames

    return len(message_frames(trace)) - 1
