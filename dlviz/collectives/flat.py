"""Shared by the algorithms: a tensor as one row, its chunks, and how a message is reduced.

`op` is "sum", "avg" (the sum divided by the number of ranks, only for floating point), "max", "min"
or "product". A receiver adds each message, or takes the larger values, say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dlviz.cluster import Comm, check_tensor, label, reduction


@contextmanager
def reduced(
    comm: Comm, tensor: torch.Tensor, op: str, call: str = "all_reduce", root: int = -1
) -> Iterator[tuple[torch.Tensor, str]]:
    """The row of `flattened`, and what a receiver does with a message: "sum", say. For the average
    the row's sums are divided when the `with` ends. Raises ValueError for an unknown op, and for
    the average of whole numbers."""
    check_tensor(call, tensor)
    op = reduction(op, tensor)
    with flattened(comm, tensor, call, root) as row:
        yield row, "sum" if op == "avg" else op
        if op == "avg":
            row.div_(comm.size)  # once, at the end, so that it rounds once


@contextmanager
def flattened(
    comm: Comm, tensor: torch.Tensor, call: str, root: int = -1
) -> Iterator[torch.Tensor]:
    """The tensor as a contiguous row, whose values the tensor has when the `with` ends.

    The row is the tensor's own memory where that is contiguous, else a copy that is written back.
    Raises ValueError, before anything is sent, where another rank has another shape, dtype or
    `call`: it names both ranks and both shapes.
    """
    check_tensor(call, tensor)
    comm.agree(call, tensor, root)  # before anything is sent: ranks could hang
    row = tensor.detach().contiguous().view(-1)  # (elements,)
    if not tensor.is_contiguous():
        label("communication", row)
    yield row
    if not tensor.is_contiguous():
        tensor.detach().copy_(row.view(tensor.shape))


def chunks_of(row: torch.Tensor, n: int) -> list[torch.Tensor]:
    """The row in n chunks, chunk i being elements i*length//n to (i+1)*length//n - 1: their lengths
    differ by one at most."""
    length = row.numel()
    return [row[i * length // n : (i + 1) * length // n] for i in range(n)]
