"""Run a student's halo exchange and convolution on real ranks, and record the results for a check.

    first, end = needed(lo, hi, kernel, stride, dilation, padding)
    found = fetch(comm, x, rows, need)           dx = give_back(comm, g, rows, need)
    layer = HaloConv(comm, conv, weight, rows, out)
    y = layer.forward(x)                         dx, dw = layer.backward(dy)

Each rank draws its rows itself, so it learns of the others' rows only from messages. `fetch` and
`give_back` get right `need`s, so their points do not depend on the student's `needed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dlviz.analysis.messages import bytes_sent
from dlviz.cluster import Comm
from dlviz.grading.assignments.halo_exchange.model import (
    BYTES,
    CHANNELS,
    FILTERS,
    ROW,
    SAMPLES,
    WIDTH,
    Conv,
    Geometry,
    Pair,
    blocks,
    common,
)
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import copied, drawn
from dlviz.grading.harness.feedback import PACKAGE, number, shown_line
from dlviz.grading.harness.guard import LIBRARIES, OWN, Guard, calls_of_dlviz, line_of
from dlviz.grading.harness.sizes import ONE_ALONE, Size, one_number_alone
from dlviz.trace import Trace

Program = Callable[..., Any]
STEPS = 2
BLOCKS = [(0, 4), (4, 7), (7, 8)]  # of output rows, for which `needed` is asked
EXCHANGE = OwnWork(
    "comm.send, comm.recv, comm.isend and comm.irecv alone, in lines of your own",
    "which rows does each rank need?",
)
COUNTING = OwnWork("an expression of your own", "which rows does an output row read?")
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "message mismatch": "sender and receiver differ in the rows of a message. Rank a sends rank b "
    "what b needs of a's rows, and nothing else: which two pairs overlap on either side?",
    "this rank itself": "a rank's own rows need no message: what does the loop over ranks skip?",
    "Kernel size can't be greater": "the kernel does not fit into these rows: forward gets all "
    "rows that its windows read, those of other ranks too.",
    "and dy has": "dy has the rows of y that this rank computes. Does the convolution get the rows "
    "that their windows read, in forward and in backward, and no others?",
    "must match the": "the two sides of that line have different numbers of rows. An index into a "
    "block counts from its first row: row a of the image is at a - lo.",
    "shape mismatch": "the two sides of that line have different numbers of rows.",
    "NoneType": "something is None there: does every branch return?",
    "positional argument": "needed gets (lo, hi, kernel, stride, dilation, padding), fetch gets "
    "(comm, x, rows, need), give_back gets (comm, g, rows, need), __init__ gets (comm, conv, "
    "weight, rows, out), forward gets x, backward gets dy. A method's first parameter is self.",
    "object has no attribute": "is that made in __init__ or in forward, before it is first used?",
}
attempted = partial(harness.attempt, known=KNOWN)


@dataclass(frozen=True)
class Kernel(Size):
    """A kernel, for which `needed` is asked."""

    legend = "kernel"
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 1

    def __str__(self) -> str:
        return f"for {_kernel(self)}"

    @property
    def short(self) -> str:
        return f"{self.kernel}{_apart(self)}"


@dataclass(frozen=True)
class Strips(Size):
    """An image whose rows are cut over ranks, and a kernel over it."""

    legend = "ranks x rows x kernel"
    ranks: int
    rows: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 1

    def __str__(self) -> str:
        return f"on {number(self.ranks, 'rank')}, {self.rows} rows, {_kernel(self)}"

    @property
    def short(self) -> str:
        return f"{self.ranks}x{self.rows}x{self.kernel}{_apart(self)}"

    @staticmethod
    def in_common(passed: Sequence[Any], failed: Sequence[Any]) -> str:
        only = one_number_alone(passed, failed)
        return ONE_ALONE.format(only) if only == 2 else ""

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.rows, self.kernel, self.stride, self.dilation, self.padding)

    @property
    def own(self) -> list[Pair]:
        """The input rows that each rank has."""
        return blocks(self.rows, self.ranks)

    @property
    def out(self) -> list[Pair]:
        """The output rows that each rank computes."""
        return blocks(self.geometry.rows_out, self.ranks)

    @property
    def need(self) -> list[Pair]:
        return [self.geometry.reads(*block) for block in self.out]

    def rows_sent(self, back: bool = False) -> list[int]:
        """How many rows each rank sends to others in forward, or `back` in backward."""
        givers, takers = (self.need, self.own) if back else (self.own, self.need)
        return [
            sum(len(common(giver, taker)) for j, taker in enumerate(takers) if j != i)
            for i, giver in enumerate(givers)
        ]


def _kernel(size: Kernel | Strips) -> str:
    other = [f"{name} {n}, " for name, n in _numbers(size) if n != 1]
    return f"a kernel of {size.kernel} x {size.kernel}, {''.join(other)}padding {size.padding}"


def _apart(size: Kernel | Strips) -> str:
    other = [f"{name} {n}" for name, n in _numbers(size) if n != 1]
    return f" ({', '.join(other)})" if other else ""


def _numbers(size: Kernel | Strips) -> list[tuple[str, int]]:
    return [("stride", size.stride), ("dilation", size.dilation)]


# -- which rows ------------------------------------------------------------------------------------


@dataclass
class Needed(Left):
    """For each of BLOCKS the pair that `needed` returned; None if it is no pair of numbers."""

    size: Kernel
    found: list[Pair | None]


def needed(size: Kernel, program: Program) -> Needed:
    run = attempted(
        _needed, 1, size, program, where=size, own=COUNTING, expects="needed returns", plain=True
    )
    return run.results[0]


def _needed(comm: Comm, size: Kernel, program: Program) -> Needed:
    left = Needed(size, [])
    with calls_of_dlviz(left.borrowed):
        for lo, hi in BLOCKS:
            found = program(lo, hi, size.kernel, size.stride, size.dilation, size.padding)
            pair = isinstance(found, tuple | list) and len(found) == 2
            whole = pair and all(
                isinstance(n, int | float) and float(n).is_integer() for n in found
            )
            left.found.append((int(found[0]), int(found[1])) if whole else None)
    return left


# -- rows that travel ------------------------------------------------------------------------------


@dataclass
class RowsLeft(Left):
    """A rank's tensor, and what the function made of it (None if that is no tensor)."""

    given: torch.Tensor
    found: torch.Tensor | None


