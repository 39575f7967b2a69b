"""Checks of a ring all-reduce that a student wrote: what was seen, what was expected, one hint.

The student's two functions work in place on the chunks of a rank's tensor, chunk i of n being
`chunks[i]`, and send to the right neighbour alone:

    reduce_scatter(comm, chunks)   rank r begins with chunk r; every rank ends with one whole sum
    all_gather(comm, chunks)       ... and now every rank with all of them

Each check runs them on 1 to 5 real ranks, some tenths of a second each, and reads what the ranks
then held and the Trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm, RunError
from dlviz.grading.alone import TimeUp, ended_by, run_alone
from dlviz.grading.attempt import MOST_RANKS, UNKNOWN, Attempt, Function, attempt, why
from dlviz.grading.check import check
from dlviz.grading.feedback import CheckFailed, Rehearsal, listed, number
from dlviz.metrics import bytes_sent
from dlviz.trace import Trace

__all__ = [
    "check_all_gather",
    "check_bytes",
    "check_no_hang",
    "check_reduce_scatter",
    "check_rounds",
    "check_sums",
    "rehearse",
]
RANKS = (2, 3, 4, 5, 1)
REPLACED = (
    "the list holds the sums, the tensor does not: an assignment puts another tensor into the "
    "list. Change the cells that the chunk has."
)
ODD = (
    "some cells hold what no sum of the ranks' numbers for them can be: was another chunk added to "
    "theirs, or a number changed on its way?"
)


@dataclass(frozen=True)
class Ranks:
    """A number of ranks at which a program is tried."""

    ranks: int

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= MOST_RANKS:
            raise ValueError(f"{self.ranks} ranks: the checks take 1 to {MOST_RANKS}.")

    @property
    def trivial(self) -> bool:
        return self.ranks == 1

    @staticmethod
    def listed(sizes: Sequence[Ranks]) -> str:
        numbers = sorted(size.ranks for size in sizes)
        return f"on {listed([*map(str, numbers)])} rank{'s' * (numbers != [1])}"

    @staticmethod
    def in_common(passed: Sequence[Ranks], failed: Sequence[Ranks]) -> str:
        right = {size.ranks for size in passed} - {1}
        wrong = {size.ranks for size in failed}
        if {2, 4} <= right and {3, 5} & wrong:
            return (
                "it works on 2 and on 4 ranks. What in it holds for even numbers or powers of two "
                "alone?"
            )
        # on 2 ranks both neighbours are one rank, and any order of the chunks will do
        if len(right) == 1 and right != {2} and len(wrong - {1}) > 1:
            only = next(iter(right))
            return f"it works on {only} ranks alone. Where does yours rely on that number?"
        return ""


def on_ranks(
    *cells: Callable[[int], int], functions: int = 2, late: bool = False
) -> Callable[[Sequence[Function], Sequence[Ranks]], dict[Ranks, Any]]:
    """How a check tries the first so many functions: with tensors of so many cells for n ranks."""

    def run(programs: Sequence[Function], sizes: Sequence[Ranks]) -> dict[Ranks, Any]:
        left: dict[Ranks, Any] = {}
        for size in sizes:
            n = size.ranks
            try:
                left[size] = [
                    attempt(n, count(n), programs[:functions], late=late) for count in cells
                ]
            except CheckFailed as failed:
                left[size] = failed
                if isinstance(failed.__cause__, TimeUp):
                    break  # it would take as long on all the others
        return left

    return run


def _gathering(programs: Sequence[Function], sizes: Sequence[Ranks]) -> dict[Ranks, Any]:
    """Both functions, and where the first is not right yet, the second alone, from what a right one
    would leave."""
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
        except CheckFailed as told:
            failed = told
        try:
            alone = attempt(n, 3 * n, programs[1:], scattered=True)
            left[size] = [replace(alone, instead=failed.seen)]
        except CheckFailed as told:
            left[size] = told
            if isinstance(told.__cause__, TimeUp):
                break
    return left


ring = partial(check, points=3, size=Ranks, sizes=RANKS)


@ring(
    "after reduce_scatter each rank holds one whole chunk",
    run=on_ranks(lambda n: 3 * n, functions=1),
)
def check_reduce_scatter(tries: Sequence[Attempt]) -> None:
    """After reduce_scatter each rank holds one whole chunk, and together they hold them all."""
    _check_scattered(tries[0])


@ring("after all_gather each rank holds all chunks whole", run=_gathering)
def check_all_gather(tries: Sequence[Attempt]) -> str:
    """all_gather brings whole chunks to all ranks: those that the student's reduce_scatter leaves,
    or where that is not right yet, those that a right one would."""
    _check_gathered(tries[0], _why_not_gathered)
    if not tries[0].instead:
        return ""
    return (
        "This began with what a right reduce_scatter leaves, since yours is not right yet: "
        + tries[0].instead
    )


@ring("every rank ends with the sum", run=on_ranks(lambda n: 2 * n + 1, lambda n: n - 1))
def check_sums(tries: Sequence[Attempt]) -> None:
    """Both in a row give every rank the sum, for tensors that cannot be cut evenly and for ones
    shorter than the ranks."""
    for tried in tries:
        _check_gathered(tried, _why_no_sum)


@ring("2(n-1) rounds, each rank sending to its right neighbour", run=on_ranks(lambda n: 4 * n))
def check_rounds(tries: Sequence[Attempt]) -> None:
    """2(n-1) rounds, in each of which every rank sends to its right neighbour.

    A message belongs to the round after that of the last message that its sender had received.
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
            _why_astray(tried, pairs, astray),
        )
    rounds = len(message_frames(tried.trace)) - 1
    if rounds != 2 * (n - 1):
        raise CheckFailed(
            f"on {n} ranks, {number(rounds, 'round')}", expected, _why_rounds(tried, rounds)
        )


