"""A schedule drawn by hand: actions on a grid of ranks and slots of time, and what is said of them.

    slot     0   1   2   3   4   5
    rank 0  |0F0|0F1|...|...|0B0----|     0B0 may start at slot 4, where 1B0 has ended;
    rank 1      |1F0|1B0----|               until then rank 0 waits, or chose not to run 0F2

An action starts where it was put. One that breaks a rule is kept and its fault named; it settles
once that is mended. Which actions another one needs says `dlviz.schedules.needs`; when the actions
of a given order start, the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from dlviz.board.faults import Fault, faults_of
from dlviz.board.ghosts import Ghost, ghosts_of
from dlviz.board.grid import Placed
from dlviz.board.idle import IdleSlots, idle_of
from dlviz.board.pipeline import Pipeline, made_of
from dlviz.board.placement import Placement
from dlviz.board.score import Score, score_of
from dlviz.schedules import Action, Schedule, ScheduleError
from dlviz.schedules.action import KINDS
from dlviz.schedules.rules import is_overlap
from dlviz.sim import Costs
from dlviz.sim.engine import start_times


@dataclass(frozen=True)
class Drawing(Placement):
    """A schedule, drawn in part or whole: what was put where, in that order."""

    def place(self, action: Action, rank: int, slot: int) -> Drawing:
        """With `action` at `slot` of `rank`, legal or not. Raises ValueError for what the pipeline
        does not have, and for what is there already."""
        new = Placed(action, rank, slot)
        self._check_inside(new)
        if new in self.placed:
            raise ValueError(
                f"{action} is already at slot {slot} of rank {rank}: choose another slot."
            )
        return replace(self, placed=(*self.placed, new))

    def add(self, action: Action) -> Drawing:
        """With `action` on its own rank, at its first legal slot; where it has none yet, behind
        what is drawn of that rank. Raises ValueError as `place` does."""
        self._check_inside(Placed(action, 0, 0))
        rank, slot = self.pipeline.rank_of(action), self.grid.earliest(action)
        if slot is None:
            slot = max((end for _, end in self.grid.busy[rank]), default=0)
        return self.place(action, rank, slot)

    def remove(self, placed: Placed) -> Drawing:
        """Without what was `placed`. Raises ValueError where it is not there."""
        if placed not in self.placed:
            action, rank, slot = placed
            raise ValueError(
                f"{action} is not at slot {slot} of rank {rank}, so it cannot be removed."
            )
        return replace(self, placed=tuple(one for one in self.placed if one != placed))

    def move(self, placed: Placed, rank: int, slot: int) -> Drawing:
        """With what was `placed` on another rank or at another slot."""
        return self.remove(placed).place(placed.action, rank, slot)

    def cleared(self) -> Drawing:
        return replace(self, placed=())

    def tightened(self) -> Drawing:
        """The same order at the earliest times. Raises ScheduleError where there is a fault."""
        return laid_out(self.schedule(), self.pipeline)

    def schedule(self) -> Schedule:
        """The drawing as a Schedule, which may be a part of one.

        Raises ScheduleError where a fault is drawn.
        """
        if self.faults:
            (action, rank, slot), _, words, mend = self.faults[0]
            row = [placed for placed in self.placed if placed.rank == rank]
            index = sum(placed.slot < slot for placed in row)
            raise ScheduleError(f"{words} {mend}", rank, index)
        return Schedule(self.rows(), self.pipeline.stage_rank, "drawn")

    def to_csv(self) -> str:
        """The rows as torch.distributed.pipelining's compute-only CSV: the order, no slots."""
        return Schedule(self.rows(), self.pipeline.stage_rank).to_csv()

    @cached_property
    def faults(self) -> list[Fault]:
        """The rules that are broken; of two actions in each other's way the one put last."""
        return faults_of(self)

    @cached_property
    def ghosts(self) -> list[Ghost]:
        """All that may come next, at the earliest slot at which it is legal."""
        return ghosts_of(self)

    @cached_property
    def idle(self) -> list[IdleSlots]:
        """All idle time from the first start to the last end, by its cause."""
        return idle_of(self)

    @cached_property
    def score(self) -> Score:
        """What the drawing, as far as it goes, comes to; only a legal one comes to anything."""
        return score_of(self)

    def _check_inside(self, placed: Placed) -> None:
        pipeline, (action, rank, slot) = self.pipeline, placed
        if action.parts and not is_overlap(action):
            raise ValueError(f"{action} is no overlap: an overlap is one forward and one backward.")
        for half in action.halves:
            if half.stage not in range(pipeline.stages):
                law = f"the stages are 0 to {pipeline.stages - 1}"
            elif half.microbatch not in range(pipeline.microbatches):
                law = f"the microbatches are 0 to {pipeline.microbatches - 1}"
            elif half.kind not in KINDS or (pipeline.backward == "none" and half.kind != "F"):
                law = "this pipeline runs forwards only" if half.kind in KINDS else "no such kind"
            else:
                continue
            raise ValueError(f"{half} cannot be drawn: {law}.")
        if rank not in range(pipeline.ranks):
            raise ValueError(
                f"rank {rank} does not exist: the ranks are 0 to {pipeline.ranks - 1}."
            )
        if slot not in range(pipeline.horizon):
            raise ValueError(
                f"slot {slot} is off the grid: the slots are 0 to {pipeline.horizon - 1}."
            )


def drawn(schedule: Schedule, costs: Costs, limit: int | None = None) -> Drawing:
    """`schedule` drawn at its earliest times. Raises ScheduleError where it cannot go on, and
    ValueError for costs that cannot be drawn."""
    backward, overlaps = made_of(schedule)
    pipeline = Pipeline(
        schedule.stage_rank, schedule.microbatches, costs, backward, limit, overlaps
    )
    return laid_out(schedule, pipeline)


def laid_out(schedule: Schedule, pipeline: Pipeline) -> Drawing:
    """The rows of `schedule` on `pipeline`, each action as early as it can be, as simulated.

    Raises ScheduleError where the schedule cannot go on.
    """
    if not any(schedule.actions):
        return Drawing(pipeline)
    starts = start_times(schedule, pipeline.in_slots)
    found = [
        Placed(action, rank, int(slot))
        for rank, row in enumerate(schedule.actions)
        for action, slot in zip(row, starts[rank], strict=True)
    ]
    found.sort(key=lambda placed: (placed.slot, placed.rank))
    return Drawing(pipeline, tuple(found))
