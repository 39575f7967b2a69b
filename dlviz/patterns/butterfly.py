"""The butterfly (recursive doubling): in step k ranks that are 2^k apart exchange their whole sums.

Four ranks; each pair exchanges whole tensors and both add, so sums double in each step:

    step 0:  0 <-> 1   2 <-> 3        step 1:  0 <-> 2   1 <-> 3

Ranks beyond a power of two are folded before and unfolded after (fold.py).

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

from dlviz.patterns.fold import fold, staying, unfold
from dlviz.patterns.pattern import Transfer, check_size


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """lg p' steps in which each rank that stays sends the whole tensor; two more with a fold."""
    check_size(ranks, length)
    members = staying(ranks)
    first = int(len(members) < ranks)
    levels = len(members).bit_length() - 1
    exchange = [
        Transfer(first + level, rank, members[place ^ (1 << level)], 0, length, "sum")
        for level in range(levels)
        for place, rank in enumerate(members)
        if length
    ]
    return fold(ranks, length) + exchange + unfold(ranks, length, first + levels)