@ring("each rank sends 2(n-1)/n times the tensor's bytes", run=on_ranks(lambda n: 4 * n))
def check_bytes(tries: Sequence[Attempt]) -> None:
    """Each rank sends 2(n-1)/n times the tensor's bytes."""
    (tried,), n = tries, tries[0].ranks
    _check_sends(tried)
    sent, nbytes = bytes_sent(tried.trace), tried.starts[0].nbytes
    expected = 2 * (n - 1) * nbytes // n
    wrong = np.flatnonzero(sent != expected)
    if len(wrong):
        raise CheckFailed(
            f"on {n} ranks with {nbytes} bytes each, rank {wrong[0]} sent {sent[wrong[0]]} bytes",
            f"2(n-1)/n · {nbytes} = {expected} bytes from every rank",
            _why_bytes(tried, sent.tolist(), expected, nbytes // n),
        )


@ring(
    "nobody hangs, no message is left over or touched on its way",
    run=on_ranks(lambda n: 4 * n, late=True),
)
def check_no_hang(tries: Sequence[Attempt]) -> None:
    """Every rank returns though one comes late, every message is received, and no tensor is touched
    while it is on its way."""
    (tried,) = tries
    _check_sends(tried)
    table = tried.trace.messages
    lost = np.flatnonzero(~np.isfinite(table.received))
    if len(lost):
        src, dst = table.src[lost[0]], table.dst[lost[0]]
        raise CheckFailed(
            f"on {tried.ranks} ranks, rank {src} sent rank {dst} a message that it never received",
            "every message is received",
            _why_unwaited(tried)
            or f"does a rank receive as often as its neighbour sends? {_sends(tried)}",
        )
    if tried.faults():
        raise CheckFailed(
            f"on {tried.ranks} ranks, {tried.faults()[0]}",
            "wait() is called on every request, and until it has returned the tensor that is on "
            "its way is left alone",
            "isend and irecv return at once, the message takes its time. What may not happen to "
            "the tensor meanwhile, and what tells you that the message is through?",
        )


def rehearse(*functions: Function, ranks: int = 4, cells: int = 12) -> Rehearsal:
    """Run the functions one after the other on `ranks` ranks, each with a tensor of so many cells,
    and watch them."""
    from dlviz.viz import decode

    try:
        run = run_alone(_watched, ranks, functions, cells)
    except RunError as error:
        trace = Trace(meta={"ranks": ranks}) if error.trace is None else error.trace
        under_way = f"{number(len(trace.messages), 'message')}; " if len(trace.messages) else ""
        return Rehearsal(trace, f"{under_way}{ended_by(error)}\nHint: {why(error, ranks, cells)}")
    counts = np.array([decode(held.numpy(), ranks) for held in run.results])
    whole = np.array(
        [[(part == 1).all() for part in np.array_split(own, ranks)] for own in counts]
    )  # (rank, chunk)
    if len(functions) > 1:
        holding = f"{whole.all(axis=1).sum()} of {ranks} ranks hold all chunks whole"
    else:
        holding = f"{whole.any(axis=1).sum()} of {ranks} ranks hold a whole chunk"
    told = f"{number(len(run.trace.messages), 'message')}; every rank returned; {holding}"
    cost = 2 * (ranks - 1) * cells * 8 // ranks
    right = whole.all() and len(functions) > 1 and set(bytes_sent(run.trace).tolist()) == {cost}
    return Rehearsal(run.trace, told, bool(right))


def _watched(comm: Comm, functions: Sequence[Function], cells: int) -> torch.Tensor:
    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, cells), dtype=torch.float64)
    comm.watch(tensor, "chunks")
    chunks = list(tensor.tensor_split(comm.size))
    for function in functions:
        # not whole: inside runs the student's code, whose own lines are recorded
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
            _why_not_scattered(tried),
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
    """That there are messages at all."""
    if tried.ranks > 1 and not len(tried.trace.messages):
        raise CheckFailed(
            f"{tried.where}, no message was sent",
            "messages from every rank to its right neighbour",
            "the chunks have to travel: which rank sends in the first round, and to whom?",
        )


