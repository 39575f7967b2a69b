"""The rules that a drawing breaks: each fault with the place, why, and what would mend it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlviz.board.grid import NEVER, Grid, Placed
from dlviz.board.placement import Placement
from dlviz.schedules import Action, needs
from dlviz.schedules.rules import EXCLUDES


class Fault(NamedTuple):
    """Why an action may not be where it is, and what would mend it, each as a sentence.

    `law` is "rank" (the stage lives elsewhere), "twice", "together" (two in one slot), "needs" (it
    has not got what it needs) or "memory".
    """

    placed: Placed
    law: str
    words: str
    mend: str


def faults_of(drawing: Placement) -> list[Fault]:
    """The rules that are broken; of two actions in each other's way the one put last."""
    order = {placed: number for number, placed in enumerate(drawing.placed)}
    found = [
        *_misplaced(drawing), *_twice(drawing), *_together(drawing, order), *_unmet(drawing),
        *_overfull(drawing),
    ]  # fmt: skip
    return sorted(found, key=lambda fault: order[fault.placed])


def _misplaced(drawing: Placement) -> Iterator[Fault]:
    for placed in drawing.placed:
        for half in placed.action.halves:
            home = drawing.pipeline.stage_rank[half.stage]
            if home != placed.rank:
                words = f"{_at(placed)} is on the wrong rank: stage {half.stage} is on rank {home}."
                mend = f"Move {placed.action} to the row of rank {home}."
                yield Fault(placed, "rank", words, mend)
                break


def _twice(drawing: Placement) -> Iterator[Fault]:
    seen: dict[Action, Placed] = {}
    for placed in drawing.placed:
        for half in placed.action.halves:
            others = (half._replace(kind=kind) for kind in EXCLUDES[half.kind])
            other = next((one for one in others if one in seen), None)
            if other is not None:
                _, rank, slot = seen[other]
                words = f"{_at(placed)} is drawn twice: the other is at slot {slot} of rank {rank}."
                if other != half:
                    words = f"{_at(placed)} repeats work of {other}: a B consists of I and W."
                yield Fault(placed, "twice", words, "Remove one of the two.")
            seen.setdefault(half, placed)


def _together(drawing: Placement, order: dict[Placed, int]) -> Iterator[Fault]:
    for rank in range(drawing.pipeline.ranks):
        row = sorted((one for one in drawing.placed if one.rank == rank), key=lambda one: one.slot)
        explained: set[Placed] = set()
        running: list[Placed] = []
        for placed in row:
            running = [one for one in running if drawing.ends(one) > placed.slot]
            for one in running:
                first, last = sorted((one, placed), key=order.__getitem__)
                if last not in explained:
                    explained.add(last)
                    shared = max(one.slot, placed.slot)
                    yield Fault(
                        last,
                        "together",
                        f"{_at(last)} shares slot {shared} with {first.action}: a rank runs "
                        "one action at a time.",
                        _move_there(drawing, last),
                    )
            running.append(placed)


def _unmet(drawing: Placement) -> Iterator[Fault]:
    for placed in drawing.placed:
        for choice, arrival in drawing.grid.arrivals(placed.action):
            if arrival <= placed.slot:
                continue
            need = drawing.meant(choice)
            words = (
                f"{_at(placed)} needs {need} of rank {drawing.pipeline.rank_of(need)}, which is "
            )
            if arrival == NEVER:
                yield Fault(placed, "needs", f"{words}not drawn.", _draw(drawing, need, placed))
            else:
                words += f"there only from slot {arrival} on."
                yield Fault(placed, "needs", words, _move_there(drawing, placed, need))


def _overfull(drawing: Placement) -> Iterator[Fault]:
    limit = drawing.pipeline.limit
    if limit is None:
        return
    for rank in range(drawing.pipeline.ranks):
        for placed, held in drawing.holding(rank):
            if held > limit:
                yield Fault(
                    placed,
                    "memory",
                    f"{_at(placed)} makes rank {rank} hold {held} {drawing.pipeline.held}; the "
                    f"limit is {limit}.",
                    f"Run a {'B' if 'B' in drawing.pipeline.kinds else 'W'} of rank {rank} before "
                    f"{placed.action}.",
                )


def _draw(drawing: Placement, need: Action, placed: Placed) -> str:
    """How a need that is not drawn could be there in time."""
    rank = drawing.pipeline.rank_of(need)
    by = placed.slot - (drawing.pipeline.latency if rank != placed.rank else 0)
    if by < _soonest(drawing, need):
        return f"Draw {need} on rank {rank}, and move {placed.action} behind {need}."
    return f"Draw {need} on rank {rank} so that {need} ends by slot {by}."


def _soonest(drawing: Placement, wanted: Action) -> int:
    """The slot by which `wanted` can have ended at the soonest, beside what is drawn."""
    pipeline, there, ends = drawing.pipeline, drawing.grid.there, dict[Action, int]()
    stages = range(pipeline.stages)
    for kinds, order in (("F", stages), ("BI", stages[::-1])):
        for one in (Action(s, kind, wanted.microbatch) for s in order for kind in kinds):
            if one in there or one.kind in pipeline.kinds or one == wanted:
                ends[one] = there.get(one) or _begun(drawing, one, ends) + pipeline.slots(one)
    return ends[wanted]


def _begun(drawing: Placement, one: Action, ends: dict[Action, int]) -> int:
    """The slot at which `one` can start where what it needs ends as in `ends`."""
    pipeline, rank = drawing.pipeline, drawing.pipeline.rank_of(one)
    starts = [0]
    for choice in needs(one, pipeline.stages):
        far = pipeline.stage_rank[choice[0].stage] != rank
        soonest = min(ends[each] for each in choice if each in ends)
        starts.append(soonest + (pipeline.latency if far else 0))
    return max(starts)


def _move_there(drawing: Placement, placed: Placed, need: Action | None = None) -> str:
    others = (one for one in drawing.placed if one != placed)
    slot = Grid(drawing.pipeline, others).earliest(placed.action)
    if slot is None:
        return f"Draw what {placed.action} needs, and move {placed.action} behind that."
    earlier = f", or move {need} to an earlier slot" if need else ""
    return f"Move {placed.action} to slot {slot}{earlier}."


def _at(placed: Placed) -> str:
    action, rank, slot = placed
    return f"{action} (rank {rank}, slot {slot})"
