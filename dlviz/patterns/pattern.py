"""A collective as data: who sends which elements to whom in which step, to be added or copied.

A pattern is a list of `Transfer`s ordered by step, then by sender. It says what an algorithm should
do, independently of the code that does it (dlviz/collectives): each checks the other. Elements are
counted from the start of the flattened tensor. No transfer is empty.

All transfers of a step carry what their senders held when the step began; a rank sends several in
one step in the list's order, and receives several in the senders' order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlviz.counts import check_counts


class Transfer(NamedTuple):
    """In `step`, rank `src` sends `count` elements from `offset` on to rank `dst`, which
    replaces its own by them (op "copy") or adds them to its own (op "sum")."""

    step: int
    src: int
    dst: int
    offset: int
    count: int
    op: str


def elements_sent(transfers: Iterable[Transfer], ranks: int) -> list[int]:
    """How many elements each of `ranks` ranks sends."""
    check_counts(ranks=ranks)
    sent = [0] * ranks
    for transfer in transfers:
        sent[transfer.src] += transfer.count
    return sent


def steps(transfers: Iterable[Transfer]) -> int:
    """The number of steps with a transfer."""
    return len({transfer.step for transfer in transfers})


def check_size(ranks: int, length: int) -> None:
    """Raise ValueError unless a tensor of `length` elements can be spread over `ranks` ranks."""
    if ranks < 1:
        raise ValueError(f"ranks={ranks!r} cannot hold a collective: use 1 or more.")
    if length < 0:
        raise ValueError(f"length={length!r} is not a number of elements: use 0 or more.")


def check_rank(name: str, rank: int, ranks: int) -> None:
    """Raise ValueError unless `rank`, called `name`, is one of `ranks` ranks."""
    if not 0 <= rank < ranks:
        raise ValueError(f"{name}={rank!r} is not one of {ranks} ranks: use 0 to {ranks - 1}.")
