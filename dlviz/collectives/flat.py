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


def chunk(row: torch.Tensor, index: int, chunks: int) -> torch.Tensor:
    """Chunk `index` modulo `chunks` of a row: a view. Lengths differ by one element at most."""
    index, length = index % chunks, row.numel()
    return row[index * length // chunks : (index + 1) * length // chunks]
