"""Which ranks' contributions a cell of a buffer holds, read from the cell's contents.

Before a collective, `encode` fills cell i of rank r with

    c(i) * b**r  +  u * mark(i)          c(i) = 1 + i % 7

In sums the whole number and the fraction stay separate. The whole number divided by c(i), written
in base b, has as its digit r how often rank r's value was added: for 4 ranks b is 5, and a cell
with c(i) = 1 that holds 31 = 1 + 5 + 25 has ranks 0, 1 and 2 once, one that holds 35 = 2*5 + 25 has
rank 1 twice and rank 2 once. The fraction identifies the cells that the values come from:

    mark(i) = 1 + s * (x + t * y)        x = i % 37,  y = (x - 18) * (x - 19) / 2

In a sum of marks three parts stay separate: how many values were added, and the sums of their x and
y. The points (x, y) lie on a parabola, and no point of a parabola is the mean of others. So k
values add up to k * mark(i) only if all of them are cell i's: no sum of other cells' values, and no
mean, can pass for a sum of the cell's own. Cells a multiple of 37 apart share their mark.

The unit u is a power of two, so small that float64 adds up to n values of every rank (for more than
8 ranks: 3) without rounding. float32 and integers have no room for marks: only their whole number
is read, and a value from another cell may pass for a multiple.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dlviz.counts import check_counts
from dlviz.trace import Trace

MAX_RANKS = 13
UNKNOWN = -1
FACTORS = 7
MARKED = 37  # cells with different marks
BASES = {6: 5, 8: 4, MAX_RANKS: 3}  # up to so many ranks; a cell counts up to base - 1 of each
ALIKE = 0.25  # a fraction below it may be marks


def encode(rank: int, ranks: int, length: int) -> list[float]:
    """The values with which rank `rank` of `ranks` fills a buffer of `length` cells.

    Raises ValueError for a rank outside 0 to ranks - 1, or for more than 13 ranks.
    """
    _check(ranks)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank={rank} is not one of {ranks} ranks: use 0 to {ranks - 1}.")
    base, marks, room = _code(ranks)
    cells = np.arange(length)
    return ((1 + cells % FACTORS) * base**rank + marks[cells % MARKED] / room).tolist()


def decode(array: np.ndarray, ranks: int) -> np.ndarray:
    """How often each rank's contribution is in each cell of `array`, read from its contents.

    Counts (length, ranks). A cell that is not a sum of this cell's values from `encode`, or is too
    large for the array's type to hold such sums exactly, has -1 for every rank. Raises ValueError
    for more than 13 ranks.
    """
    _check(ranks)
    array = np.asarray(array).reshape(-1)
    base, marks, room = _code(ranks)
    whole, fraction = _parts(array)
    cells = np.arange(len(array))
    left, rest = np.divmod(whole, 1 + cells % FACTORS)
    counts = np.empty((len(array), ranks), np.int64)
    for rank in range(ranks):
        left, counts[:, rank] = np.divmod(left, base)
    known = (whole >= 0) & (rest == 0) & (left == 0)
    if array.dtype == np.float64:
        known &= fraction * room == counts.sum(axis=1) * marks[cells % MARKED]
    counts[~known] = UNKNOWN
    return counts


def origins(array: np.ndarray, ranks: int) -> np.ndarray:
    """For each cell of `array` the other cell whose values were added to its own or replaced
    them; -1 where there is none, where there are several, in types without marks, and in an array
    of more than 37 cells, whose marks are not all different.
    """
    check_counts(ranks=ranks)
    array = np.asarray(array).reshape(-1)
    if array.dtype != np.float64 or len(array) > MARKED or ranks > MAX_RANKS:
        return np.full(len(array), UNKNOWN)
    _, _, room = _code(ranks)
    most = ranks * _times(ranks)
    scaled = _parts(array)[1] * room
    points, many = np.divmod(scaled.astype(np.int64), most + 1)
    y, x = np.divmod(points, (MARKED - 1) * most + 1)
    own = np.arange(len(array)) % MARKED
    across, up = x - many * own, y - many * _height(own)
    # The line from the cell's own point to the mean of all crosses the parabola once more.
    other, odd = np.divmod(2 * up, np.where(across, across, 1))
    other += MARKED - own
    times, rest = np.divmod(across, np.where(other == own, 1, other - own))
    found = (scaled == np.rint(scaled)) & (across != 0) & (odd == 0) & (rest == 0)
    found &= (0 <= other) & (other < len(array)) & (0 < times) & (times <= many)
    return np.where(found, other, UNKNOWN)


def plain(array: np.ndarray, ranks: int) -> np.ndarray:
    """Contents as shown: without the fraction, where it may be marks."""
    check_counts(ranks=ranks)
    if array.dtype.kind != "f":
        return array
    _, marks, room = _code(ranks)
    most = min(ranks * _times(ranks) * int(marks.max()) / room, ALIKE)
    whole = np.rint(array)
    apart = np.subtract(array, whole, where=np.isfinite(array), out=np.ones_like(array))
    return np.where(np.abs(apart) <= most, whole, array)


def snapshots(trace: Trace, held: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """The buffer of every rank at first, `held`, and after each message of a collective's `trace`,
    as a Trace takes them: step by step, within a step in the order received by the wall clock. All
    messages of a step carry what their senders held before it. `held` is left as it was."""
    table, held = trace.messages, [array.copy() for array in held]
    shots: list[dict[str, Any]] = []

    def shoot(rank: int, time: float, wall: float) -> None:
        own = {"rank": rank, "name": "buffer", "time": time, "wall": wall, "index": len(shots)}
        shots.append({**own, "array": held[rank].copy()})

    for rank in range(len(held)):
        shoot(rank, 0.0, 0.0)
    for step in np.unique(table.step).tolist():
        rows = np.flatnonzero(table.step == step)
        rows = rows[np.argsort(table.wall_received[rows])]
        carried = {}
        for row in rows.tolist():
            low, high = table.offset[row], table.offset[row] + table.count[row]
            carried[row] = slice(low, high), held[table.src[row]][low:high].copy()
        for row, (where, came) in carried.items():
            rank = int(table.dst[row])
            held[rank][where] = came + (held[rank][where] if table.op[row] == "sum" else 0)
            shoot(rank, float(table.received[row]), float(table.wall_received[row]))
    return shots


def _parts(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The whole number in each cell, -1 where there is none, and the fraction."""
    marked = array.dtype == np.float64
    bits = np.finfo(array.dtype).nmant + 1 if array.dtype.kind == "f" else 53
    values = array.astype(np.float64)
    held = np.isfinite(values) & (values >= 0) & (values < 2.0 ** min(bits, 53))
    values = np.where(held, values, 0)
    whole = np.floor(values) if marked else np.rint(values)
    held &= marked | (np.abs(values - whole) < ALIKE)
    return np.where(held, whole, UNKNOWN).astype(np.int64), values - whole


