"""What was put where on the grid, legal or not, and what of the pipeline is not drawn yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dlviz.board.grid import Grid, Placed
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import Action
from dlviz.schedules.action import KINDS


@dataclass(frozen=True)
class Placement:
    """The actions that were put on the ranks of `pipeline`, in the order in which they were put."""

    pipeline: Pipeline
    placed: tuple[Placed, ...] = ()

    @cached_property
    def complete(self) -> bool:
        """Whether all there is to run is drawn, faults or not."""
        return not any(True for _ in self.left())

    @cached_property
    def end(self) -> int:
        """The slot at which the last action has ended."""
        return max((self.ends(one) for one in self.placed), default=0)

    def ends(self, placed: Placed) -> int:
        return placed.slot + self.pipeline.slots(placed.action)

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.pipeline, self.placed)

    @cached_property
    def where(self) -> dict[Action, Placed]:
        """Where each action was put first, the halves of an overlap each for itself."""
        found: dict[Action, Placed] = {}
        for placed in self.placed:
            for half in placed.action.halves:
                found.setdefault(half, placed)
        return found

    def left(self) -> Iterator[Action]:
        """The actions that are not drawn; where a B or an I and W may be, both ways are named."""
        for stage in range(self.pipeline.stages):
            for microbatch in range(self.pipeline.microbatches):
                each = {kind: Action(stage, kind, microbatch) for kind in KINDS}
                have = {kind for kind, action in each.items() if action in self.where}
                kinds = self.pipeline.kinds
                if "B" in have:
                    kinds = "F"
                elif have & {"I", "W"}:
                    kinds = "FIW"
                yield from (each[kind] for kind in kinds if kind not in have)

    def rows(self) -> list[list[Action]]:
        """The actions of each rank in the order of their slots."""
        rows: list[list[Action]] = [[] for _ in range(self.pipeline.ranks)]
        for action, rank, _ in sorted(self.placed, key=lambda one: one.slot):
            rows[rank].append(action)
        return rows

    def holding(self, rank: int) -> list[tuple[Placed, int]]:
        """Each forward of a rank, and how many microbatches the rank holds once it starts."""
        forwards = sorted(
            (
                placed
                for placed in self.placed
                for half in placed.action.halves
                if placed.rank == rank and half.kind == "F"
            ),
            key=lambda placed: placed.slot,
        )
        return [
            (placed, number - self.grid.freed(rank, placed.slot))
            for number, placed in enumerate(forwards, 1)
        ]

    def meant(self, choice: tuple[Action, ...]) -> Action:
        """Of the actions any of which would do, the drawn one or, without one, the one offered."""
        drawn = [one for one in choice if one in self.where]
        return [*drawn, *(one for one in choice if one.kind in self.pipeline.kinds), *choice][0]
