"""Hints for a student's ring all-reduce: likely causes of what a check saw."""

from __future__ import annotations

import numpy as np

from dlviz.grading.assignments.ring_all_reduce.run import UNKNOWN, Attempt
from dlviz.grading.harness.feedback import listed, number

REPLACED = (
    "the list holds the sums, the tensor does not: an assignment puts another tensor into the "
    "list. Change the chunk's cells in place."
)
ODD = (
    "some cells hold no sum of the ranks' numbers for them: was another chunk added, or a number "
    "changed in transit?"
)


def _why_odd(tried: Attempt, rest: str) -> str:
    """A hint if some cells hold no sum of contributions; `rest` if the cause is unknown."""
    values, nearest, sums = tried.odd().T
    if np.isnan(values).any():
        return (
            "a number was read from a tensor whose message had not arrived yet. Which call returns "
            "when it has?"
        )
    if np.isclose(values * tried.ranks, sums, rtol=1e-9).all():
        return f"some cells hold 1/{tried.ranks} of the sum. Each rank has to end with the sum."
    if (values == np.round(values)).all():
        return "the numbers have lost their fractions: which line makes whole numbers of them?"
    if np.isclose(values, nearest, rtol=1e-6).all():
        return (
            "the numbers have lost digits: they were in another type than float64. Which line "
            "converts them?"
        )
    return rest


def why_not_scattered(tried: Attempt) -> str:
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
            "so each has to do its share of the sums."
        )
    if _sends_first(tried):
        return (
            "each rank starts all its sends before the first message has arrived. What it passes "
            "on lacks the content of that message."
        )
    if (counts > 1).any():
        return (
            "a contribution was added twice. Follow one chunk round the ring: what does a rank "
            "pass on in the round after it has added to a chunk?"
        )
    if (own == 0).any():
        return "a rank's own share of a chunk is gone: what arrives must not replace it."
    return (
        "sums have begun to grow but none is complete. How many rounds does a chunk need to pass "
        "every rank, and which chunk does a rank pass on after its first round?"
    )


def _why_untouched(tried: Attempt) -> str:
    if not len(tried.trace.messages):
        return (
            "nothing was sent. What does rank 0 do in the first round, and what rank 1? If you "
            f"have a loop: how often does it run on {tried.ranks} ranks?"
        )
    return (
        why_unwaited(tried)
        or "messages arrive, but no cell has changed: what is done with what arrives?"
    )


def why_unwaited(tried: Attempt) -> str:
    """The first receive for which a rank never waited, or ""."""
    waits = [fault for fault in tried.faults() if "waited for the receive" in fault]
    if not waits:
        return ""
    return f"{waits[0]}. A message is in its tensor only when wait() of its request has returned."


def why_not_gathered(tried: Attempt, rank: int) -> str:
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
            "the first message that rank 0 sends in all_gather is no whole chunk. Which chunk is "
            "whole on it after reduce_scatter?"
        )
    enough = (counts >= tried.expected).all(axis=1)
    if (enough & (counts > tried.expected).any(axis=1)).any():
        return "a chunk that arrives in all_gather is whole already: is it added or copied?"
    if (counts == UNKNOWN).any():
        return _why_odd(
            tried,
            f"{ODD} Sender and receiver of a message must use the same chunk.",
        )
    return (
        "whole chunks have not reached all ranks. How many rounds does one need, and what does a "
        "rank pass on after it has received one?"
    )


def why_no_sum(tried: Attempt, rank: int) -> str:
    if not tried.whole(0).any(axis=0).all():
        return "sums were not complete when all_gather began: fix reduce_scatter first."
    if (tried.counts[-1][rank] > 1).any():
        return "all_gather adds to sums that were complete: fix all_gather first."
    rest = (
        "reduce_scatter left each sum whole on some rank, but all_gather did not bring them to "
        "all: do both use the same chunk, and does all_gather run all its rounds?"
    )
    return _why_odd(tried, rest) if (tried.counts[-1][rank] == UNKNOWN).any() else rest


def why_astray(tried: Attempt, pairs: set[tuple[int, int]], astray: list[tuple[int, int]]) -> str:
    n = tried.ranks
    left = [(src, dst) for src, dst in astray if dst == (src - 1) % n]
    if len(left) == len(pairs):
        return (
            "the chunks go round in the other direction. Which number does the right neighbour "
            "have?"
        )
    if name := _turned(tried):
        return (
            f"{name} goes round in the other direction. Which number does the right neighbour have?"
        )
    if len(left) == len(astray) == n:
        return (
            "what does a rank send its left neighbour? recv returns when the message has arrived "
            "and wait() when it was received, so no answer is needed."
        )
    return (
        "in a ring a rank has two neighbours: one it sends to and one it receives from. Everything "
        "for the others goes through them."
    )


def _turned(tried: Attempt) -> str:
    """The function in which rank 0 sends only to its left neighbour, or ""."""
    table, first = tried.trace.messages, tried.sends(0)[0]
    own = np.flatnonzero(table.src == 0)
    to = table.dst[own[np.argsort(table.sent[own], kind="stable")]]
    parts = zip(tried.names, (to[:first], to[first:]), strict=True)
    return next((name for name, dst in parts if len(dst) and (dst == tried.ranks - 1).all()), "")


def why_rounds(tried: Attempt, rounds: int) -> str:
    if why_unwaited(tried):
        return f"a round ends when its message is received. {why_unwaited(tried)}"
    most = max(max(tried.sends(i)) for i in range(len(tried.names)))
    if rounds < 2 * (tried.ranks - 1) or most > tried.ranks - 1:
        return (
            "a chunk has to pass every other rank once to become whole, and once more to be copied "
            f"to all. {sends_of(tried)}"
        )
    return (
        "no rank sends too often, so some rank sends only after it has received, and its neighbour "
        "is idle meanwhile: in a round all ranks can send at the same time."
    )


def why_bytes(tried: Attempt, sent: list[int], expected: int, chunk: int) -> str:
    longest = int(tried.trace.messages.nbytes.max())
    if len(set(sent)) > 1:
        most, least = sent.index(max(sent)), sent.index(min(sent))
        return (
            f"rank {most} sends most, rank {least} least. In a ring all ranks do the same: what "
            "does one rank do for the others in yours?"
        )
    if longest > chunk:
        return (
            f"a message carries {longest} bytes and a chunk has {chunk}. Which part of it does the "
            "neighbour need?"
        )
    if sent[0] > expected:
        return f"some messages are needless. {sends_of(tried)}"
    return f"some messages are missing. {sends_of(tried)}"


def sends_of(tried: Attempt) -> str:
    summary = [f"{number(tried.sends(i)[0], 'message')} in {n}" for i, n in enumerate(tried.names)]
    return f"On {tried.ranks} ranks, rank 0 sends {listed(summary)}."


def _sends_first(tried: Attempt) -> bool:
    """Whether rank 0 starts several sends, and all before it has received a message."""
    table = tried.trace.messages
    sent, received = table.sent[table.src == 0], table.received[table.dst == 0]
    return len(sent) > 1 and len(received) > 0 and sent.max() < received.min()


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9)
