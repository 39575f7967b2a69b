"""What ranks receive to multiply two matrices, Y(m, n) = X(m, k) W(k, n), and the least possible.

A grid of pm x pk x pn ranks cuts all three dims. A rank multiplies a block of X (m/pm, k/pk) by one
of W (k/pk, n/pn). It owns 1/P of each matrix: a block of X is shared by the pn ranks that need it,
one of W by pm ranks, one of Y by the pk ranks that add it up. It receives, in words (elements):

    mk/(pm pk) (1-1/pn)  +  kn/(pk pn) (1-1/pm)  +  mn/(pm pn) (1-1/pk)
          of X                    of W                 of Y, to be added

Each gradient's product has the same count: dX = dY W^T is of (m, n)(n, k), dW = X^T dY of
(k, m)(m, n), and the same three blocks move; a backward that gathers dY once for both moves Y's
words once.

    grid         the lectures' name        moves
    (P, 1, 1)    data parallel             W, of which each rank has 1/P (FSDP)
    (1, P, 1)    reduce output             Y
    (1, 1, P)    partition output          X
    (pm, 1, pn)  SUMMA                     X and W
    (pm, pk, pn) COSMA's choice, in 3D     all three; the best grid may leave out some

Where a dim does not divide, the words are the mean over the ranks, exactly.

Least words: a rank that multiplies 1/P of the mnk pairs uses x, y, z words of the three matrices
with xyz >= (mnk/P)^2, and at least 1/P of each matrix; it begins or ends with 1/P of them,
(mk + kn + mn)/P. With the dims sorted, a >= b >= c, the least x + y + z is

    bc + (ab + ac)/P              1 <= P <= a/b          one matrix moves
    2 (abcc/P)^(1/2) + ab/P       a/b <= P <= ab/cc      two
    3 (abc/P)^(2/3)               ab/cc <= P             all three

This holds for any amount of memory, and some grid reaches it where the dims cut into cubes. The
older bound mnk/(2 sqrt(2) P sqrt(M)) - M needs M, the words that a rank can hold. It is negative
for every case here and so is not drawn: M is (mk + kn + mn)/P or more, and then the bound is not
above 0 on 216 ranks or fewer, whatever the shape.

Source: H. Al Daas, G. Ballard, L. Grigori, S. Kumar, K. Rouse, "Tight Memory-Independent Parallel
Matrix Multiplication Communication Lower Bounds", SPAA 2022; D. Irony, S. Toledo, A. Tiskin,
"Communication lower bounds for distributed-memory matrix multiplication", 2004 (the older one);
G. Kwasniewski et al., "Red-Blue Pebbling Revisited: Near Optimal Parallel Matrix-Matrix
Multiplication", SC 2019 (COSMA).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from dlviz.counts import check_counts, closed_form, of_numbers

Grid = tuple[int, int, int]
FORMS = ("split m", "split k", "split n", "2D", "best")


@closed_form
def matmul_words(m: int, k: int, n: int, grid: Sequence[int]) -> float:
    """Words that each rank of `grid`, (pm, pk, pn), receives for X(m, k) W(k, n); a mean over the
    ranks where the dims do not divide.

    Raises ValueError for a size below 1, and for a grid that is not three whole numbers from 1, or
    longer than a dim."""
    check_grid(grid, m=m, k=k, n=n)
    return _words(m, k, n, grid) / math.prod(grid)


@of_numbers
def best_grid(m: int, k: int, n: int, ranks: int) -> tuple[Grid, float]:
    """The grid (pm, pk, pn) of `ranks` ranks on which each receives the fewest words, and how many.
    Of equal ones the shortest in k, which adds up least, then the shortest in m.

    Raises ValueError for a size below 1, and where no grid of so many ranks fits the dims."""
    return _best(m, k, n, ranks, grids(m, k, n, ranks))


@closed_form
def matmul_lower_bound(m: int, k: int, n: int, ranks: int) -> float:
    """Words that some rank of `ranks` must receive (or send) for X(m, k) W(k, n), whatever the
    algorithm and the memory, if each owns 1/ranks of every matrix.

    Raises ValueError for a size below 1."""
    check_counts(m=m, k=k, n=n, ranks=ranks)
    c, b, a = sorted((m, k, n))
    own = a * b + a * c + b * c
    # Times the ranks, everything under a root is whole, so a bound that is reached is exact.
    if ranks * b <= a:
        needed = ranks * b * c + a * b + a * c
    elif ranks * c * c <= a * b:
        needed = 2 * c * _root(a * b * ranks, 2) + a * b
    else:
        needed = 3 * _root((a * b * c) ** 2 * ranks, 3)
    return (needed - own) / ranks


@of_numbers
def matmul_table(m: int, k: int, n: int, ranks: int) -> list[dict[str, object]]:
    """The lecture's three forms, the best grid of SUMMA ("2D") and the best of all: a row each, of
    `form`, `grid`, `words` and `over`, how many times the lower bound (1.0 where both are 0). Forms
    that do not fit the dims are left out.

    Raises ValueError as `best_grid`."""
    fitting = list(grids(m, k, n, ranks))
    bound = matmul_lower_bound(m, k, n, ranks)
    of_form = {
        "split m": [(ranks, 1, 1)],
        "split k": [(1, ranks, 1)],
        "split n": [(1, 1, ranks)],
        "2D": [grid for grid in fitting if grid[1] == 1],
        "best": fitting,
    }
    rows = []
    for form in FORMS:
        allowed = [grid for grid in of_form[form] if grid in fitting]
        if allowed or form == "best":
            grid, words = _best(m, k, n, ranks, allowed)
            over = words / bound if bound else 1.0
            rows.append({"form": form, "grid": grid, "words": words, "over": over})
    return rows


def grids(m: int, k: int, n: int, ranks: int) -> Iterator[Grid]:
    """All grids (pm, pk, pn) of `ranks` ranks that are no longer than a dim."""
    check_counts(m=m, k=k, n=n, ranks=ranks)
    for pm in (each for each in range(1, min(m, ranks) + 1) if ranks % each == 0):
        rest = ranks // pm
        for pk in (each for each in range(1, min(k, rest) + 1) if rest % each == 0):
            if rest // pk <= n:
                yield pm, pk, rest // pk


def check_grid(grid: Sequence[int], **sizes: int) -> None:
    """Raise ValueError unless `grid` is three whole numbers from 1, (pm, pk, pn), and cuts none of
    the `sizes` (m, k, n, or those that are known) into more parts than it has elements."""
    check_counts(**sizes)
    if len(grid) != 3 or not all(isinstance(each, int) and each >= 1 for each in grid):
        raise ValueError(
            f"grid={grid!r} cuts no product: give three whole numbers from 1, the parts of m, k "
            "and n."
        )
    for dim, parts in zip("mkn", grid, strict=True):
        size = sizes.get(dim, parts)
        if parts > size:
            raise ValueError(
                f"grid={tuple(grid)} cuts {dim}={size} into {parts} parts: a rank without a row or "
                f"column has nothing to multiply. Use {size} or fewer there."
            )


def _best(m: int, k: int, n: int, ranks: int, allowed: Iterable[Grid]) -> tuple[Grid, float]:
    grid = min(allowed, key=lambda grid: (_words(m, k, n, grid), grid[1], grid[0]), default=None)
    if grid is None:
        raise ValueError(
            f"ranks={ranks} fit no grid for m={m}, k={k}, n={n}: they must be a product of three "
            "whole numbers, none of them above its dim."
        )
    return grid, _words(m, k, n, grid) / ranks


def _words(m: int, k: int, n: int, grid: Sequence[int]) -> int:
    """What all ranks receive: every block goes to all but one of the ranks that share it."""
    pm, pk, pn = grid
    return m * k * (pn - 1) + k * n * (pm - 1) + m * n * (pk - 1)


def _root(value: int, degree: int) -> float:
    """The root of `value`, exact where it is a whole number."""
    nearest = round(value ** (1 / degree))
    return nearest if nearest**degree == value else value ** (1 / degree)
