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

from collections.abc import Sequence

from dlviz.patterns.pattern import Transfer, check_size


def reduce_scatter(ranks: int, length: int) -> list[Transfer]:
    """In step s rank r sends chunk r-s, which is added; afterwards rank r owns chunk r+1 (both
    modulo `ranks`)."""
    check_size(ranks, length)
    return rounds(range(ranks), 0, length, start=0, first_step=0, op="sum")


def all_gather(ranks: int, length: int) -> list[Transfer]:
    """In step s rank r sends chunk r+1-s, which is copied: it continues a reduce_scatter."""
    check_size(ranks, length)
    return rounds(range(ranks), 0, length, start=1, first_step=0, op="copy")


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """reduce_scatter in steps 0 to n-2, then all_gather in steps n-1 to 2n-3.

    2(n-1) steps; each rank sends 2(n-1)/n of the tensor.
    """
    scatter = reduce_scatter(ranks, length)
    return scatter + rounds(range(ranks), 0, length, 1, first_step=ranks - 1, op="copy")


def rounds(
    members: Sequence[int], offset: int, length: int, start: int, first_step: int, op: str
) -> list[Transfer]:
    """Once around the ring of `members`, on chunks of the `length` elements from `offset` on: in
    step s member i sends chunk i+start-s."""
    n = len(members)
    bounds = [offset + i * length // n for i in range(n + 1)]
    counts = [end - first for first, end in zip(bounds, bounds[1:], strict=False)]
    return [
        Transfer(first_step + step, src, members[(i + 1) % n], bounds[chunk], counts[chunk], op)
        for step in range(n - 1)
        for i, src in enumerate(members)
        if counts[chunk := (i + start - step) % n]
    ]
