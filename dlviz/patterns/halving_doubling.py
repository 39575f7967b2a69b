"""Recursive halving and doubling: pairs split what they sum, then exchange the results.

Each of p' ranks (a power of two) begins with all p' chunks. In halving step k a rank and the one
2^k away split the chunks that both hold: each sends the half that the other will hold, and adds
what it receives. Then every rank holds one whole sum; the doubling steps go back. Four ranks:

    chunks held    rank 0   rank 1   rank 2   rank 3
    begin          0 to 3   0 to 3   0 to 3   0 to 3
    step 0         0, 1     2, 3     0, 1     2, 3      0 <-> 1   2 <-> 3   half the tensor
    step 1         0        2        1        3         0 <-> 2   1 <-> 3   a quarter
    step 2         0, 1     2, 3     0, 1     2, 3      the same pairs, copied
    step 3         0 to 3   0 to 3   0 to 3   0 to 3

Ranks beyond a power of two are folded before and unfolded after (fold.py).

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005 (Rabenseifner's algorithm).
"""

from __future__ import annotations

from dlviz.patterns.fold import fold, staying, unfold
from dlviz.patterns.pattern import Transfer, check_size


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """reduce_scatter, then all_gather: 2 lg p' steps; two more with a fold."""
    first = reduce_scatter(ranks, length)
    later = len(staying(ranks)).bit_length() - 1 + (len(staying(ranks)) < ranks)
    return first + [t._replace(step=t.step + later) for t in all_gather(ranks, length)]


def reduce_scatter(ranks: int, length: int) -> list[Transfer]:
    """The fold, then lg p' halvings: a rank sends what its partner will hold."""
    check_size(ranks, length)
    members = staying(ranks)
    first = int(len(members) < ranks)
    return fold(ranks, length) + [
        Transfer(first + level, rank, members[partner], offset, count, "sum")
        for level in range(len(members).bit_length() - 1)
        for place, rank in enumerate(members)
        for partner in [place ^ (1 << level)]
        for offset, count in [held(partner, level + 1, len(members), length)]
        if count
    ]


def all_gather(ranks: int, length: int) -> list[Transfer]:
    """lg p' doublings from the last halving back, then the unfold: a rank sends what it holds."""
    check_size(ranks, length)
    members = staying(ranks)
    levels = len(members).bit_length() - 1
    return [
        Transfer(levels - 1 - level, rank, members[place ^ (1 << level)], offset, count, "copy")
        for level in reversed(range(levels))
        for place, rank in enumerate(members)
        for offset, count in [held(place, level + 1, len(members), length)]
        if count
    ] + unfold(ranks, length, levels)


def held(place: int, level: int, size: int, length: int) -> tuple[int, int]:
    """Offset and count of the elements that the rank in `place` of `size` holds after `level`
    halvings: its bit k says whether it takes the upper part in step k."""
    chunk = sum(size >> (k + 1) for k in range(level) if place >> k & 1)
    offset, end = chunk * length // size, (chunk + (size >> level)) * length // size
    return offset, end - offset
