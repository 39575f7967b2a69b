"""Numbers of a few bits each, really packed: b of them take ceil(b * bits / 8) bytes a row, the
first number in the highest bits."""

from __future__ import annotations

import numpy as np
import torch


def pack_rows(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """(rows, k) whole numbers below 2^bits as (rows, ceil(k * bits / 8)) bytes."""
    if bits == 8:
        return numbers.to(torch.uint8)
    if bits in (2, 4) and numbers.shape[1] % (8 // bits) == 0:  # whole numbers a byte
        parts = numbers.to(torch.uint8).view(len(numbers), -1, 8 // bits)
        packed = parts[..., 0]
        for number in range(1, 8 // bits):
            packed = (packed << bits) | parts[..., number]
        return packed
    shifts = np.arange(bits - 1, -1, -1)
    each = (numbers.numpy().astype(np.int64)[..., None] >> shifts) & 1  # (rows, k, bits)
    flat = each.astype(np.uint8).reshape(len(numbers), -1)
    return torch.from_numpy(np.packbits(flat, axis=1))


def unpack_rows(packed: torch.Tensor, k: int, bits: int) -> torch.Tensor:
    """(rows, bytes) as (rows, k) int64."""
    flat = np.unpackbits(packed.numpy(), axis=1, count=k * bits).reshape(len(packed), k, bits)
    weights = 1 << np.arange(bits - 1, -1, -1)
    return torch.from_numpy(flat @ weights)


def rows_of_bytes(code: torch.Tensor, n: int, per: int, nbytes: int) -> list[torch.Tensor]:
    """A packed code cut into its full buckets' rows of `nbytes` and the ragged one's, as
    `rows_of`."""
    full = n // per * nbytes
    found = (
        [code[:full].view(-1, nbytes), code[full:].view(1, -1)] if nbytes else [code.view(1, -1)]
    )
    return [rows for rows in found if rows.numel()]
