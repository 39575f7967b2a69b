"""A schedule: for each rank, the actions that it runs, in order; and the rank of each stage.

    rank 0   0F0 0F1 0B0 0B1        stage_rank = (0, 1)
    rank 1   1F0 1B0 1F1 1B1

It gives the order, not the times: a rank waits until its next action has what it needs. The rules
are in dlviz/schedules/rules.py, the times come from dlviz.simulate or from a run.
"""

from __future__ import annotations

import csv
import io
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from dlviz.schedules import rules
from dlviz.schedules.action import Action, parse


@dataclass(frozen=True, repr=False)
class Schedule:
    """`actions[rank]` is the row of a rank, `stage_rank[stage]` the rank of a stage.

    An action may be given as text, "0F0". Schedules are equal whatever their names. Raises
    ScheduleError for rows that do not hold actions, and for stages without the number of a rank.

    With `flushes` all microbatches of a step see the same weights and the update comes after the
    last of them; without it each backward is followed by an update.
    """

    actions: list[list[Action]]
    stage_rank: tuple[int, ...]
    name: str = field(default="", compare=False)
    flushes: bool = True

    def __post_init__(self) -> None:
        rows = self.actions
        if {*map(type, rows)} - {list} or {*map(type, chain.from_iterable(rows))} - {Action}:
            object.__setattr__(self, "actions", _actions(rows))
        try:
            object.__setattr__(self, "stage_rank", tuple(map(operator.index, self.stage_rank)))
        except TypeError:
            raise rules.ScheduleError(
                f"stage_rank={self.stage_rank!r} has to be the rank of each stage, as in (0, 1)."
            ) from None

    @property
    def ranks(self) -> int:
        return len(self.actions)

    @property
    def microbatches(self) -> int:
        """The number of microbatches: one more than the highest number in an action."""
        halves = (half for row in self.actions for action in row for half in action.halves)
        return max((half.microbatch + 1 for half in halves), default=0)

    @property
    def chunks(self) -> int:
        """The most stages that a rank holds."""
        return max(map(self.stage_rank.count, range(self.ranks)), default=0)

    def check(self) -> None:
        """Raises ScheduleError, a ValueError, that explains the first broken rule."""
        rules.check(self)

    def to_csv(self) -> str:
        """One line for each rank, a cell for each action: the compute-only CSV that
        torch.distributed.pipelining reads."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.actions)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, name: str = "", flushes: bool = True) -> Schedule:
        """The schedule of a compute-only CSV, ours or torch's; empty cells (idle) are left out.
        Rows may also stand on one line, "0F0 0B0 / 1F0 1B0". A CSV does not say whether the
        schedule `flushes`.

        A stage is on the rank that runs it. Raises ScheduleError for an invalid action, a missing
        row, a duplicate action and a stage on two ranks; `check` says whether the order is legal.
        """
        actions = _actions(rows_of(text))
        schedule = cls(actions, _placement(actions), name, flushes)
        rules.check_actions(schedule)
        return schedule

    def __repr__(self) -> str:
        name = f"{self.name!r}, " * bool(self.name) + "flushes=False, " * (not self.flushes)
        sizes = f"ranks={self.ranks}, microbatches={self.microbatches}, chunks={self.chunks}"
        return f"Schedule({name}{sizes})"

    def __str__(self) -> str:
        """The rows, one a line."""
        return "\n".join(
            f"rank {rank}: {' '.join(map(str, row))}" for rank, row in enumerate(self.actions)
        )


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of a CSV, or of its rows on one line with "/" between them."""
    text = text.removeprefix("\ufeff").rstrip()  # Excel's "CSV UTF-8" begins with a mark
    lines = text.split("/") if "/" in text else text.splitlines()
    return [line.replace(",", " ").split() for line in lines]


def _actions(rows: Iterable[Any]) -> list[list[Action]]:
    """Rows of actions, any of which may be text."""
    actions = []
    for rank, cells in enumerate(rows):
        try:
            if not isinstance(cells, list | tuple) or isinstance(cells, Action):
                raise ValueError(f"{cells!r} is not a row: a row is a list of actions.")
            actions.append([cell if isinstance(cell, Action) else parse(cell) for cell in cells])
        except ValueError as error:
            raise rules.ScheduleError(f"row {rank + 1} (rank {rank}): {error}", rank) from None
    return actions


def _placement(actions: list[list[Action]]) -> tuple[int, ...]:
    """The rank of each stage: the one whose row runs it."""
    rank_of: dict[int, int] = {}
    for rank, row in enumerate(actions):
        if not row:
            raise rules.ScheduleError(f"row {rank + 1} (rank {rank}) has no actions.", rank)
        for action in row:
            for half in action.halves:
                first = rank_of.setdefault(half.stage, rank)
                if first != rank:
                    raise rules.ScheduleError(
                        f"row {rank + 1} (rank {rank}) runs {half}, yet row {first + 1} (rank "
                        f"{first}) runs stage {half.stage} as well: a stage is on one rank.",
                        rank,
                    )
    stages = range(max(rank_of, default=-1) + 1)
    missing = next((stage for stage in stages if stage not in rank_of), None)
    if missing is not None or not actions:
        raise rules.ScheduleError(f"no row runs stage {missing or 0}: a rank's row is missing.")
    return tuple(rank_of[stage] for stage in stages)
