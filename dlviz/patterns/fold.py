"""Folding: reduces any number of ranks to a power of two, for an algorithm that pairs ranks up.

With p' the largest power of two not above p ranks, the first 2(p-p') ranks pair up: an even one
gives its tensor to the next odd one, sits the algorithm out, and gets the result from it.
Six ranks, of which 1, 3, 4 and 5 stay:

    before   0 -> 1   2 -> 3   added        after   1 -> 0   3 -> 2   copied

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer


def staying(ranks: int) -> list[int]:
    """The ranks that stay, in order; their number is a power of two."""
    taking = _taking(ranks)
    return [*taking, *range(2 * len(taking), ranks)]


def fold(ranks: int, length: int) -> list[Transfer]:
    """The tensors of the ranks that do not stay, added to their neighbours' in step 0."""
    return [Transfer(0, rank - 1, rank, 0, length, "sum") for rank in _taking(ranks) if length]


def unfold(ranks: int, length: int, step: int) -> list[Transfer]:
    """The result, copied in `step` to the ranks that did not stay."""
    return [Transfer(step, rank, rank - 1, 0, length, "copy") for rank in _taking(ranks) if length]


def _taking(ranks: int) -> range:
    """The ranks that take a neighbour's tensor: the pairs end at 2(p-p')."""
    return range(1, 2 * (ranks - (1 << (ranks.bit_length() - 1))), 2)
