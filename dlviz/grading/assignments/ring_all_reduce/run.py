"""Run a student's reduce-scatter and all-gather on real ranks, and record the results for a check.

Each rank draws its numbers itself, fractions in float64, and the others learn them only from
messages. The final numbers are compared with all sums of the initial ones, so that a check can
say which ranks' numbers a cell holds, or that it holds no such sum.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm, DeadlockError, Run, RunError, worker_name
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.feedback import CheckFailed, listed, number, shown_line
from dlviz.grading.harness.guard import Guard
from dlviz.grading.harness.sandbox import why_ended
from dlviz.trace import Trace

Function = Callable[[Comm, list[torch.Tensor]], Any]
LATE = 0.05  # s by which one rank is late in checks that a program must not depend on timing
MOST_RANKS = 9  # whose contributions can be distinguished
MOST_TIMES = 2  # that one contribution is looked for in a cell
ROUNDING = 1e-12  # of a sum: far more than another order of additions changes
UNKNOWN = -1
OWN = OwnWork(
    "comm.send, comm.recv, comm.isend and comm.irecv alone, in lines of your own",
    "which messages does it send?",
)


@dataclass
class ChunksLeft(Left):
    """Results of one rank: its numbers at the start, its tensor after each function, the list's
    tensors then (None if they are no longer the chunks), the messages that each function sent,
    and misuse of its requests."""

    start: np.ndarray
    held: list[np.ndarray]
    listed: list[np.ndarray | None]
    sent: list[list[np.ndarray]]
    yields: list[str]
    faults: list[str]


@dataclass(frozen=True)
class Attempt:
    """A run of functions. `scattered`: it began with chunk r+1 whole on rank r."""

    names: list[str]
    left: list[ChunksLeft]
    scattered: bool
    trace: Trace
    instead: str = ""  # why it began so

    @property
    def ranks(self) -> int:
        return len(self.left)

    @property
    def where(self) -> str:
        begun = ", from what a right reduce_scatter leaves" if self.scattered else ""
        return _where(self.ranks, len(self.left[0].start)) + begun

    @cached_property
    def starts(self) -> np.ndarray:
        return np.array([own.start for own in self.left])  # (ranks, cells)

    @cached_property
    def expected(self) -> np.ndarray:
        """The contributions in a whole cell, (cells, ranks)."""
        if not self.scattered:
            return np.ones(self.starts.T.shape, int)
        lengths = [len(part) for part in np.array_split(self.starts[0], self.ranks)]
        owner = np.repeat(np.arange(self.ranks) - 1, lengths) % self.ranks
        return np.eye(self.ranks, dtype=int)[owner]

    @cached_property
    def sums(self) -> np.ndarray:
        """The value of each whole cell."""
        return (self.expected.T * self.starts).sum(axis=0)

    @cached_property
    def counts(self) -> list[list[np.ndarray]]:
        """How often each rank's number is in each cell: [function][rank], (cells, ranks)."""
        return [
            [contributions(own.held[i], self.starts) for own in self.left]
            for i in range(len(self.names))
        ]

    def whole(self, after: int) -> np.ndarray:
        """Which chunks are whole after a function, (rank, chunk)."""
        right = [(counts == self.expected).all(axis=1) for counts in self.counts[after]]
        return np.array([[part.all() for part in np.array_split(r, self.ranks)] for r in right])

    def says(self, rank: int, after: int) -> str:
        parts = [_contributors(p) for p in np.array_split(self.counts[after][rank], self.ranks)]
        if self.scattered:
            parts = ["whole" if whole else "not whole" for whole in self.whole(after)[rank]]
        return "; ".join(f"chunk {i}: {part}" for i, part in enumerate(parts) if part)

    def sends(self, function: int) -> list[int]:
        """How many messages each rank sent in a function."""
        return [len(own.sent[function]) for own in self.left]

    def replaced(self) -> bool:
        """Whether the list ended with more whole cells than the tensor."""

        def right(values: np.ndarray) -> int:
            return int(np.isclose(values, self.sums, rtol=ROUNDING, atol=0).sum())

        return any(
            other is not None and right(other) > right(held)
            for own in self.left
            for held, other in zip(own.held, own.listed, strict=True)
        )

    def odd(self) -> np.ndarray:
        """The numbers that are no sum of contributions, each with the nearest such sum and the
        sum of all: (numbers, 3)."""
        rows = [np.empty((0, 3))]
        for i in range(len(self.names)):
            for own, counts in zip(self.left, self.counts[i], strict=True):
                sums = _nearest(own.held[i], self.starts)[1]
                table = np.stack([own.held[i], sums, self.sums], axis=1)
                rows.append(table[(counts == UNKNOWN).any(axis=1)])
        return np.concatenate(rows)

    def faults(self) -> list[str]:
        return [f"rank {r} {fault}" for r, own in enumerate(self.left) for fault in own.faults]