@cache
def _code(ranks: int) -> tuple[int, np.ndarray, int]:
    """The base of the digits, the mark of each cell in units, and how many units make 1."""
    base = min(ranks + 1, next(base for most, base in BASES.items() if ranks <= most))
    most = ranks * _times(ranks)
    x = np.arange(MARKED)
    marks = 1 + (most + 1) * (x + ((MARKED - 1) * most + 1) * _height(x))
    largest = FACTORS * _times(ranks) * (base**ranks - 1) // (base - 1)
    room = 2 ** (53 - largest.bit_length())
    assert most * marks.max() < room
    return base, marks, room


def _height(x: np.ndarray | int) -> np.ndarray | int:
    """A parabola through whole numbers, as low as possible over the cells."""
    middle = MARKED // 2
    return (x - middle) * (x - middle - 1) // 2


def _times(ranks: int) -> int:
    """How often each rank's value may be added for the sum to be exact."""
    return ranks if ranks <= 8 else 3


def _check(ranks: int) -> None:
    if not 1 <= ranks <= MAX_RANKS:
        raise ValueError(
            f"ranks={ranks}: the contributions of at most {MAX_RANKS} ranks fit into one number. "
            f"Use 1 to {MAX_RANKS} ranks."
        )
    check_counts(ranks=ranks)
