"""Folding: how an algorithm that pairs ranks runs on a number of ranks that is no power of two.

With n' the largest power of two not above n, the first 2(n-n') ranks pair up. An even rank sends
its tensor to the odd one after it, which adds it, and gets the result back at the end; in between
only n' ranks go on. Six ranks:

    0 -> 1   2 -> 3    then 1, 3, 4 and 5 go on, then    1 -> 0   3 -> 2

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm


def staying(n: int) -> list[int]:
    """The ranks that go on, in order."""
    return [rank for rank in range(n) if rank >= _paired(n) or rank % 2]


def fold(comm: Comm, row: torch.Tensor, op: str) -> None:
    """Step 0, if needed: even ranks send their tensor."""
    if comm.rank < _paired(comm.size):
        with comm.span("phase", "fold", round=0):
            if comm.rank % 2:  # goes on for both
                comm.irecv(row, comm.rank - 1, op=op).wait()
            else:
                comm.isend(row, comm.rank + 1).wait()


def unfold(comm: Comm, row: torch.Tensor, step: int) -> None:
    """The last step, if needed: even ranks get the result."""
    if comm.rank < _paired(comm.size):
        with comm.span("phase", "unfold", round=step):
            if comm.rank % 2:
                comm.isend(row, comm.rank - 1).wait()
            else:
                comm.irecv(row, comm.rank + 1).wait()


def _paired(n: int) -> int:
    return 2 * (n - (1 << (n.bit_length() - 1)))  # two for each rank too many
