"""Folding: ranks that are no power of two become one, for an algorithm that pairs ranks up.

With p' the largest power of two not above p ranks, the first 2(p-p') ranks pair up: an even one
gives its tensor to the odd one after it and sits the algorithm out, then gets the result from it.
Six ranks, of which 1, 3, 4 and 5 stay:

    before   0 -> 1   2 -> 3   added        after   1 -> 0   3 -> 2   copied

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer


def staying(ranks: int) -> list[int]:
    """The ranks that stay, in order: a power of two of them."""
    taking = _taking(ranks)
    return [*taking, *range(2 * len(taking), ranks)]


def fold(ranks: int, length: int) -> list[Transfer]:
    """The tensors of those that do not stay, added to their neighbours' in step 0."""
    return [Transfer(0, rank - 1, rank, 0, length, "add") for rank in _taking(ranks) if length]


def unfold(ranks: int, length: int, step: int) -> list[Transfer]:
    """The result, copied back to those that did not stay in `step`."""
    return [Transfer(step, rank, rank - 1, 0, length, "copy") for rank in _taking(ranks) if length]


def _taking(ranks: int) -> range:
    """The ranks that take another one's tensor: 2(p-p') is where the pairs end."""
    return range(1, 2 * (ranks - (1 << (ranks.bit_length() - 1))), 2)
