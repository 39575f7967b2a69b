"""Why a rank idles: nothing is left for it, it waits, or it could have run something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlviz.board.grid import NEVER
from dlviz.board.placement import Placement
from dlviz.schedules import Action

_LISTED = 3  # actions in a sentence


class IdleSlots(NamedTuple):
    """A rank that does nothing from slot `start` up to `end`.

    `cause` is "done" (nothing is left), "waiting" (for the actions in `actions`), or "choice"
    (`actions` could have run).
    """

    rank: int
    start: int
    end: int
    cause: str
    actions: tuple[Action, ...]
    words: str


def idle_of(drawing: Placement) -> list[IdleSlots]:
    """All idle time from the first start to the last end, by its cause."""
    first = min((placed.slot for placed in drawing.placed), default=0)
    left = [*drawing.left()]
    found = []
    for rank in range(drawing.pipeline.ranks):
        mine = [one for one in left if drawing.pipeline.rank_of(one) == rank]
        found += _idle_of(drawing, rank, mine, first)
    return found


def _idle_of(drawing: Placement, rank: int, left: list[Action], first: int) -> Iterator[IdleSlots]:
    """The idle time of a rank on which the actions of `left` are not drawn."""
    grid, rank_of = drawing.grid, drawing.pipeline.rank_of
    starts = {half: one.slot for half, one in drawing.where.items() if rank_of(half) == rank}
    ready = {one: grid.ready(one) for one in (*starts, *left)}
    left = sorted(left, key=ready.__getitem__)
    at = first
    for start, end in [*grid.busy[rank], (drawing.end, drawing.end)]:
        if start > at:
            upcoming = [one for one, slot in starts.items() if slot >= start]
            upcoming.sort(key=starts.__getitem__)
            yield from _gaps_in(drawing, rank, at, start, [*upcoming, *left], ready)
        at = max(at, end)


def _gaps_in(
    drawing: Placement, rank: int, at: int, end: int,
    upcoming: list[Action], ready: dict[Action, float],
) -> Iterator[IdleSlots]:  # fmt: skip
    """A stretch of idle time with what the rank has yet to run, cut where one of that may run."""
    limit = drawing.pipeline.limit
    full = limit is not None and drawing.grid.held(rank, at) >= limit
    free = [one for one in upcoming if not (full and one.kind == "F")]
    cuts = sorted({at, end, *(int(ready[one]) for one in free if at < ready[one] < end)})
    for start, stop in zip(cuts, cuts[1:], strict=False):
        able = tuple(one for one in free if ready[one] <= start)
        if not upcoming:
            yield IdleSlots(rank, start, stop, "done", (), "this rank has nothing left to run")
        elif able:
            words = f"your choice: {_list(able)} could have run here"
            yield IdleSlots(rank, start, stop, "choice", able, words)
        else:
            yield IdleSlots(rank, start, stop, "waiting", *_waited_for(drawing, rank, start, free))


def _waited_for(
    drawing: Placement, rank: int, now: int, upcoming: list[Action]
) -> tuple[tuple[Action, ...], str]:
    """What a rank waits for that can run none of its upcoming actions: the message for the first of
    that, or for what that needs of its own rank."""
    limit, rank_of = drawing.pipeline.limit, drawing.pipeline.rank_of
    need, slot = next(iter(upcoming), None), NEVER
    while need and (unmet := [one for one in drawing.grid.arrivals(need) if one[1] > now]):
        choice, slot = max(unmet, key=lambda one: rank_of(one[0][0]) != rank)
        need = drawing.meant(choice)
        if rank_of(need) != rank:
            break
    if need is None or (limit is not None and rank_of(need) == rank):
        return (), f"waiting for memory: the rank holds {limit} {drawing.pipeline.held}, its limit"
    when = "which is not drawn" if slot == NEVER else f"which is there from slot {slot} on"
    return (need,), f"waiting for {need} of rank {rank_of(need)}, {when}"


def _list(actions: Sequence[Action]) -> str:
    shown = [str(action) for action in actions[:_LISTED]]
    if len(actions) > _LISTED:
        return f"{', '.join(shown)} and {len(actions) - _LISTED} more"
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
