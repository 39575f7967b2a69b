"""Checks of a student's 1-bit SGD: what was seen, what was expected, one hint.

    encode, decode        a bit a value, two means a block (model.py)
    compensate            codes gradient + residual, and stores what the code loses
    class OneBitMean      codes to the owner of each chunk, and the mean in codes to all (run.py)

Feedback and exchange get a correct coder. Each check runs for some tenths of a second on 1 to 5
real ranks and compares with all ranks' exchange in one process; bytes are read from the Trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dlviz.analysis.messages import message_bytes
from dlviz.grading.assignments.one_bit_sgd.hints import (
    bytes_sent,
    chain,
    follows,
    why_averaged,
    why_bytes,
    why_compensated,
    why_decoded,
    wrong_code,
)
from dlviz.grading.assignments.one_bit_sgd.model import ORDERS, RIGHT, decoded, rendered
from dlviz.grading.assignments.one_bit_sgd.run import (
    PAIR,
    STEPS,
    Attempt,
    Buckets,
    Coded,
    Compensated,
    Function,
    InBlocks,
    attempt,
    coded,
    compensated,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, number, passes
from dlviz.grading.harness.sandbox import TimeUp
from dlviz.trace import Trace

__all__ = [
    "check_bytes",
    "check_decode",
    "check_encode",
    "check_feedback",
    "check_mean",
    "check_no_hang",
    "rehearse",
    "rehearse_code",
    "rehearse_feedback",
]
CODES = ((21, 6), (16, 8), (13, 5), (40, 16), (5, 8))


def _encoding(programs: Sequence[Function], sizes: Sequence[InBlocks]) -> dict[InBlocks, Any]:
    return at_each(sizes, lambda size: coded(size, programs[0], None))


def _decoding(programs: Sequence[Function], sizes: Sequence[InBlocks]) -> dict[InBlocks, Any]:
    """Each size with what was decoded of the student's own code, or where that is wrong, of
    correct ones, with the bits of a byte in either order; and why."""
    encode, decode = programs
    instead: CheckFailed | None = None

    def tried(size: InBlocks) -> tuple[list[Coded], str]:
        nonlocal instead
        if instead is None or not isinstance(instead.__cause__, TimeUp):
            try:
                check_encode.judge(coded(size, encode, None))
            except CheckFailed as failed:
                instead = failed
            else:
                return [coded(size, encode, decode)], ""
        return [coded(size, None, decode, order) for order in ORDERS], instead.seen

    return at_each(sizes, tried)


def on_ranks(late: bool = False) -> Callable[[Sequence[Function], Sequence[Buckets]], Any]:
    return lambda programs, sizes: at_each(sizes, lambda size: attempt(size, programs[0], late))


alone = partial(check, size=InBlocks)
exchange = partial(check, size=Buckets)
averaged = on_ranks()


@alone("a bit a value and two means a block", points=3, sizes=CODES, run=_encoding)
def check_encode(left: Coded) -> None:
    """ceil(n/8) bytes with a bit for each value, and the means of the two sides of each block."""
    if found := wrong_code(left):
        bits, blocks = -(-left.size.values // 8), -(-left.size.values // left.size.per)
        raise CheckFailed(
            f"{left.size}, {found[0]}",
            f"{number(bits, 'byte')} of bits and means of shape ({blocks}, 2) in float32",
            found[1],
        )


@alone("each value is the mean that its bit stands for", points=3, sizes=CODES, run=_decoding)
def check_decode(tried: tuple[list[Coded], str]) -> str:
    """decode makes of the student's code, or where that is wrong, of a correct one, the mean of
    its side for each value."""
    each, instead = tried
    if not any(passes(_check_decoded, left) for left in each):
        _check_decoded(each[0])
    if not instead:
        return ""
    return f"This began with a correct code, since yours is not right yet: {instead}"


def _check_decoded(left: Coded) -> None:
    right, seen = decoded(left.values, left.size.per), left.decoded
    if seen is None or seen.shape != right.shape or not np.allclose(seen, right, atol=1e-5):
        wrong = right if seen is None or seen.shape != right.shape else right[seen != right]
        raise CheckFailed(
            f"{left.size}, decode returned "
            + ("no tensor" if seen is None else f"{len(wrong)} wrong values"),
            f"a row of {number(len(right), 'value')}, each the mean of its side of its block",
            why_decoded(left),
        )


def _compensating(programs: Sequence[Function], sizes: Sequence[InBlocks]) -> dict[InBlocks, Any]:
    return at_each(sizes, lambda size: compensated(size, programs[0]))


@alone(
    "what a code loses is sent with the next one",
    points=4,
    sizes=((20, 8), (16, 16), (7, 3), (33, 8)),
    run=_compensating,
)
def check_feedback(left: Compensated) -> None:
    """In each of four steps the code is that of gradient and residual, and the residual what this
    code loses."""
    if left.decoded[-1] is None:
        raise CheckFailed(
            f"{left.size}, compensate returned no code of as many values",
            PAIR,
            "return what coder.encode returned.",
        )
    step = follows(left, RIGHT)
    if step >= 0:
        d, _ = chain(left, RIGHT)[step]
        seen = left.decoded[step]
        what = (
            "the residual" if seen is not None and np.allclose(seen, d, atol=1e-5) else "the code"
        )
        raise CheckFailed(
            f"{left.size}, {what} of step {step} is wrong",
            "the code of v = gradient + residual; then the residual is v minus what was decoded",
            why_compensated(left),
        )


@exchange(
    "every rank ends with the mean, coded at both ends",
    points=4,
    sizes=((2, 40, 8), (3, 40, 8), (4, 41, 16), (4, 7, 4), (1, 24, 8)),
    run=averaged,
)
def check_mean(tried: Attempt) -> None:
    """In each of four steps every rank ends with what the owners' codes hold: those of the mean
    of the ranks' codes, with the residuals of both ends."""
    means = rendered(tried.given, tried.size.per)
    if tried.leaves(means):
        return
    rank, step, bucket = next(
        (rank, step, i)
        for step, own in enumerate(means)
        for i, mean in enumerate(own)
        for rank, left in enumerate(tried.left)
        if not np.allclose(left.results[step][i], mean, rtol=0, atol=1e-5)
    )
    off = np.abs(tried.left[rank].results[step][bucket] - means[step][bucket])
    raise CheckFailed(
        f"{tried.size}, in step {step} rank {rank} ends with {(off > 1e-5).sum()} wrong values of "
        f"{len(off)} in bucket {bucket}",
        "what the owners' codes of the mean hold, on every rank",
        why_averaged(tried),
    )


