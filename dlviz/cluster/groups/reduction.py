"""Reductions in shared memory. Each rank reduces a slice of everybody's tensor and then copies
everybody else's slice; of a short tensor every rank reduces the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from dlviz.cluster.control.group import Group
from dlviz.cluster.messages.requests import PIECE
from dlviz.cluster.operations import REDUCE

LONG = 1 << 19  # bytes from which on a rendezvous costs less than a copy of a slice
ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # of the rows of a matrix
    "sum": lambda rows: rows.sum(0, dtype=rows.dtype),
    "avg": lambda rows: rows.sum(0, dtype=rows.dtype).div_(len(rows)),
    "max": partial(torch.amax, dim=0),
    "min": partial(torch.amin, dim=0),
    "product": lambda rows: rows.prod(0, dtype=rows.dtype),
}


def reduce_all(group: Group, wire: torch.Tensor, op: str, call: Any, root: int = -1) -> None:
    """Reduce every member's `wire` in place: on all, or on `root` alone."""
    row, members, me = wire.view(-1), len(group.members), group.place
    if wire.nbytes <= group.short:
        rows = group.copies(row, call)
        if root in (-1, me) and len(row):
            row.copy_(ROWS[op](rows))
        return
    bounds = [place * len(row) // members for place in range(members + 1)]
    slices = [row[a:b] for a, b in pairwise(bounds)]
    others = [place for place in range(members) if place != me]
    read = group.show(row, call)
    total = slices[me] if wire.nbytes > LONG else group.keep(slices[me])
    _reduce_others(read, others, bounds[me], total, op)
    read = group.show(total, call)  # from here on nobody reads the rows
    if root in (-1, me):
        for place in others:
            read(place, 0, slices[place])
    if total is slices[me]:
        group.rendezvous(call)  # the program may write to the row again
    else:
        slices[me].copy_(total)


def reduce_slice(
    read: Callable[..., None], members: int, start: int, target: torch.Tensor, op: str
) -> None:
    """Reduce the elements from `start` on of every member's tensor into `target`."""
    if len(target):
        read(0, start, target)
        _reduce_others(read, range(1, members), start, target, op)


def _reduce_others(
    read: Callable[..., None], others: Sequence[int], start: int, total: torch.Tensor, op: str
) -> None:
    """Reduce those members' elements into `total`, a piece at a time: it stays in the cache."""
    length = PIECE // total.element_size()
    piece = torch.empty(min(length, len(total)), dtype=total.dtype)
    reduce = REDUCE["sum" if op == "avg" else op]
    for begin in range(0, len(total), length):
        part = total[begin : begin + length]
        incoming = piece[: len(part)]
        for place in others:
            read(place, start + begin, incoming)
            reduce(part, incoming)
        if op == "avg":
            part.div_(len(others) + 1)
