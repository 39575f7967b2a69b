"""The parameter server: all ranks send their tensor to one, which sends their sum back.

The server takes one message at a time, so each is one step. Three ranks and server 0:

    step   0: 1 -> 0 added    1: 2 -> 0 added    2: 0 -> 1 copied    3: 0 -> 2 copied

Source: M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer, check_rank, check_size


def all_reduce(ranks: int, length: int, server: int = 0) -> list[Transfer]:
    """The other ranks in rank order: to the server, then back. Each transfer is the whole tensor.

    2(n-1) steps; the server sends n-1 tensors, each other rank one.
    """
    check_size(ranks, length)
    check_rank("server", server, ranks)
    if length == 0:
        return []
    others = [rank for rank in range(ranks) if rank != server]
    to_server = [Transfer(step, rank, server, 0, length, "sum") for step, rank in enumerate(others)]
    back = [
        Transfer(len(others) + step, server, rank, 0, length, "copy")
        for step, rank in enumerate(others)
    ]
    return to_server + back