@dataclass(frozen=True)
class ExchangeRun:
    """A run of `fetch`, or `back` of `give_back`."""

    size: Strips
    back: bool
    left: list[RowsLeft]
    trace: Trace

    @property
    def collectives(self) -> list[str]:
        return collectives(self.trace, 0)

    @property
    def sent(self) -> list[float]:
        """The rows that each rank sent."""
        return (bytes_sent(self.trace) / ROW).tolist()


def exchange(size: Strips, program: Program, back: bool = False) -> ExchangeRun:
    """Raises CheckFailed if the run does not finish, or ready-made code did the work."""
    run = attempted(
        _exchange, size.ranks, size, program, back,
        where=size, own=EXCHANGE, expects="every rank returns",
    )  # fmt: skip
    return ExchangeRun(size, back, run.results, run.trace)


def _exchange(comm: Comm, size: Strips, program: Program, back: bool) -> RowsLeft:
    first, end = (size.need if back else size.own)[comm.rank]
    left, guard = RowsLeft(_rows(end - first), None), Alone(comm)
    with guard.watching(), comm.recorder.open("phase", program.__name__, {}, whole=False):
        found = program(comm, left.given.clone(), [*size.own], [*size.need])
    left.found = copied(found) if isinstance(found, torch.Tensor) else None
    return _report(guard, left)


def received(trace: Trace) -> list[float]:
    """The rows that each rank received in messages."""
    table = trace.messages
    ranks = range(trace.meta["ranks"])
    return [float(table.nbytes[table.dst == rank].sum()) / ROW for rank in ranks]


def collectives(trace: Trace, most: int) -> list[str]:
    """Rank 0's collectives of more than so many bytes."""
    rows = trace.only(rank=0).spans.rows()
    return [row.name for row in rows if row.kind == "collective" and row.nbytes > most]


def _rows(count: int) -> torch.Tensor:
    return drawn(SAMPLES, CHANNELS, count, WIDTH)


