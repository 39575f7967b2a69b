"""A code's parts as one message.

| lengths (8 bytes each) where the code's size depends on its values | float32 | int32 | uint8 |
"""

from __future__ import annotations

import torch

from dlviz.compression.compressor import Code


def bytes_of(code: Code) -> int:
    """Bytes of all parts of a code."""
    return sum(part.nbytes for part in code)


def pack(code: Code, fixed: bool = True) -> torch.Tensor:
    """The parts of a code in one message, (bytes,) of uint8, those of wide elements first, as
    memory needs them aligned; before them their lengths unless these are `fixed`."""
    parts = sorted(code, key=torch.Tensor.element_size, reverse=True)
    if not fixed:
        parts.insert(0, torch.tensor([part.numel() for part in parts]))
    return torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])


def unpack(row: torch.Tensor, like: Code, lengths: bool = False) -> Code:
    """The parts of a message, of the dtypes of `like`, and of its lengths unless the message begins
    with `lengths`."""
    order = sorted(range(len(like)), key=lambda i: like[i].element_size(), reverse=True)
    counts = [like[i].numel() for i in order]
    if lengths:
        head, row = row[: 8 * len(like)], row[8 * len(like) :]
        counts = head.view(torch.int64).tolist()
    sizes = [n * like[i].element_size() for n, i in zip(counts, order, strict=True)]
    parts = dict(zip(order, row.split(sizes), strict=True))
    return [parts[i].view(part.dtype) for i, part in enumerate(like)]
