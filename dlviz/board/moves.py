"""Good next moves of a drawing.

A move is judged by the best end it can still come to, as far as is known: it is made, and the rest
is drawn by each schedule of the zoo that goes on from there and by two greedy orders (whoever can
start first does; of those at one slot the backwards, or the forwards, and W last). That is no proof
of the best, and it names a better move than the zoo's wherever a greedy order finds one.
"""

from __future__ import annotations

from typing import NamedTuple

from dlviz.board.drawing import Drawing
from dlviz.board.grid import NEVER, Grid, Placed
from dlviz.board.known import Known, zoo
from dlviz.schedules import Action, Schedule
from dlviz.schedules.rules import EXCLUDES
from dlviz.sim.engine import start_times

ORDERS = {"backward first": "IBFW", "forward first": "FIBW"}


class Move(NamedTuple):
    """A next action, and the slot at which all may have ended after it, None where no way of going
    on came to an end; `way` is the schedule of the zoo, or the greedy order, that ends so."""

    placed: Placed
    end: int | None
    way: str


def moves(drawing: Drawing) -> list[Move]:
    """The next actions of the rank that may go on first, and what the zoo does next where it goes
    on from here, the best move in front.

    Empty where there is a fault, or nothing is left to draw.
    """
    leads = [ghost.placed for ghost in drawing.ghosts if ghost.lead]
    if drawing.faults or not leads:
        return []
    rank = min(leads, key=lambda placed: (placed.slot, placed.rank)).rank
    tried = {placed: None for placed in leads if placed.rank == rank}
    tried |= {_next_of(drawing, known.schedule.actions): None for known in _going_on(drawing)}
    found = [_judged(drawing, placed) for placed in tried]
    return sorted(found, key=lambda move: (move.end or NEVER, move.placed.slot))


def _judged(drawing: Drawing, placed: Placed) -> Move:
    after = drawing.place(*placed)
    ends = [(_greedy(after, order), way) for way, order in ORDERS.items()]
    ends += [(_as_known(after, one.schedule), one.name) for one in _going_on(after)]
    end, way = min(ends, key=lambda one: one[0])
    return Move(placed, None if end == NEVER else int(end), way)


def _going_on(drawing: Drawing) -> list[Known]:
    """The schedules of the zoo that fit and begin as `drawing` does."""
    rows, pipeline = drawing.rows(), drawing.pipeline
    candidates = (known for known in zoo(pipeline) if known.fits(pipeline))
    return [known for known in candidates if known.begins(rows)]


def _next_of(drawing: Drawing, rows: list[list[Action]]) -> Placed:
    """What comes first of `rows` that is not drawn, behind what is drawn of its rank."""
    grid = drawing.grid
    nexts = [
        (max(grid.ready(row[len(busy)]), busy[-1][1] if busy else 0), rank, row[len(busy)])
        for rank, (row, busy) in enumerate(zip(rows, grid.busy, strict=True))
        if len(busy) < len(row)
    ]
    slot, rank, action = min(nexts)
    return Placed(action, rank, int(slot))


def _as_known(drawing: Drawing, schedule: Schedule) -> float:
    """The slot at which `drawing`, gone on with by the rows of `schedule`, ends."""
    pipeline = drawing.pipeline
    begun = [[start for start, _ in row] for row in drawing.grid.busy]
    starts = start_times(schedule, pipeline.in_slots, begun)
    ends = zip(starts, schedule.actions, strict=True)
    return max(times[-1] + pipeline.slots(row[-1]) for times, row in ends)


def _greedy(drawing: Drawing, order: str) -> float:
    """The slot at which `drawing` ends if whoever can start first does, of those at one slot the
    kind that `order` names first; NEVER where nothing can start and something is left."""
    pipeline, grid = drawing.pipeline, Grid(drawing.pipeline, drawing.placed)
    left = {*drawing.left()}
    follows: dict[Action, list[Action]] = {}
    for action in left:
        for choice, _ in grid.arrivals(action):
            for one in choice:
                follows.setdefault(one, []).append(action)

    able: list[set[Action]] = [set() for _ in range(pipeline.ranks)]
    for action in left:
        if grid.ready(action) != NEVER:
            able[pipeline.rank_of(action)].add(action)
    nothing = (NEVER, 0, 0, None)

    def first(rank: int) -> tuple[float, int, int, Action | None]:
        found = [
            (slot, order.index(one.kind), one.microbatch, one)
            for one in able[rank]
            if (slot := grid.earliest(one)) is not None
        ]
        return min(found, default=nothing)

    nexts = [first(rank) for rank in range(pipeline.ranks)]
    while left:
        rank = min(range(pipeline.ranks), key=nexts.__getitem__)
        slot, _, _, action = nexts[rank]
        if action is None:
            return NEVER
        grid.put(action, rank, int(slot))
        done = {action._replace(kind=kind) for kind in EXCLUDES[action.kind]}
        left -= done
        able[rank] -= done
        changed = {rank}
        for one in follows.get(action, []):
            if one in left and grid.ready(one) != NEVER:
                able[pipeline.rank_of(one)].add(one)
                changed.add(pipeline.rank_of(one))
        for other in changed:
            nexts[other] = first(other)
    return max(end for row in grid.busy for _, end in row)
