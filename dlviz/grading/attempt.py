"""A student's functions on real ranks: what the ranks then held, or why the run did not get there.

    attempt    runs them guarded (guard.py) on encoded tensors, for a check to judge
    rehearse   runs them as they are, for the student to look at

A run that raised, hung or was killed is told of in a few lines, with one hint.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm, DeadlockError, RunError, RunTimeout, launch
from dlviz.cluster.waits import SENDS
from dlviz.grading.feedback import NOT_WRITTEN, CheckFailed, Rehearsal, ended_by
from dlviz.grading.guard import Guard
from dlviz.trace import Trace

Function = Callable[[Comm, list[torch.Tensor]], Any]
TIMEOUT = 30.0  # s that a run may take; one without a fault takes some tenths on a quiet machine
LATE = 0.05  # s by which one rank comes late where a program must not depend on timing


@dataclass
class Attempt:
    """What the ranks held after each of the functions."""

    ranks: int
    cells: int
    held: list[list[np.ndarray]]  # [function][rank]: whose contributions, (cells, ranks)
    listed: list[list[np.ndarray]]  # the same of the tensors that then were in the list
    faults: list[str]
    trace: Trace

    @property
    def where(self) -> str:
        return f"on {self.ranks} ranks with {self.cells} cells"

    def chunks(self, rank: int, after: int) -> list[np.ndarray]:
        return np.array_split(self.held[after][rank], self.ranks)

    def whole(self, after: int) -> np.ndarray:
        """Which chunks are whole: (rank, chunk)."""
        every = range(self.ranks)
        return np.array([[(part == 1).all() for part in self.chunks(r, after)] for r in every])

    def says(self, rank: int, after: int) -> str:
        told = [
            f"chunk {number}: {_contributors(part)}"
            for number, part in enumerate(self.chunks(rank, after))
            if len(part)
        ]
        return "; ".join(told)

    def replaced(self) -> bool:
        """Whether the list ended with the sums and the tensor did not."""
        return any(
            (listed[rank] == 1).all(axis=1).sum() > (held[rank] == 1).all(axis=1).sum()
            for held, listed in zip(self.held, self.listed, strict=True)
            for rank in range(self.ranks)
        )


def attempt(
    n: int, cells: int, functions: Sequence[Function], scattered: bool = False, late: bool = False
) -> Attempt:
    """Run the functions one after the other; `scattered`: from what a reduce_scatter leaves."""
    from dlviz.viz import decode, encode

    starts = [encode(rank, n, cells) for rank in range(n)]
    if scattered:
        total = np.sum(starts, axis=0)
        for rank, start in enumerate(starts):
            owned = np.array_split(np.arange(cells), n)[(rank + 1) % n]
            starts[rank] = np.where(np.isin(np.arange(cells), owned), total, start).tolist()
    try:
        run = _launch(_guarded, n, (functions, starts, late))
    except RunError as error:
        raise CheckFailed(
            f"on {n} ranks with {cells} cells, {ended_by(error)}",
            f"every rank returns from {' and '.join(each.__name__ for each in functions)}",
            _hint(error),
        ) from None
    held, listed, faults = zip(*run.results, strict=True)

    def counts(kept: Any) -> list[list[np.ndarray]]:
        return [[decode(own[i].numpy(), n) for own in kept] for i in range(len(functions))]

    told = [fault for own in faults for fault in own]
    return Attempt(n, cells, counts(held), counts(listed), told, run.trace)


def rehearse(*functions: Function, ranks: int = 4, cells: int = 12) -> Rehearsal:
    """Run the functions one after the other on `ranks` ranks, each with a tensor of so many cells,
    and watch it."""
    from dlviz.viz import encode

    starts = [encode(rank, ranks, cells) for rank in range(ranks)]
    try:
        trace = _launch(_watched, ranks, (functions, starts)).trace
        told = f"every rank of {ranks} returned"
    except RunError as error:
        trace = Trace(meta={"ranks": ranks}) if error.trace is None else error.trace
        told = f"{ended_by(error)}\nHint: {_hint(error)}"
    return Rehearsal(trace, f"{len(trace.messages)} messages; {told}")


def _launch(worker: Callable[..., Any], ranks: int, args: tuple) -> Any:
    with warnings.catch_warnings():  # of a message never received: a check tells of that
        warnings.simplefilter("ignore", RuntimeWarning)
        return launch(worker, ranks, device="cpu", timeout=TIMEOUT, args=args)


def _guarded(
    comm: Comm, functions: Sequence[Function], starts: list[list[float]], late: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[str]]:
    guard, tensor = Guard(comm), torch.tensor(starts[comm.rank], dtype=torch.float64)
    chunks = list(tensor.tensor_split(comm.size))
    if late and comm.rank == comm.size - 1:
        time.sleep(LATE)
    held, listed = [], []
    for function in functions:
        function(comm, chunks)
        held.append(tensor.clone())
        listed.append(torch.cat(chunks))
    return held, listed, guard.faults()


def _watched(comm: Comm, functions: Sequence[Function], starts: list[list[float]]) -> None:
    tensor = torch.tensor(starts[comm.rank], dtype=torch.float64)
    comm.watch(tensor, "chunks")
    chunks = list(tensor.tensor_split(comm.size))
    for function in functions:
        # not whole: inside runs the student's code, whose own lines are recorded
        with comm.recorder.open("phase", function.__name__, {}, whole=False):
            function(comm, chunks)


def _contributors(counts: np.ndarray) -> str:
    """Whose contributions a chunk's cells hold, in words. Counts: (cells, ranks)."""
    if (counts < 0).any():
        return "no sum of contributions"
    if (counts != counts[0]).any():
        return "other ranks in each cell"
    held = [f"{rank}" + (f" ×{n}" if n > 1 else "") for rank, n in enumerate(counts[0]) if n]
    if not held:
        return "nothing"
    return f"rank{'s' * (len(held) > 1)} {', '.join(held)}"


def _hint(error: RunError) -> str:
    text = str(error)
    if isinstance(error, DeadlockError):
        waits = error.waits or []
        if "finished and will send no more" in text:
            return (
                "some ranks were done while others still waited for them: do all take the same "
                "number of steps?"
            )
        if waits and all(wait.op in SENDS for wait in waits):
            return (
                "every rank is in a send, which returns only when the receiver has taken the "
                "message, and nobody receives. Which call starts a send and returns at once?"
            )
        if waits and not any(wait.op in SENDS for wait in waits):
            return "every rank waits for a message, and nobody has sent one: who has to begin?"
        return (
            "for one step write down who sends to whom and who receives from whom: do they match?"
        )
    if isinstance(error, RunTimeout):
        return "the ranks are busy, not waiting: does the loop at that line ever end?"
    known = {
        "NotImplementedError": NOT_WRITTEN,
        "message mismatch": "sender and receiver of a message mean chunks of different length. In "
        "one step, which chunk does rank 0 send, and which one does its right neighbour expect?",
        "is no rank of": "the ring is closed: who is the right neighbour of the last rank?",
        "this rank itself": "a rank's neighbours are two others: how are they numbered?",
        "IndexError": "there are as many chunks as ranks: which chunk follows the last one?",
        "exited with code": "a rank ended its process. Let the function return instead.",
        "was killed by": "a rank's process was killed, so the others would wait for ever.",
    }
    return next(
        (hint for sign, hint in known.items() if sign in text.partition("\n\n")[0]),
        "start from the line at which it stopped. To watch it get there, call rehearse with that "
        "number of ranks in a cell of your own.",
    )