@exchange(
    "each rank sends 2(n-1)/n of its code's bytes",
    points=2,
    sizes=((2, 40, 8), (3, 41, 8), (4, 64, 16)),
    run=averaged,
)
def check_bytes(tried: Attempt) -> None:
    """A rank sends the codes of the other chunks, and that of its own chunk's mean to all."""
    sent = message_bytes(tried.trace) / STEPS
    for rank, seen in enumerate(sent.tolist()):
        expected = sum(bytes_sent(tried.size, rank)[:2])
        if seen != expected:
            raise CheckFailed(
                f"{tried.size}, rank {rank} sends {seen:g} bytes in a step",
                f"{expected} bytes: the codes of the other ranks' chunks, and the code of its own "
                f"chunk's mean {tried.size.ranks - 1} times",
                why_bytes(tried.size, rank, int(seen)),
            )


@exchange(
    "nobody hangs, and every message is received",
    points=2,
    sizes=((2, 24, 8), (3, 25, 8), (4, 7, 4)),
    run=on_ranks(late=True),
)
def check_no_hang(tried: Attempt) -> None:
    """Every rank returns though one is late to each step, every message is received, and no
    tensor is touched while its message is in transit."""
    if not len(tried.trace.messages):
        raise CheckFailed(
            f"{tried.size}, no message was sent",
            "codes from every rank to every other one",
            "which codes does each owner need?",
        )
    if not np.isfinite(tried.trace.messages.received).all():
        raise CheckFailed(
            f"{tried.size}, a message was sent that nobody received",
            "every message is received",
            "does a rank receive as many messages as the others send to it?",
        )
    for rank, own in enumerate(tried.left):
        if own.faults:
            raise CheckFailed(
                f"{tried.size}, rank {rank} {own.faults[0]}",
                "wait() is called on every request, and until it has returned the tensor in "
                "transit is left alone",
                "isend and irecv return immediately. What shows that the message has arrived?",
            )


