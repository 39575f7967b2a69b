"""The ring: each rank sends to the next one, a chunk of 1/n of the tensor at a time.

Chunk i of n holds elements i*length//n to (i+1)*length//n - 1. Three ranks send these chunks:

    step   0 -> 1   1 -> 2   2 -> 0
      0    chunk 0  chunk 1  chunk 2   added    reduce_scatter: rank r ends with the
      1    chunk 2  chunk 0  chunk 1   added    whole sum of chunk r+1
      2    chunk 1  chunk 2  chunk 0   copied   all_gather: those chunks go round
      3    chunk 0  chunk 1  chunk 2   copied

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", Journal of Parallel and Distributed Computing, 2009.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer, check_size


def reduce_scatter(ranks: int, length: int) -> list[Transfer]:
    """In step s rank r sends chunk r-s, which is added; afterwards rank r owns chunk r+1 (both
    modulo `ranks`)."""
    return _rounds(ranks, length, start=0, first_step=0, op="add")


def all_gather(ranks: int, length: int) -> list[Transfer]:
    """In step s rank r sends chunk r+1-s, which is copied: where reduce_scatter left off."""
    return _rounds(ranks, length, start=1, first_step=0, op="copy")


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """reduce_scatter in steps 0 to n-2, then all_gather in steps n-1 to 2n-3.

    2(n-1) steps; each rank sends 2(n-1)/n of the tensor.
    """
    gather = _rounds(ranks, length, start=1, first_step=ranks - 1, op="copy")
    return reduce_scatter(ranks, length) + gather


def _rounds(ranks: int, length: int, start: int, first_step: int, op: str) -> list[Transfer]:
    check_size(ranks, length)
    transfers = []
    for step in range(ranks - 1):
        for rank in range(ranks):
            chunk = (rank + start - step) % ranks
            first, end = chunk * length // ranks, (chunk + 1) * length // ranks
            if end > first:
                transfers.append(
                    Transfer(first_step + step, rank, (rank + 1) % ranks, first, end - first, op)
                )
    return transfers