class Alone(Guard):
    """Records calls of dlviz's other layers, too: one may send by a Comm that is not guarded."""

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        super()._profile(frame, event, argument)
        code, by = frame.f_code, frame.f_back
        theirs = code.co_filename.startswith(PACKAGE) and not code.co_filename.startswith(OWN)
        if event == "call" and theirs and by is not None:
            if not by.f_code.co_filename.startswith((*LIBRARIES, "<frozen importlib")):
                self.borrowed[f"dlviz's {code.co_name}, {shown_line(line_of(by))}"] = None


def _report(guard: Guard, left: Any) -> Any:
    left.borrowed.extend(guard.borrowed)
    left.raised.extend(guard.raised)
    return left


# -- a layer ---------------------------------------------------------------------------------------


@dataclass
class Step:
    """What a rank has and makes in a step; None where no tensor was returned."""

    x: torch.Tensor
    dy: torch.Tensor
    y: torch.Tensor | None = None
    dx: torch.Tensor | None = None
    dw: torch.Tensor | None = None


@dataclass
class LayerLeft(Left):
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class LayerRun:
    """A run of the student's layer."""

    size: Strips
    weight: torch.Tensor
    left: list[LayerLeft]
    trace: Trace

    def each(self, step: int) -> list[Step]:
        """The step of every rank."""
        return [own.steps[step] for own in self.left]

    def image(self, step: int) -> torch.Tensor:
        return torch.cat([own.x for own in self.each(step)], 2)

    @property
    def conv(self) -> Conv:
        return _conv(self.size)

    @property
    def collectives(self) -> list[str]:
        """Those of more than a weight."""
        return collectives(self.trace, self.weight.numel() * BYTES)

    @property
    def sent(self) -> list[float]:
        """Bytes that each rank sends in a step."""
        return (bytes_sent(self.trace) / STEPS).tolist()

    @property
    def ring(self) -> float:
        """Bytes that a rank sends in the all-reduce of dw."""
        return 2 * (self.size.ranks - 1) / self.size.ranks * self.weight.numel() * BYTES

    def due(self, rank: int) -> float:
        """Bytes of its halos in forward and backward, and of the all-reduce of dw."""
        return sum(self.size.rows_sent(back)[rank] for back in (False, True)) * ROW + self.ring


def trained(size: Strips, program: Program) -> LayerRun:
    """Run a layer forward and backward for some steps. Raises CheckFailed if that does not
    finish, or ready-made code did the work."""
    weight = drawn(*size.geometry.weight_like())
    run = attempted(
        _trained, size.ranks, size, weight, program,
        where=size, own=EXCHANGE, expects="every rank returns",
    )  # fmt: skip
    return LayerRun(size, weight, run.results, run.trace)


def _trained(comm: Comm, size: Strips, weight: torch.Tensor, program: Program) -> LayerLeft:
    (lo, hi), (out_lo, out_hi) = size.own[comm.rank], size.out[comm.rank]
    wide = (WIDTH + 2 * size.padding - size.geometry.span) // size.stride + 1
    steps = [
        Step(_rows(hi - lo), drawn(SAMPLES, FILTERS, out_hi - out_lo, wide)) for _ in range(STEPS)
    ]
    left, guard = LayerLeft(steps=steps), Alone(comm)
    given = [(own.x.clone(), own.dy.clone()) for own in steps]
    made = []
    with guard.watching():
        layer = program(comm, _conv(size), weight.clone(), [*size.own], [*size.out])
        for step, (x, dy) in enumerate(given):
            with comm.recorder.open("phase", "forward", {"step": step}, whole=False):
                y = layer.forward(x)
            y = y.detach().clone() if isinstance(y, torch.Tensor) else None
            with comm.recorder.open("phase", "backward", {"step": step}, whole=False):
                back = layer.backward(dy)
            made.append((y, *(back if isinstance(back, tuple | list) and len(back) == 2 else ())))
    for own, found in zip(steps, made, strict=True):
        for name, each in zip(("y", "dx", "dw"), found, strict=False):
            setattr(own, name, copied(each) if isinstance(each, torch.Tensor) else None)
    return _report(guard, left)


def _conv(size: Strips) -> Conv:
    return Conv(size.kernel, size.stride, size.dilation, size.padding)
