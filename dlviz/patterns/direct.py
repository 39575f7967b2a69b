"""Direct exchange: every rank sends to every other in one step.

A rank sends to the next rank first, then to the one after that and so on, so that no two ranks send
to the same one at the same time. Three ranks:

    0 -> 1, 0 -> 2        1 -> 2, 1 -> 0        2 -> 0, 2 -> 1

In an all_reduce each message is the whole tensor, and a rank adds all of them, and its own, in rank
order. In an all_to_all it is one chunk: chunk d of rank s becomes chunk s of rank d.

Source: the crossbar of the lectures; J. Bruck et al., "Efficient algorithms for all-to-all
communications in multiport message-passing systems", 1997.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer, check_size


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """One step in which each rank sends n-1 whole tensors, which are added."""
    check_size(ranks, length)
    return [
        Transfer(0, src, (src + shift) % ranks, 0, length, "sum")
        for src in range(ranks)
        for shift in range(1, ranks)
        if length
    ]


def all_to_all(ranks: int, length: int) -> list[Transfer]:
    """One step in which each rank sends n-1 chunks; `offset` is where a chunk lies at its sender.

    Raises ValueError for a length that the ranks do not divide.
    """
    check_size(ranks, length)
    if length % ranks:
        raise ValueError(
            f"length={length} cannot be exchanged by {ranks} ranks: use a multiple of {ranks}."
        )
    chunk = length // ranks
    return [
        Transfer(0, src, dst, dst * chunk, chunk, "copy")
        for src in range(ranks)
        for dst in [(src + shift) % ranks for shift in range(1, ranks)]
        if chunk
    ]
