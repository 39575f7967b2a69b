"""Run a student's coding, feedback and exchange, and record the results for a check.

    bits, means = encode(v, per)             values = decode(bits, means, n, per)
    bits, means = compensate(coder, gradient, residual)
    averager = OneBitMean(comm, lengths, coder);  averager.average(bucket, gradient)

Values are float64, drawn on the rank that codes them. Feedback and exchange get a correct
`Coder`, so their points do not depend on the first two functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm, Run, RunError
from dlviz.grading.assignments.one_bit_sgd.model import Coder, Values
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import copied, drawn
from dlviz.grading.harness.feedback import number, shown_line
from dlviz.grading.harness.guard import Guard, calls_of_dlviz
from dlviz.grading.harness.sizes import ONE_ALONE, Size, one_number_alone
from dlviz.trace import Trace

Function = Callable[..., Any]
STEPS = 4
LATE = 0.05  # s by which one rank is late to each step in checks that must tolerate it
PAIR = "a pair of tensors, (bits, means)"
CODING = OwnWork("a code of your own", "which bit and which mean does a value get?")
EXCHANGE = OwnWork(
    "comm.send, comm.recv, comm.isend, comm.irecv and comm.sendrecv alone, in lines of your own",
    "which codes does each owner need?",
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "message mismatch": "the code of a chunk has the lengths of that chunk. Chunks may differ by a "
    "value: of which one is the code that arrives, and is it received into coder.empty of its "
    "length?",
    "is no code of": "chunks may differ by a value: of how many values is that code?",
    "encode takes one row": "code one chunk at a time, as it is cut from the flat gradient.",
    "this rank itself": "a rank's own code needs no message: what does the loop over ranks skip?",
    "must match the size of tensor": "two tensors of different lengths were added. Each bucket has "
    "residuals of its own, one as long as the bucket and one as long as the owned chunk: does each "
    "chunk get its part?",
    "NoneType": "something is None there: does compensate return the code, and does every branch "
    "return?",
    "positional argument": "compensate gets (coder, gradient, residual), __init__ gets (comm, "
    "lengths, coder), average gets (bucket, gradient). A method's first parameter is self.",
}


@dataclass(frozen=True)
class InBlocks(Size):
    """A number of values, and the values of a block."""

    legend = "values x block"
    values: int
    per: int

    def __str__(self) -> str:
        return f"for {number(self.values, 'value')} in blocks of {self.per}"

    def drawn(self) -> torch.Tensor:
        """The first block has no value below 0; the last of several values is 0."""
        values = drawn(self.values)
        values[: self.per] = values[: self.per].abs()
        values[self.values - self.values // 3 :] -= 1.0
        if self.values > self.per:
            values[-1] = 0.0
        return values


@dataclass(frozen=True)
class Buckets(Size):
    """A number of ranks, the values of a bucket, and those of a block."""

    legend = "ranks x values x block"
    ranks: int
    values: int
    per: int

    def __str__(self) -> str:
        values = " and ".join(map(str, self.lengths))
        return f"on {number(self.ranks, 'rank')} with buckets of {values} values"

    @property
    def lengths(self) -> list[int]:
        """Two equal buckets, between which residuals could be mixed up; a shorter one if odd."""
        return [self.values, self.values, self.values // 2][: 2 + self.values % 2]

    @staticmethod
    def in_common(passed: Sequence[Buckets], failed: Sequence[Buckets]) -> str:
        only = one_number_alone(passed, failed)
        return ONE_ALONE.format(only) if only else ""


# -- encode and decode -----------------------------------------------------------------------------


@dataclass
class Coded(Left):
    """The values, their code (None if it is no pair of tensors), and what was decoded of it, or
    of a correct code."""

    size: InBlocks
    values: Values
    code: tuple[Any, Any] | None
    decoded: Values | None


def coded(
    size: InBlocks, encode: Function | None, decode: Function | None, order: str = ""
) -> Coded:
    """Encode values, and decode them if `decode` is given; without `encode` the code is correct,
    with the bits of a byte in an order. Raises CheckFailed if the functions do not return."""
    called = " and ".join(f.__name__ for f in (encode, decode) if f is not None)
    return _alone(_coded, size, f"{called} to return", encode, decode, order)


def _alone(worker: Function, size: InBlocks, expects: str, *programs: Any) -> Any:
    run = harness.attempt(
        worker, 1, size, *programs, where=size, own=CODING, plain=True, expects=expects,
        known=KNOWN,
    )  # fmt: skip
    return run.results[0]


def _coded(
    comm: Comm, size: InBlocks, encode: Function | None, decode: Function | None, order: str
) -> Coded:
    values, borrowed, found = size.drawn(), [], None
    left = Coded(size, values.numpy().copy(), None, None)
    code: Any = Coder(size.per, order).encode(values) if encode is None else None
    with calls_of_dlviz(borrowed):
        if encode is not None:
            code = encode(values, size.per)
        left.code = arrays(code)
        if decode is not None and left.code is not None:
            bits, means = code
            found = decode(bits, means, size.values, size.per)
    left.decoded = copied(found).numpy() if isinstance(found, torch.Tensor) else None
    left.borrowed.extend(borrowed)
    return left


def arrays(code: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Bits and means as arrays; None for anything else than a pair of tensors."""
    if not isinstance(code, tuple | list) or len(code) != 2:
        return None
    if not all(isinstance(each, torch.Tensor) for each in code):
        return None
    return copied(code[0]).numpy(), copied(code[1]).numpy()


