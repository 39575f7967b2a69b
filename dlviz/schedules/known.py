"""What is known of a drawing: which schedule of the zoo it is, the best of them, a good next move.

A move is judged by the best end it can still come to, as far as is known: it is made, and the rest
is drawn by each schedule of the zoo that goes on from there and by two greedy orders (whoever can
start first does; of those at one slot the backwards, or the forwards, and W last). That is no proof
of the best, and it names a better move than the zoo's wherever a greedy order finds one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dlviz.schedules import NAMES, make
from dlviz.schedules.action import Action
from dlviz.schedules.drawing import NEVER, Drawing, Grid, Pipeline, Placed, Score, laid_out
from dlviz.schedules.rules import EXCLUDES
from dlviz.schedules.schedule import Schedule

ORDERS = {"backward first": "IBFW", "forward first": "FIBW"}


class Known(NamedTuple):
    """A schedule of the zoo on a pipeline."""

    name: str
    schedule: Schedule
    score: Score

    def fits(self, pipeline: Pipeline) -> bool:
        """Whether it keeps the limit of `pipeline` and is made of what is offered there."""
        actions = [one for row in self.schedule.actions for one in row]
        if pipeline.limit is not None and max(self.score.peak) > pipeline.limit:
            return False
        offered = {half.kind for one in actions for half in one.halves} <= {*pipeline.kinds}
        return offered and (pipeline.overlaps or not any(one.parts for one in actions))


class Move(NamedTuple):
    """A next action, and the slot at which all may have ended after it, None where no way of going
    on came to an end; `way` is the schedule of the zoo, or the greedy order, that ends so."""

    placed: Placed
    end: int | None
    way: str


@lru_cache(maxsize=32)
def zoo(pipeline: Pipeline) -> tuple[Known, ...]:
    """The schedules of the zoo whose stages live where those of `pipeline` do, fastest first; of
    equally fast ones that which holds fewest microbatches.

    Those of training where there are backwards, else those without.
    """
    found = []
    for name in NAMES:
        chunks = pipeline.stages // pipeline.ranks
        try:
            schedule = make(name, pipeline.ranks, pipeline.microbatches, chunks)
        except ValueError:
            continue  # it is not defined for this size
        forward_only = all(one.kind == "F" for row in schedule.actions for one in row)
        if schedule.stage_rank == pipeline.stage_rank and forward_only == (
            pipeline.backward == "none"
        ):
            found.append(Known(name, schedule, laid_out(schedule, pipeline).score))
    return tuple(sorted(found, key=lambda one: (one.score.slots, max(one.score.peak))))


def best(pipeline: Pipeline) -> Known | None:
    """The fastest of the zoo that flushes and fits; None where there is none."""
    fitting = (one for one in zoo(pipeline) if one.fits(pipeline) and one.schedule.flushes)
    return next(fitting, None)


def beats(drawing: Drawing) -> bool:
    """Whether `drawing` is whole, legal and faster than the best of the zoo."""
    known = best(drawing.pipeline)
    legal = drawing.complete and not drawing.faults
    return legal and known is not None and drawing.score.slots < known.score.slots


def recognised(drawing: Drawing) -> list[str]:
    """The names of the zoo whose order `drawing` has: the whole of it where the drawing is
    complete, so far where it is not. None where there is a fault or nothing is drawn."""
    if drawing.faults or not drawing.placed:
        return []
    rows = drawing.rows()
    known = zoo(drawing.pipeline)
    return [one.name for one in known if _begins(one.schedule.actions, rows)]


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
    ends += [(_as_known(after, one.schedule.actions), one.name) for one in _going_on(after)]
    end, way = min(ends, key=lambda one: one[0])
    return Move(placed, None if end == NEVER else int(end), way)


def _going_on(drawing: Drawing) -> list[Known]:
    """The schedules of the zoo that fit and begin as `drawing` does."""
    rows, pipeline = drawing.rows(), drawing.pipeline
    fitting = (known for known in zoo(pipeline) if known.fits(pipeline))
    return [known for known in fitting if _begins(known.schedule.actions, rows)]


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


def _begins(rows: list[list[Action]], drawn: list[list[Action]]) -> bool:
    return all(row[: len(so_far)] == so_far for row, so_far in zip(rows, drawn, strict=True))


def _as_known(drawing: Drawing, rows: list[list[Action]]) -> float:
    """The slot at which `drawing`, gone on with by `rows`, ends."""
    grid = Grid(drawing.pipeline, drawing.placed)
    owed = [row[len(busy) :] for row, busy in zip(rows, grid.busy, strict=True)]
    free = [busy[-1][1] if busy else 0 for busy in grid.busy]
    while any(owed):
        for rank, row in enumerate(owed):
            while row and (slot := max(free[rank], grid.ready(row[0]))) != NEVER:
                grid.put(row[0], rank, int(slot))
                free[rank] = int(slot) + drawing.pipeline.slots(row.pop(0))
    return max(free)


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
