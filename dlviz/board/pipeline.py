"""The pipeline of a drawing: the rank of each stage, what an action costs, which kinds are offered.

A slot is the longest time that divides every cost, so an action lasts whole slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from dlviz.board.sentences import SENTENCES
from dlviz.schedules import Action, Schedule, overlap
from dlviz.schedules.action import KIND_NAMES, KINDS
from dlviz.schedules.rules import is_overlap
from dlviz.sim import Costs

BACKWARDS = {"whole": "FB", "split": "FIW", "either": "FBIW", "none": "F"}
LONGEST = 60  # slots of an action
LARGEST = 1024  # stage passes


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a drawing.

    `stage_rank[stage]`: the rank of a stage; `backward`: what is offered for each forward, "whole"
    (B), "split" (I and W), "either" or "none"; `overlaps`: whether two may be drawn as one overlap;
    `limit`: how many microbatches (of a stage) a rank may hold, None: no limit. Raises ValueError
    for a size, a word or costs that cannot be drawn.
    """

    stage_rank: tuple[int, ...]
    microbatches: int
    costs: Costs
    backward: str = "whole"
    limit: int | None = None
    overlaps: bool = False

    def __post_init__(self) -> None:
        for name, value in self._counts().items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(SENTENCES["count"].format(name=name, value=repr(value)))
        if self.backward not in BACKWARDS:
            known = ", ".join(BACKWARDS)
            raise ValueError(SENTENCES["backward"].format(value=repr(self.backward), known=known))
        if not self.stage_rank or {*self.stage_rank} != {*range(self.ranks)}:
            raise ValueError(
                f"stage_rank={self.stage_rank}: each of the ranks 0 to {self.ranks - 1} has to "
                "have a stage."
            )
        if self.stages * self.microbatches > LARGEST:
            raise ValueError(
                f"{self.stages} stages and microbatches={self.microbatches} are too many to draw: "
                f"their product may be {LARGEST} at most."
            )
        _ = self.slot

    def _counts(self) -> dict[str, int]:
        counts = {"microbatches": self.microbatches}
        return counts if self.limit is None else {**counts, "limit": self.limit}

    @property
    def ranks(self) -> int:
        return max(self.stage_rank, default=0) + 1

    @property
    def stages(self) -> int:
        return len(self.stage_rank)

    @property
    def chunks(self) -> int:
        """The most stages that a rank holds."""
        return max(map(self.stage_rank.count, range(self.ranks)))

    @property
    def held(self) -> str:
        """What a rank holds, in words: each chunk counts."""
        return "microbatches" if self.stages == self.ranks else "chunks"

    @property
    def kinds(self) -> str:
        """The kinds of action that are offered."""
        return BACKWARDS[self.backward]

    @cached_property
    def slot(self) -> Fraction:
        """The seconds of a slot."""
        each = [Action(stage, kind, 0) for stage in range(self.stages) for kind in self._possible]
        if self.backward != "none":
            each += map(_overlap_in, range(self.stages))
        times = {action: _fraction(self.costs.seconds(action)) for action in each}
        for action, seconds in times.items():
            if not seconds:
                raise ValueError(
                    f"{action} takes no time and cannot be drawn: give it a cost above 0."
                )
        latency = _fraction(self.costs.latency)
        parts = math.lcm(*(time.denominator for time in (latency, *times.values())))
        slot = Fraction(
            math.gcd(*(int(time * parts) for time in (latency, *times.values()))), parts
        )
        longest = int(max(latency, *times.values()) / slot)
        if longest > LONGEST:
            raise ValueError(
                f"these costs are multiples of {float(slot):g} s only, so one action would take "
                f"{longest} slots; at most {LONGEST} can be drawn: use rounder costs."
            )
        return slot

    @cached_property
    def latency(self) -> int:
        """The slots that a message takes."""
        return int(_fraction(self.costs.latency) / self.slot)

    def slots(self, action: Action) -> int:
        """How many slots `action` lasts."""
        if action.parts:
            return int(self.in_slots.seconds(action))
        return self._slots[action.stage, action.kind]

    @cached_property
    def in_slots(self) -> Costs:
        """The costs in slots, all of them whole."""
        stages = range(self.stages)
        times = {
            KIND_NAMES[kind]: tuple(self._slots[stage, kind] for stage in stages)
            for kind in self._possible
        }
        overlapped = None
        if self.costs.overlapped is not None and self.backward != "none":
            overlapped = tuple(self._in_slots(both) for both in map(_overlap_in, stages))
        return Costs(**times, latency=self.latency, overlapped=overlapped)

    @cached_property
    def _slots(self) -> dict[tuple[int, str], int]:
        return {
            (stage, kind): self._in_slots(Action(stage, kind, 0))
            for stage in range(self.stages)
            for kind in self._possible
        }

    def _in_slots(self, action: Action) -> int:
        return int(_fraction(self.costs.seconds(action)) / self.slot)

    @property
    def _possible(self) -> Iterable[str]:
        return "F" if self.backward == "none" else KINDS

    @cached_property
    def horizon(self) -> int:
        """The slot by which all would be done, one action or message at a time."""
        once = sum(self._slots.values()) + 2 * self.stages * self.latency
        return once * self.microbatches

    def check(self, action: Action, rank: int, slot: int) -> None:
        """Raises ValueError for an action, a rank or a slot that this pipeline does not have."""
        if action.parts and not is_overlap(action):
            raise ValueError(SENTENCES["overlap"].format(action=action))
        for half in action.halves:
            wrong = [
                (half.stage in range(self.stages), "stage", self.stages),
                (half.microbatch in range(self.microbatches), "microbatch", self.microbatches),
                (self.backward != "none" or half.kind == "F", "forwards", 0),
            ]
            for right, law, count in wrong:
                if not right:
                    raise ValueError(SENTENCES[law].format(action=half, last=count - 1))
        if rank not in range(self.ranks):
            raise ValueError(SENTENCES["rank"].format(rank=rank, last=self.ranks - 1))
        if slot not in range(self.horizon):
            raise ValueError(SENTENCES["slot"].format(slot=slot, last=self.horizon - 1))

    def offering(self, schedule: Schedule) -> Pipeline:
        """The pipeline that offers all kinds in `schedule`."""
        backward, overlaps = made_of(schedule)
        if {*BACKWARDS[backward]} <= {*self.kinds}:
            backward = self.backward
        return replace(self, backward=backward, overlaps=self.overlaps or overlaps)


def made_of(schedule: Schedule) -> tuple[str, bool]:
    """The `backward` and the `overlaps` of a pipeline for `schedule`."""
    actions = [action for row in schedule.actions for action in row]
    kinds = {half.kind for action in actions for half in action.halves}
    names = [name for name, offered in BACKWARDS.items() if kinds <= {*offered}]
    return min(names, key=lambda name: len(BACKWARDS[name])), any(one.parts for one in actions)


def _overlap_in(stage: int) -> Action:
    return overlap(Action(stage, "F", 0), Action(stage, "B", 1))


def _fraction(seconds: float) -> Fraction:
    return Fraction(seconds).limit_denominator(10**6)
