"""Elias' universal integers (omega): small numbers in few bits, with no number too large.

    1  0          4  10 100 0         each group is the length of the next one, less 1; a 0 ends
    2  10 0       8  11 1000 0
    3  11 0      16  10 100 10000 0

A sparse vector of small whole numbers is coded as, for each that is not 0, the gap to it, its sign,
its size. What is left of the last byte is filled with ones, which are no whole code.

Source: P. Elias, "Universal codeword sets and representations of the integers", IEEE Transactions
on Information Theory, 1975.
"""

from __future__ import annotations

import numpy as np
import torch

GROUPS = 6  # enough for numbers of 64 bits
LONGEST = 32  # bits of a group that is read


def bits_of(number: int) -> int:
    """Bits of the code of a number, 1 or more."""
    bits = 1
    while number > 1:
        digits = number.bit_length()
        bits, number = bits + digits, digits - 1
    return bits


def omega(number: int) -> int:
    """The code of a number, 1 or more, as a whole number of `bits_of` bits."""
    code, length = 0, 1
    while number > 1:
        code |= number << length
        length += number.bit_length()
        number = number.bit_length() - 1
    return code


def encode(levels: torch.Tensor) -> torch.Tensor:
    """(n,) whole numbers, most of them small or 0, as bytes."""
    row = levels.numpy().astype(np.int64)
    (places,) = row.nonzero()
    gaps = np.diff(places, prepend=-1)
    parts = np.stack([gaps, np.zeros_like(gaps), np.abs(row[places])], 1)
    codes, lengths = _of_each(parts)
    codes[:, 1], lengths[:, 1] = row[places] < 0, 1  # the sign
    codes, lengths = codes.ravel(), lengths.ravel()
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    after = np.repeat(ends, lengths) - 1 - np.arange(total)  # bits of the same code that follow
    bits = (np.repeat(codes, lengths) >> after) & 1
    filled = np.ones(-(-total // 8) * 8, dtype=np.uint8)
    filled[:total] = bits
    return torch.from_numpy(np.packbits(filled))


def _of_each(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The code of each number and its bits; of 0 anything."""
    different, which = np.unique(numbers, return_inverse=True)
    plain = [max(1, number) for number in different.tolist()]
    codes = np.array([omega(number) for number in plain], dtype=np.int64)
    lengths = np.array([bits_of(number) for number in plain], dtype=np.int64)
    return codes[which].reshape(numbers.shape), lengths[which].reshape(numbers.shape)


def decode(packed: torch.Tensor, n: int) -> torch.Tensor:
    """The n whole numbers.

    Where a code begins is known once the one before it is read. So a triple is read from every bit
    at the same time, and those that begin where another ends are picked.
    """
    row, total = torch.zeros(n), 8 * packed.numel()
    words = _words(packed.numpy())
    starts = np.arange(total)
    gap, at = _omega_at(words, starts)
    sign = _bits_at(words, at, np.ones_like(at))
    level, following = _omega_at(words, at + 1)
    chain, there = [], 0
    nexts = following.tolist()
    while there < total and nexts[there] <= total:
        chain.append(there)
        there = nexts[there]
    places = gap[chain].cumsum() - 1
    row[places] = torch.from_numpy(np.where(sign[chain], -level[chain], level[chain])).float()
    return row


def _words(packed: np.ndarray) -> np.ndarray:
    """The 8 bytes from each byte on, as one number."""
    padded = np.concatenate([packed, np.zeros(16, dtype=np.uint8)])
    eight = np.lib.stride_tricks.sliding_window_view(padded, 8)
    return eight.copy().view(">u8").ravel().astype(np.uint64)


def _bits_at(words: np.ndarray, at: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The number of `length` bits from bit `at` on."""
    place = np.minimum(at >> 3, len(words) - 1)
    word = words[place] << (at & 7).astype(np.uint64)
    return (word >> (64 - length).astype(np.uint64)).astype(np.int64)


def _omega_at(words: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number whose code begins at each of these bits, and where it ends."""
    number, going = np.ones_like(at), np.ones(len(at), dtype=bool)
    for _ in range(GROUPS):
        more = going & (_bits_at(words, at, np.ones_like(at)) == 1)
        length = np.minimum(number + 1, LONGEST)
        read = _bits_at(words, at, length)
        at = np.where(more, at + length, at + going)
        number = np.where(more, read, number)
        going = more
    return number, at