def _why_odd(tried: Attempt, rest: str) -> str:
    """A hint where some cells hold no sum of contributions; `rest` where nothing more is known."""
    values, nearest, sums = tried.odd().T
    if np.isnan(values).any():
        return (
            "a number was read from a tensor whose message had not come yet. Which call returns "
            "when it has?"
        )
    if np.isclose(values * tried.ranks, sums, rtol=1e-9).all():
        return f"some cells hold 1/{tried.ranks} of the sum. Each rank is to end with the sum."
    if (values == np.round(values)).all():
        return "the numbers have lost their fractions: which line makes whole numbers of them?"
    if np.isclose(values, nearest, rtol=1e-6).all():
        return (
            "the numbers have lost digits: they were in another type than float64 on the way. "
            "Which line converts them?"
        )
    return rest


def _why_not_scattered(tried: Attempt) -> str:
    n, whole = tried.ranks, tried.whole(0)
    counts = np.stack(tried.counts[0])  # (ranks, cells, ranks)
    own = counts[np.arange(n), :, np.arange(n)]  # each rank's contribution to its own cells
    if tried.replaced():
        return REPLACED
    if (counts == np.eye(n, dtype=int)[:, None]).all():
        return _why_untouched(tried)
    if (counts == UNKNOWN).any():
        return _why_odd(
            tried,
            f"{ODD} Which chunk arrives, and which one is it added to?",
        )
    if whole.any() and not whole.any(axis=1).all():
        owner = int(whole.any(axis=1).argmax())
        return (
            f"rank {owner} holds whole chunks and others hold none: each rank has to end with one, "
            "so each has to do its share of the adding."
        )
    if _sends_first(tried):
        return (
            "each rank starts all its sends before the first message has come. What it passes on "
            "then lacks what the message brings."
        )
    if (counts > 1).any():
        return (
            "a contribution was added twice. Follow one chunk round the ring: what does a rank "
            "pass on in the round after it has added to a chunk?"
        )
    if (own == 0).any():
        return "a rank's own share of a chunk is gone: what arrives must not replace it."
    return (
        "sums have begun to grow but none is complete. How many rounds does a chunk need to come "
        "past every rank, and which chunk does a rank pass on after its first round?"
    )


def _why_untouched(tried: Attempt) -> str:
    if not len(tried.trace.messages):
        return (
            "nothing was sent. What does rank 0 do in the first round, and what rank 1? If you "
            f"have a loop: how often does it run on {tried.ranks} ranks?"
        )
    return (
        _why_unwaited(tried)
        or "messages arrive, but no cell has changed: what becomes of what arrives?"
    )


def _why_unwaited(tried: Attempt) -> str:
    """The first receive for which a rank never waited, or nothing."""
    waits = [fault for fault in tried.faults() if "waited for the receive" in fault]
    if not waits:
        return ""
    return (
        f"{waits[0]}. A message is in its tensor when wait() of its request has returned, and not "
        "after any other time."
    )


