"""How codes may be summed (coded.py), and whether all ranks mean the same by it."""

from __future__ import annotations

from typing import Any

from dlviz.cluster import Comm
from dlviz.compression import Compressor
from dlviz.sim import compression

HOW = (*compression.HOW,)


def how_of(compressor: Compressor, how: str | None) -> str:
    """How its codes are summed. Raises ValueError for a method unknown or not open to them."""
    if how is None:
        return "all_reduce" if compressor.linear else "all_gather"
    if how not in HOW:
        raise ValueError(f"how={how!r} is unknown: use {', '.join(map(repr, HOW))}.")
    if how == "all_reduce" and not compressor.linear:
        raise ValueError(
            f"how='all_reduce' adds codes, and those of {compressor.name!r} cannot be "
            "added: use 'all_gather' or 'reduce_scatter'."
        )
    if how != "all_reduce" and compressor.codes > 1:
        raise ValueError(
            f"{compressor.name!r} sums its first factor before it makes the second: use "
            "how='all_reduce'."
        )
    return how


def compare(comm: Comm, *mine: Any) -> None:
    """Raise ValueError, on all ranks, where two ranks sum by different codes or options."""
    others: list[Any] = [None] * comm.size
    comm.all_gather_object(others, ", ".join(map(str, mine)))
    for rank, other in enumerate(others):
        if other != others[0]:
            raise ValueError(
                f"rank {comm.members[0]} sums by {others[0]}, rank {comm.members[rank]} by "
                f"{other}: give all ranks the same."
            )