# -- feedback --------------------------------------------------------------------------------------


@dataclass
class Compensated(Left):
    """The gradient, the code's values (None if there is no code) and the residual of each step."""

    size: InBlocks
    gradients: list[Values]
    decoded: list[Values | None]
    residuals: list[Values]


def compensated(
    size: InBlocks, program: Function, steps: int = STEPS, gradient: Sequence[float] = ()
) -> Compensated:
    """Compensate and code some gradients one after the other, or the same one in each step.

    Raises CheckFailed if a step does not return."""
    return _alone(_compensated, size, "a code in each step", program, steps, [*gradient])


def _compensated(
    comm: Comm, size: InBlocks, program: Function, steps: int, gradient: list[float]
) -> Compensated:
    coder, residual = Coder(size.per), torch.zeros(size.values, dtype=torch.float64)
    left, borrowed = Compensated(size, [], [], []), []
    for _ in range(steps):
        own = torch.tensor(gradient, dtype=torch.float64) if gradient else drawn(size.values)
        left.gradients.append(own.numpy().copy())
        with calls_of_dlviz(borrowed):
            code = program(coder, own, residual)
        pair = arrays(code)
        if pair is None or [each.size for each in pair] != [
            e.numel() for e in coder.empty(size.values)
        ]:
            left.decoded.append(None)
            break
        left.decoded.append(coder.decode(*map(torch.from_numpy, pair), size.values).numpy())
        left.residuals.append(copied(residual).numpy())
    left.borrowed.extend(borrowed)
    return left


# -- the exchange ----------------------------------------------------------------------------------


@dataclass
class MeansLeft(Left):
    """A rank's gradients before and after the exchange, [step][bucket], and misuse of its
    requests."""

    given: list[list[Values]]
    results: list[list[Values]]
    faults: list[str]


@dataclass(frozen=True)
class Attempt:
    """A run of the student's exchange."""

    size: Buckets
    left: list[MeansLeft]
    trace: Trace

    @property
    def given(self) -> list[list[np.ndarray]]:
        """The gradients, [step][bucket], of shape (ranks, values)."""
        return [
            [np.stack([own.given[step][i] for own in self.left]) for i in range(len(bucket))]
            for step, bucket in enumerate(self.left[0].given)
        ]

    def leaves(self, means: list[list[Values]]) -> bool:
        """Whether every rank ends with these."""
        return all(
            np.allclose(own.results[step][i], mean, rtol=0, atol=1e-5)
            for own in self.left
            for step, buckets in enumerate(means)
            for i, mean in enumerate(buckets)
        )


def attempt(size: Buckets, program: Function, late: bool = False) -> Attempt:
    """Average each bucket in some steps. Raises CheckFailed, caused by the RunError if any, if
    the run does not finish or ready-made code did the work."""
    run = harness.attempt(
        _averaged, size.ranks, size, program, late, where=size, own=EXCHANGE,
        called=_collectives, expects="every rank returns from each average", known=KNOWN,
    )  # fmt: skip
    return Attempt(size, run.results, run.trace)


def _averaged(comm: Comm, size: Buckets, program: Function, late: bool) -> MeansLeft:
    given = [[drawn(n) for n in size.lengths] for _ in range(STEPS)]
    left = MeansLeft([[g.numpy().copy() for g in step] for step in given], [], [])
    guard = Guard(comm)
    faults = guard.faults  # bound before any of the student's code has run
    with guard.watching():
        averager = program(comm, size.lengths, Coder(size.per))
        for step, gradients in enumerate(given):
            if late and comm.rank == comm.size - 1:
                time.sleep(LATE)
            for i, gradient in enumerate(gradients):
                # not whole: the student's code runs inside, and its own lines are recorded
                fields = {"step": step, "bucket": i}
                with comm.recorder.open("phase", f"step {step}, bucket {i}", fields, whole=False):
                    averager.average(i, gradient)
            left.results.append([copied(gradient).numpy() for gradient in gradients])
    left.borrowed.extend(guard.borrowed)
    left.raised.extend(guard.raised)
    left.faults.extend(faults())
    return left


def _collectives(run: Run | RunError) -> list[str]:
    """Calls of the backend's own collectives, with their lines."""
    trace = run.trace or Trace(meta={"ranks": 1})
    rows = [row for row in trace.spans.rows() if row.kind == "collective"]
    return [f"comm.{row.name}, {shown_line(row.where)}" for row in rows]
