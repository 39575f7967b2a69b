"""A schedule drawn by hand: actions on a grid of ranks and slots of time.

    slot     0   1   2   3   4   5
    rank 0  |0F0|0F1|...|...|0B0----|     0B0 may start at slot 4, where 1B0 has ended;
    rank 1      |1F0|1B0----|               until then rank 0 waits, or chose not to run 0F2

An action starts where it was put, even if it breaks a rule there. The page
(dlviz/widgets/static/board) handles gestures, names broken rules and suggests fixes; this module
decides what may be played: a drawing that breaks no rule. `dlviz.schedules.needs` says which
actions another one needs; the simulator, when the actions of a given order start.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dlviz.board.pipeline import Pipeline, made_of
from dlviz.board.sentences import SENTENCES
from dlviz.schedules import Action, Schedule, ScheduleError, needs
from dlviz.schedules.rules import check_actions, check_progress
from dlviz.sim import Costs
from dlviz.sim.engine import start_times


class Placed(NamedTuple):
    """An action that starts on `rank` at `slot`."""

    action: Action
    rank: int
    slot: int


@dataclass(frozen=True)
class Drawing:
    """A schedule, drawn in part or whole: the placed actions in the order of placing, legal or not.

    `fault`: the page's words for the first broken rule.
    """

    pipeline: Pipeline
    placed: tuple[Placed, ...] = ()
    fault: str = field(default="", compare=False)

    def check(self) -> None:
        """Raises ValueError for what the pipeline does not have, and for duplicates."""
        seen: set[Placed] = set()
        for one in self.placed:
            self.pipeline.check(*one)
            if one in seen:
                raise ValueError(SENTENCES["there"].format(**one._asdict()))
            seen.add(one)

    def ends(self, placed: Placed) -> int:
        return placed.slot + self.pipeline.slots(placed.action)

    @cached_property
    def end(self) -> int:
        """The slot at which the last action has ended."""
        return max(map(self.ends, self.placed), default=0)

    @cached_property
    def complete(self) -> bool:
        """Whether every stage's every microbatch is drawn, legal or not."""
        pipeline = self.pipeline
        there = {half for one in self.placed for half in one.action.halves}
        each = ["F"] if pipeline.backward == "none" else ["FB", "FIW"]
        return all(
            any(all(Action(stage, kind, number) in there for kind in kinds) for kinds in each)
            for stage in range(pipeline.stages)
            for number in range(pipeline.microbatches)
        )

    @cached_property
    def legal(self) -> bool:
        """Whether no rule is broken."""
        try:
            self.schedule()
        except ScheduleError:
            return False
        return True

    @cached_property
    def slots(self) -> int:
        """The slots from the first start to the last end."""
        return self.end - min((one.slot for one in self.placed), default=0)

    @cached_property
    def idle(self) -> int:
        """The most idle slots of a rank between its first action and its last."""
        rows = [row for row in self._by_rank() if row]
        return max((self._idle(row) for row in rows), default=0)

    def rows(self) -> list[list[Action]]:
        """The actions of each rank in the order of their slots."""
        return [[one.action for one in row] for row in self._by_rank()]

    def schedule(self) -> Schedule:
        """The drawing as a Schedule, possibly a partial one.

        Raises ScheduleError where a rule is broken, in the page's words if the page drew it.
        """
        made = Schedule(self.rows(), self.pipeline.stage_rank, "drawn")
        try:
            check_actions(made)
            check_progress(made)
            for row in self._by_rank():
                self._check_starts(row)
                self._check_memory(row)
        except ScheduleError as error:
            if self.fault:
                raise ScheduleError(self.fault, error.rank, error.index) from None
            raise
        return made

    def to_csv(self) -> str:
        """The rows as torch.distributed.pipelining's compute-only CSV: the order, no slots."""
        return Schedule(self.rows(), self.pipeline.stage_rank).to_csv()

    def _by_rank(self) -> list[list[Placed]]:
        rows: list[list[Placed]] = [[] for _ in range(self.pipeline.ranks)]
        for one in sorted(self.placed, key=lambda one: one.slot):
            rows[one.rank].append(one)
        return rows

    def _idle(self, row: list[Placed]) -> int:
        busy = sum(self.pipeline.slots(one.action) for one in row)
        return self.ends(row[-1]) - row[0].slot - busy

    @cached_property
    def _there(self) -> dict[Action, int]:
        """The slot at which each action has ended, each half of an overlap on its own."""
        return {half: self.ends(one) for one in self.placed for half in one.action.halves}

    def _check_starts(self, row: list[Placed]) -> None:
        """Each action of a rank starts once the previous one has ended and its needs are there."""
        pipeline, there, free = self.pipeline, self._there, 0
        for index, one in enumerate(row):
            needed = [
                need
                for half in one.action.halves
                for choice in needs(half, pipeline.stages)
                for need in choice
                if need in there
            ]
            far = [pipeline.stage_rank[need.stage] != one.rank for need in needed]
            arrivals = (
                there[need] + pipeline.latency * away
                for need, away in zip(needed, far, strict=True)
            )
            ready = max(free, *arrivals, 0)
            if one.slot < ready:
                raise ScheduleError(
                    f"{one.action} is at slot {one.slot} of rank {one.rank}, and cannot start "
                    f"before slot {ready}.",
                    one.rank,
                    index,
                )
            free = self.ends(one)

    def _check_memory(self, row: list[Placed]) -> None:
        """A rank holds a microbatch from its forward until its last backward has ended."""
        limit, kinds = self.pipeline.limit, self.pipeline.kinds
        releases = "F" if self.pipeline.backward == "none" else "BW"
        halves = [(half.kind, one) for one in row for half in one.action.halves]
        freed = sorted(self.ends(one) for kind, one in halves if kind in releases)
        forwards = [one for kind, one in halves if kind == "F"]
        for number, one in enumerate(forwards, 1):
            held = number - bisect_right(freed, one.slot)
            if limit is not None and held > limit:
                more = {"held": held, "what": self.pipeline.held, "limit": limit}
                release = {"kind": "B" if "B" in kinds else "W", "rank": one.rank}
                words = SENTENCES["memory"].format(**one._asdict(), **more)
                mend = SENTENCES["release"].format(action=one.action, **release)
                raise ScheduleError(f"{words} {mend}", one.rank, row.index(one))


def drawn(schedule: Schedule, costs: Costs, limit: int | None = None) -> Drawing:
    """`schedule` drawn at its earliest times. Raises ScheduleError where it deadlocks, and
    ValueError for costs that cannot be drawn."""
    backward, overlaps = made_of(schedule)
    pipeline = Pipeline(
        schedule.stage_rank, schedule.microbatches, costs, backward, limit, overlaps
    )
    return laid_out(schedule, pipeline)


def laid_out(schedule: Schedule, pipeline: Pipeline) -> Drawing:
    """The rows of `schedule` on `pipeline`, each action as early as possible, as simulated.

    Raises ScheduleError where the schedule deadlocks.
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