# -- rehearsals ------------------------------------------------------------------------------------


@dataclass(repr=False)
class Rehearsed(Rehearsal):
    """A rehearsal with the bytes of a code, or the most that a rank sends for a bucket, or what the
    codes of the first steps held, [step][value]."""

    nbytes: int = 0
    decoded: Sequence[Sequence[float]] = ()


def rehearse_code(
    encode: Function, decode: Function, values: int = 1000, per: int = 64
) -> Rehearsed:
    """Encode and decode some random values."""
    size, nothing = InBlocks(values, per), Trace(meta={"ranks": 1})
    try:
        left = coded(size, encode, decode)
        check_encode.judge(left)
        _check_decoded(left)
    except CheckFailed as failed:
        return Rehearsed(nothing, failed.in_short)
    nbytes = [each.nbytes for each in left.code or ()]
    lost = np.linalg.norm(left.values - left.decoded) / np.linalg.norm(left.values)
    summary = (
        f"{values} values of float64, {8 * values} bytes: {nbytes[0]} bytes of bits and "
        f"{nbytes[1]} bytes of means; what the code loses has {lost:.0%} of the values' norm"
    )
    return Rehearsed(nothing, summary, right=True, nbytes=sum(nbytes))


def rehearse_feedback(
    compensate: Function, gradient: Sequence[float] = (5.0, 1.0, -2.0, -2.0), steps: int = 100
) -> Rehearsed:
    """Code the same gradient again and again, in one block."""
    n, nothing = len(gradient), Trace(meta={"ranks": 1})
    try:
        left = compensated(InBlocks(n, n), compensate, steps, gradient)
        check_feedback.judge(left)
    except CheckFailed as failed:
        return Rehearsed(nothing, failed.in_short)
    seen = np.array(left.decoded)  # (steps, n)
    lines = [
        f"step {i}: the code holds {_row(seen[i])}, the residual is {_row(left.residuals[i])}"
        for i in range(2)
    ]
    off = [np.abs(seen[:k].mean(axis=0) - gradient).max() for k in (1, 10, steps)]
    lines.append(
        f"the mean of what the codes held is off by at most {off[0]:.3g} after 1 step, "
        f"{off[1]:.3g} after 10 and {off[2]:.3g} after {steps}"
    )
    return Rehearsed(nothing, "\n".join(lines), right=True, decoded=seen[:2].tolist())


def rehearse(program: Function, ranks: int = 4, values: int = 4096, per: int = 512) -> Rehearsed:
    """Average buckets on real ranks, in some steps."""
    size = Buckets(ranks, values, per)
    try:
        tried = attempt(size, program)
    except CheckFailed as failed:
        return Rehearsed(**vars(Rehearsal.stopped(failed, ranks)))
    each = message_bytes(tried.trace) // (STEPS * len(size.lengths))
    summary = f"{number(len(tried.trace.messages), 'message')}; for a bucket a rank sends "
    summary += f"{each.max()} bytes; "
    try:
        check_mean.judge(tried)
        if ranks > 1:
            check_bytes.judge(tried)
    except CheckFailed as failed:
        return Rehearsed(tried.trace, f"{summary}not yet right\n{failed.in_short}")
    summary += f"the means of {STEPS} steps are those of one process"
    return Rehearsed(tried.trace, summary, right=True, nbytes=int(each.max()))


def _row(values: np.ndarray) -> str:
    return " ".join(f"{each:.3g}" for each in np.round(values, 3) + 0.0)
