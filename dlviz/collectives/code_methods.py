"""How codes may be summed (coded.py), whether all ranks mean the same by it, and their exchange."""

from __future__ import annotations

from typing import Any

import torch

from dlviz.cluster import Comm
from dlviz.collectives.direct import to_all
from dlviz.compression import Code, Compressor
from dlviz.compression.packing import bytes_of, pack, unpack
from dlviz.sim import compression

HOW = (*compression.HOW,)


def how_of(compressor: Compressor, how: str | None) -> str:
    """How its codes are summed. Raises ValueError for a method unknown or not open to them."""
    methods = compression.methods(compressor.linear, compressor.codes)
    if how is None or how in methods:
        return how or methods[0]
    if how not in HOW:
        raise ValueError(f"how={how!r} is unknown: use {', '.join(map(repr, HOW))}.")
    if how == "all_reduce":
        raise ValueError(
            f"how='all_reduce' adds codes, and those of {compressor.name!r} cannot be added: use "
            f"{' or '.join(map(repr, methods))}."
        )
    raise ValueError(
        f"{compressor.name!r} sums its first factor before it makes the second: use "
        f"how={methods[0]!r}."
    )


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


def exchange(comm: Comm, compressor: Compressor, codes: list[Code], like: list[Code]) -> list[Code]:
    """Send code r to rank r; returns what each rank sent here, and this rank's own. The code from
    rank r has the form of `like[r]`, unless it depends on the values."""
    fixed, rows = compressor.fixed, None
    packed = {id(code): pack(code, fixed) for code in codes}  # the same code goes to several
    if fixed:
        rows = [torch.empty(bytes_of(code), dtype=torch.uint8) for code in like]
    arrived = to_all(comm, [packed[id(code)] for code in codes], rows)
    found = [unpack(*pair, not fixed) for pair in zip(arrived, like, strict=True)]
    found[comm.rank] = codes[comm.rank]
    return found