def _why_not_gathered(tried: Attempt, rank: int) -> str:
    counts = tried.counts[-1][rank]
    if tried.replaced():
        return REPLACED
    begun = [own.sent[-1][0] for own in tried.left if own.sent[-1]]
    if not begun:
        return (
            "nothing was sent in all_gather. Each rank has one whole chunk: who needs it? If you "
            f"have a loop: how often does it run on {tried.ranks} ranks?"
        )
    chunks = np.array_split(tried.sums, tried.ranks)
    if not any(_same(begun[0], chunk) for chunk in chunks):
        return (
            "the first message that rank 0 sends in all_gather is no whole chunk. With which one "
            "does it end reduce_scatter?"
        )
    enough = (counts >= tried.expected).all(axis=1)
    if (enough & (counts > tried.expected).any(axis=1)).any():
        return "a chunk that arrives in all_gather is whole already: is it added or copied?"
    if (counts == UNKNOWN).any():
        return _why_odd(
            tried,
            f"{ODD} Sender and receiver of a message have to mean the same chunk.",
        )
    return (
        "whole chunks have not come to all ranks. How many rounds does one need, and what does a "
        "rank pass on after it has received one?"
    )


def _why_no_sum(tried: Attempt, rank: int) -> str:
    if not tried.whole(0).any(axis=0).all():
        return "sums were not complete when all_gather began: mend reduce_scatter first."
    if (tried.counts[-1][rank] > 1).any():
        return "all_gather adds to sums that were complete: mend all_gather first."
    rest = (
        "reduce_scatter left each sum whole on some rank, but all_gather did not bring them to "
        "all: do both mean the same chunk, and does all_gather take all its rounds?"
    )
    return _why_odd(tried, rest) if (tried.counts[-1][rank] == UNKNOWN).any() else rest


def _why_astray(tried: Attempt, pairs: set[tuple[int, int]], astray: list[tuple[int, int]]) -> str:
    n = tried.ranks
    left = [(src, dst) for src, dst in astray if dst == (src - 1) % n]
    if len(left) == len(pairs):
        return "the chunks go round the other way. Which number has the neighbour on the right?"
    if name := _turned(tried):
        return f"{name} goes round the other way. Which number has the neighbour on the right?"
    if len(left) == len(astray) == n:
        return (
            "what does a rank tell its left neighbour? recv returns when the message has come and "
            "wait() when it was taken, so no answer is needed."
        )
    return (
        "in a ring a rank knows two others: one it sends to and one it receives from. What it "
        "wants to tell the rest goes by way of them."
    )


def _turned(tried: Attempt) -> str:
    """The function all of whose messages go from rank 0 to its left neighbour, or nothing."""
    table, first = tried.trace.messages, tried.sends(0)[0]
    own = np.flatnonzero(table.src == 0)
    to = table.dst[own[np.argsort(table.sent[own], kind="stable")]]
    parts = zip(tried.names, (to[:first], to[first:]), strict=True)
    return next((name for name, dst in parts if len(dst) and (dst == tried.ranks - 1).all()), "")


def _why_rounds(tried: Attempt, rounds: int) -> str:
    if _why_unwaited(tried):
        return f"a round ends when its message is received. {_why_unwaited(tried)}"
    most = max(max(tried.sends(i)) for i in range(len(tried.names)))
    if rounds < 2 * (tried.ranks - 1) or most > tried.ranks - 1:
        return (
            "a chunk has to come past every other rank once to be whole, and once more to be known "
            f"to all. {_sends(tried)}"
        )
    return (
        "no rank sends too often, so some rank sends only after it has received, and its neighbour "
        "stands still meanwhile: in a round all ranks can have a message under way at once."
    )


def _why_bytes(tried: Attempt, sent: list[int], expected: int, chunk: int) -> str:
    longest = int(tried.trace.messages.nbytes.max())
    if len(set(sent)) > 1:
        most, least = sent.index(max(sent)), sent.index(min(sent))
        return (
            f"rank {most} sends most, rank {least} least. In a ring all ranks do the same: what "
            "does yours let one rank do for the others?"
        )
    if longest > chunk:
        return (
            f"a message carries {longest} bytes and a chunk has {chunk}. What of it does the "
            "neighbour need?"
        )
    if sent[0] > expected:
        return f"some messages are needless. {_sends(tried)}"
    return f"some messages are missing. {_sends(tried)}"


def _sends(tried: Attempt) -> str:
    told = [f"{number(tried.sends(i)[0], 'message')} in {n}" for i, n in enumerate(tried.names)]
    return f"On {tried.ranks} ranks, rank 0 sends {listed(told)}."


def _sends_first(tried: Attempt) -> bool:
    """Whether rank 0 starts several sends, and all before it has received a message."""
    table = tried.trace.messages
    sent, received = table.sent[table.src == 0], table.received[table.dst == 0]
    return len(sent) > 1 and len(received) > 0 and sent.max() < received.min()


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9)
