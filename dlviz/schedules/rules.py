"""The rules of a legal schedule, and an error that explains a broken one.

    0F1 -----> 1F1 -----> 2F1      a forward needs the activations of the previous stage
     |          |          |
     v          v          v       a backward needs its own forward, and
    0B1 <----- 1B1 <----- 2B1      the gradient that the next stage sends

A backward B may be split into I, which the previous stage waits for, and W, which needs only its I.
Every stage is on one rank and runs each microbatch once: F, then B or I and W; only F where no
stage has a backward. A rank runs its actions in the order of its row and waits where it must.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dlviz.counts import check_counts
from dlviz.schedules.action import KINDS, Action
from dlviz.schedules.progress import Work, run

# The offset of the stage whose result an action receives: the previous one, the next one, none.
RECEIVES_FROM = {"F": -1, "B": +1, "I": +1, "W": 0}
# Kinds that exclude each other for a stage and microbatch.
EXCLUDES = {"F": "F", "B": "BIW", "I": "IB", "W": "WB"}
_COMPLETE = ({"F", "B"}, {"F", "I", "W"})
_SHOWN = 8  # actions of a row in a message


class Rows(Protocol):
    """A schedule as the rules see it: what each rank runs, and the rank of each stage."""

    @property
    def actions(self) -> Sequence[Sequence[Action]]: ...

    @property
    def stage_rank(self) -> Sequence[int]: ...


class ScheduleError(ValueError):
    """A schedule that is illegal or deadlocks.

    `rank` and `index` say where (the row and the place in it, None where there is no single place),
    `needs` which actions have to run before that one.
    """

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        index: int | None = None,
        needs: Sequence[Action] = (),
    ):
        super().__init__(message)
        self.rank = rank
        self.index = index
        self.needs = list(needs)


def needs(action: Action, stages: int) -> list[tuple[Action, ...]]:
    """What has to run before `action`, F, B, I or W, in a pipeline of `stages` stages.

    Each entry is one need, as the actions any of which satisfies it: 2B0 needs
    [(2F0,), (3B0, 3I0)].
    """
    check_counts(stages=stages)
    stage, kind, microbatch, _ = action
    if kind == "W":
        return [(Action(stage, "I", microbatch),)]
    neighbour = stage + RECEIVES_FROM[kind]
    received = "F" if kind == "F" else "BI"
    found: list[tuple[Action, ...]] = []
    if kind != "F":
        found.append((Action(stage, "F", microbatch),))
    if 0 <= neighbour < stages:
        found.append(tuple(Action(neighbour, one, microbatch) for one in received))
    return found


def is_overlap(action: Action) -> bool:
    """Whether `action` is one forward and one backward at the same time."""
    return "".join(half.kind for half in action.parts) in ("FB", "BF", "FI", "IF")


def check(schedule: Rows) -> None:
    """Raises ScheduleError for the first rule that `schedule` breaks: each action is valid, on the
    rank of its stage, and unique; each stage runs every microbatch; no rank deadlocks."""
    check_actions(schedule)
    _check_complete(schedule)
    check_progress(schedule)


def check_actions(schedule: Rows) -> None:
    """Raises ScheduleError unless each action is valid, on the rank of its stage, and unique."""
    _check_places(schedule)
    _check_each_once(schedule)


def check_progress(schedule: Rows) -> None:
    """Raises ScheduleError, which says what is missing, unless every rank finishes its row."""
    reached = _reached(schedule)
    for rank, row in enumerate(schedule.actions):
        if reached[rank] < len(row):
            raise _stuck(schedule, rank, reached)


def _check_places(schedule: Rows) -> None:
    ranks, stage_rank = len(schedule.actions), schedule.stage_rank
    for stage, rank in enumerate(stage_rank):
        if rank not in range(ranks):
            raise ScheduleError(f"stage {stage} is on rank {rank}: the ranks are 0 to {ranks - 1}.")
    for rank, index, action in _everything(schedule):
        if action.parts and not is_overlap(action):
            law = "an overlap is one forward and one backward, B or I"
            raise _broken(schedule, rank, index, f"rank {rank} cannot run {action}: {law}")
        for half in action.halves:
            if half.kind not in KINDS:
                law = f"{half.kind!r} is not one of the kinds F, B, I and W"
            elif half.stage not in range(len(stage_rank)):
                law = f"the stages are 0 to {len(stage_rank) - 1}"
            elif half.microbatch < 0:
                law = "microbatches are counted from 0"
            elif stage_rank[half.stage] != rank:
                law = f"stage {half.stage} is on rank {stage_rank[half.stage]}"
            else:
                continue
            raise _broken(schedule, rank, index, f"rank {rank} cannot run {half}: {law}")


def _check_each_once(schedule: Rows) -> None:
    seen: dict[tuple[int, str, int], int] = {}
    for rank, index, action in _everything(schedule):
        for half in action.halves:
            stage, kind, microbatch, _ = half
            for other in EXCLUDES[kind]:
                first = seen.get((stage, other, microbatch))
                if first is None:
                    continue
                if other == kind:
                    both = f"{_ordinal(first)} and {_ordinal(index)}"
                    law = f"rank {rank} runs {half} twice, as its {both} action"
                else:
                    before = Action(stage, other, microbatch)
                    law = f"rank {rank} runs both {before} and {half}: a B is its I and its W"
                raise _broken(schedule, rank, index, law)
            seen[stage, kind, microbatch] = index


def _check_complete(schedule: Rows) -> None:
    kinds: list[dict[int, set[str]]] = [{} for _ in schedule.stage_rank]
    for _, _, action in _everything(schedule):
        for half in action.halves:
            kinds[half.stage].setdefault(half.microbatch, set()).add(half.kind)
    microbatches = max((max(found) + 1 for found in kinds if found), default=0)
    if not microbatches:
        raise ScheduleError("the schedule has no actions: give each stage a forward to run.")
    backward = any(found != {"F"} for stage in kinds for found in stage.values())
    for stage, found in enumerate(kinds):
        rank = schedule.stage_rank[stage]
        if len(found) < microbatches:
            lacks = f"{stage}F{next(i for i in range(microbatches) if i not in found)}"
            law = f"every stage runs each of the {microbatches} microbatches"
            raise _broken(schedule, rank, None, f"rank {rank} never runs {lacks}: {law}")
        for microbatch, have in sorted(found.items()):
            if have not in (_COMPLETE if backward else ({"F"},)):
                wanted = {"F", "I", "W"} if have & {"I", "W"} else {"F", "B"}
                lacks = " and ".join(f"{stage}{kind}{microbatch}" for kind in sorted(wanted - have))
                law = "each F has its B, or its I and W"
                raise _broken(schedule, rank, None, f"rank {rank} never runs {lacks}: {law}")


def _reached(schedule: Rows) -> list[int]:
    """How many actions of its row each rank has run when no rank can go on."""
    things: dict[Action, int] = {}
    for _, _, action in _everything(schedule):
        for half in action.halves:
            things.setdefault(half, len(things))
    always, never = len(things), len(things) + 1

    index_of, needed, makes, joined, ends = [], [], [], [], []  # a row for each need
    for row in schedule.actions:
        for index, action in enumerate(row):
            for half in action.halves:
                wanted = [
                    next((things[one] for one in choice if one in things), never)
                    for choice in needs(half, len(schedule.stage_rank))
                ] or [always]
                index_of += [index] * len(wanted)
                needed += wanted
                makes += [things[half]] * len(wanted)
                joined += [True] * len(wanted)
            joined[-1] = False
        ends.append(len(needed))
    zero = [0.0] * len(needed)
    _, stops = run(Work(ends, needed, makes, joined, zero, zero, len(things)))
    return [
        len(row) if stop == end else index_of[stop]
        for row, stop, end in zip(schedule.actions, stops, ends, strict=True)
    ]


def _missing(action: Action, done: set[Action], stages: int) -> list[tuple[Action, ...]]:
    return [
        choice
        for half in action.halves
        for choice in needs(half, stages)
        if not any(one in done for one in choice)
    ]


def _stuck(schedule: Rows, rank: int, reached: list[int]) -> ScheduleError:
    """Why `rank` stops where it does, and where the rank that has what it needs stops."""
    ran = (row[:count] for row, count in zip(schedule.actions, reached, strict=True))
    done = {half for row in ran for one in row for half in one.halves}
    stages, index = len(schedule.stage_rank), reached[rank]
    action = schedule.actions[rank][index]
    there = {half for row in schedule.actions for one in row for half in one.halves}
    missing = [
        next((one for one in choice if one in there), choice[0])
        for choice in _missing(action, done, stages)
    ]
    words = f"rank {rank} stops before its {_ordinal(index)} action, {action}: it needs "
    words += " and ".join(map(str, missing)) + ", which never ran"
    holders = {schedule.stage_rank[one.stage]: one for one in missing if one in there}
    for other, one in holders.items():
        if other != rank and reached[other] < len(schedule.actions[other]):
            words += f"; rank {other}, which has {one}, stops before "
            words += str(schedule.actions[other][reached[other]])
    return _broken(schedule, rank, index, words, missing)


def _broken(
    schedule: Rows, rank: int, index: int | None, words: str, needs: Sequence[Action] = ()
) -> ScheduleError:
    """`words`, and the row of the rank up to the place."""
    row = schedule.actions[rank]
    shown = row if index is None else row[: index + 1]
    cells = [str(action) for action in shown[-_SHOWN:]]
    if index is not None:
        cells[-1] = f"[{cells[-1]}]"
    if len(shown) > _SHOWN:
        cells.insert(0, "...")
    where = "its row" if index is None else "its row up to there"
    return ScheduleError(f"{words}; {where}: {' '.join(cells) or 'empty'}.", rank, index, needs)


def _ordinal(index: int) -> str:
    """The place in a row as an ordinal: "1st" for 0."""
    number = index + 1
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else ends.get(number % 10, 'th')}"


def _everything(schedule: Rows) -> Iterator[tuple[int, int, Action]]:
    for rank, row in enumerate(schedule.actions):
        for index, action in enumerate(row):
            yield rank, index, action