def attempt(
    n: int, cells: int, functions: Sequence[Function], scattered: bool = False, late: bool = False
) -> Attempt:
    """Run the functions one after the other on n ranks, each with a tensor of so many cells.

    Raises CheckFailed, caused by the RunError if any, if the run does not finish or messages did
    not come from the functions' own lines.
    """
    names, where = [worker_name(each) for each in functions], _where(n, cells)
    run = harness.attempt(
        _guarded, n, functions, cells, late, where=where, own=OWN, called=_collectives,
        expects=f"every rank returns from {listed(names)}",
        known=lambda error: why(error, n, cells),
    )  # fmt: skip
    if yields := run.results[0].yields:
        raise CheckFailed(
            f"{where}, {yields[0]} returned a generator, and none of its lines ran",
            f"{yields[0]} does its work when it is called",
            "a `yield` in a function does that. Here nobody asks for values.",
        )
    if len(run.results[0].held) < len(functions):
        raise CheckFailed(
            f"{where}, {names[0]} leaves a list that no longer holds the {number(n, 'chunk')}",
            f"the list as it was, since {names[1]} gets the same one",
            "write into the cells of the chunks, and leave the list as it is.",
        )
    return Attempt(names, run.results, scattered, run.trace)


def contributions(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How often each rank's initial number, (ranks, cells), is in each value: (cells, ranks). A
    row of UNKNOWN: no such sum."""
    counts, sums = _nearest(values, starts)
    known = np.abs(sums - values) <= ROUNDING * starts.sum(axis=0)
    return np.where(known[:, None], counts, UNKNOWN)


def _nearest(values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The counts of the nearest sum of contributions to each value, and that sum."""
    counts = np.array(list(product(range(MOST_TIMES + 1), repeat=len(starts))))  # (sums, ranks)
    sums = counts @ starts  # (sums, cells)
    place = np.abs(sums - values).argmin(axis=0)
    return counts[place], sums[place, np.arange(len(values))]


def _guarded(comm: Comm, functions: Sequence[Function], cells: int, late: bool) -> ChunksLeft:
    start = np.random.default_rng().uniform(1.0, 9.0, cells)
    tensor = torch.tensor(start)
    chunks = list(tensor.tensor_split(comm.size))
    lengths = [len(chunk) for chunk in chunks]
    guard = Guard(comm)
    faults = guard.faults  # bound before any of the student's code has run
    left = ChunksLeft(start, [], [], [], [], [])
    if late and comm.rank == comm.size - 1:
        time.sleep(LATE)
    for function in functions:
        before = len(guard.sent)
        with guard.watching():
            returned = function(comm, chunks)
        left.held.append(tensor.numpy().copy())
        left.listed.append(_joined(chunks, lengths))
        left.sent.append(guard.sent[before:])
        left.yields.extend([worker_name(function)] * inspect.isgenerator(returned))
        if left.listed[-1] is None:
            break
    left.borrowed.extend(guard.borrowed)
    left.raised.extend(guard.raised)
    left.faults.extend(faults())
    return left


def _joined(chunks: list[torch.Tensor], lengths: list[int]) -> np.ndarray | None:
    """The numbers of the list's tensors, None if they are not the chunks."""
    if [each.numel() if isinstance(each, torch.Tensor) else -1 for each in chunks] != lengths:
        return None
    return torch.cat([each.detach().reshape(-1).double() for each in chunks]).numpy()


def _contributors(counts: np.ndarray) -> str:
    """The ranks whose contributions a chunk's cells hold, in words. Counts: (cells, ranks)."""
    if not len(counts):
        return ""
    if (counts == UNKNOWN).any():
        return "no sum of contributions"
    if (counts != counts[0]).any():
        return "other ranks in each cell"
    held = [f"{rank}" + (f" ×{n}" if n > 1 else "") for rank, n in enumerate(counts[0]) if n]
    if not held:
        return "nothing"
    return f"rank{'s' * (len(held) > 1)} {', '.join(held)}"


def _collectives(run: Run | RunError) -> list[str]:
    """Calls of the backend's own collectives, with their lines."""
    trace = run.trace or Trace(meta={"ranks": 1})
    rows = [row for row in trace.spans.rows() if row.kind == "collective"]
    return [f"comm.{row.name}, {shown_line(row.where)}" for row in rows]


def why(error: RunError, n: int, cells: int) -> str:
    """A hint for a run that did not finish."""
    if cells < n and (isinstance(error, DeadlockError) or "shape (0,)" in str(error)):
        return (
            "some chunks are empty here. Does a rank skip one that its neighbour still waits for? "
            "A message may be empty too."
        )
    known = {
        "message mismatch": _why_mismatch(str(error), n, cells),
        "is no rank of": "the ring is closed: who is the "
        + (
            "left neighbour of rank 0?"
            if "=-" in str(error)
            else "right neighbour of the last rank?"
        ),
        "this rank itself": "a rank's neighbours are two others: how are they numbered?"
        if n > 1
        else "alone a rank has nobody to send to: how often does your loop run then?",
        "IndexError": "there are as many chunks as ranks: which chunk follows the last one?",
    }
    return why_ended(error, known)


def _why_mismatch(text: str, n: int, cells: int) -> str:
    dtypes = re.findall(r"\b(?:float|bfloat|int|bool|complex)\d*\b", text.partition(";")[0])
    if other := {*dtypes} - {"float64"}:
        return (
            f"the cells are float64, and one end of the message has {other.pop()}. torch.zeros and "
            "torch.empty make float32 unless given a dtype; torch.empty_like takes over the type."
        )
    if cells % n:
        return (
            "chunks may differ by a cell. Which chunk arrives, and does the tensor that receives "
            "it have as many cells?"
        )
    return (
        "sender and receiver of a message must use the same cells. In one round, what does rank 0 "
        "send, and what does its right neighbour expect?"
    )


def _where(n: int, cells: int) -> str:
    return f"on {number(n, 'rank')} with {number(cells, 'cell')}"
