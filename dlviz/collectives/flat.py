"""Any tensor as one row of elements, so that an algorithm can cut it into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flattened(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor as a contiguous row; what is in the row when the `with` ends is in the tensor.

    The row is the tensor's own memory where that is contiguous, else a copy that is written back.
    """
    row = tensor.detach().contiguous().view(-1)  # (elements,)
    yield row
    if not tensor.is_contiguous():
        tensor.detach().copy_(row.view(tensor.shape))


@contextmanager
def chunked(tensor: torch.Tensor, n: int) -> Iterator[list[torch.Tensor]]:
    """The flattened tensor as n chunks, chunk i being elements i*length//n to (i+1)*length//n - 1:
    their lengths differ by one at most."""
    with flattened(tensor) as row:
        length = row.numel()
        yield [row[i * length // n : (i + 1) * length // n] for i in range(n)]
