"""Whose contributions a cell of a buffer holds, read from the cell's contents.

Before a collective, `encode` fills cell i of rank r of n with

    c(i) * (n + 1)**r        c(i) = 1 + i % 7

so that after any sequence of sums a cell divided by c(i), written in base n + 1, has as its digit r
how often rank r's value was added: with n = 4, 31 = 1 + 1*5 + 1*25 holds ranks 0, 1 and 2 once, and
35 = 2*5 + 25 holds rank 1 twice. A program that adds twice, or puts a chunk in the wrong place,
shows as it is; contents that are no such sum decode to nothing.

float64 holds these sums exactly to 13 ranks, float32 to 7. Only sums are read: a rank's value added
more than n times runs over into the next digit, and an average has other digits than its sum.
"""

from __future__ import annotations

import numpy as np

MAX_RANKS = 13
UNKNOWN = -1


def weights(length: int) -> np.ndarray:
    """The factor c(i) of each cell: 1 to 7, so that contents moved to another cell show."""
    return 1 + np.arange(length) % 7


def encode(rank: int, ranks: int, length: int) -> list[float]:
    """What rank `rank` of `ranks` fills a buffer of `length` cells with.

    Raises ValueError for a rank that is none of them, or for more than 13 ranks.
    """
    _check(ranks)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank={rank} is not one of {ranks} ranks: use 0 to {ranks - 1}.")
    return (weights(length) * float(ranks + 1) ** rank).tolist()


def decode(array: np.ndarray, ranks: int) -> np.ndarray:
    """How often each rank's contribution is in each cell of `array`, as its contents tell.

    Counts (length, ranks). A cell that is no sum of encoded values, or is too large for the array's
    type to hold such sums exactly, has -1 for every rank. Raises ValueError for more than 13 ranks.
    """
    _check(ranks)
    array = np.asarray(array).reshape(-1)
    bits = np.finfo(array.dtype).nmant + 1 if array.dtype.kind == "f" else 53
    values = array.astype(np.float64)
    whole = np.isfinite(values) & (values >= 0) & (values < 2.0 ** min(bits, 53))
    values = np.where(whole, values, 0)
    cells = weights(len(values))
    parts = np.floor_divide(values, cells)
    known = whole & (parts * cells == values) & (parts < float(ranks + 1) ** ranks)
    left = np.where(known, parts, 0).astype(np.int64)
    counts = np.empty((len(values), ranks), np.int64)
    for rank in range(ranks):
        left, counts[:, rank] = np.divmod(left, ranks + 1)
    counts[~known] = UNKNOWN
    return counts


def _check(ranks: int) -> None:
    if not 1 <= ranks <= MAX_RANKS:
        raise ValueError(
            f"ranks={ranks}: the contributions of at most {MAX_RANKS} ranks fit into one number. "
            f"Use 1 to {MAX_RANKS} ranks."
        )
