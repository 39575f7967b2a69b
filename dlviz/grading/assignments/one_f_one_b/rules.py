"""The rules for the rows of a pipeline schedule; each check raises CheckFailed for a violation."""

from __future__ import annotations

from collections.abc import Sequence

from dlviz.grading.assignments.one_f_one_b.hints import kinds_of, why_sequence, why_stuck
from dlviz.grading.assignments.one_f_one_b.run import OUTSIDE, Tried
from dlviz.grading.harness.feedback import CheckFailed, number
from dlviz.schedules import Action, Schedule, ScheduleError
from dlviz.schedules.action import KIND_NAMES
from dlviz.schedules.rules import check_progress

TURNS = "after the warm-up one forward, one backward in turn, until no forward is left"
TWICE = "two loops yield it: where should the first stop, and where should the second start?"


def check_stages(tried: Tried, rank: int) -> None:
    """Check that the stages of a rank's actions exist."""
    for index, action in enumerate(tried.rows[rank]):
        if action.stage >= tried.size.stages:
            raise CheckFailed(
                f"{tried.size}, rank {rank} runs {action}: {tried.shows(rank, index)}",
                f"the stages 0 to {tried.size.stages - 1}",
                "count the stages: every rank has as many as there are chunks.",
            )


def check_places(tried: Tried, rank: int) -> None:
    size = tried.size
    check_stages(tried, rank)
    for index, action in enumerate(tried.rows[rank]):
        where = f"{size}, rank {rank} runs {tried.says(action)}: {tried.shows(rank, index)}"
        if action.stage % size.ranks != rank:
            raise CheckFailed(
                where,
                f"stage {action.stage} is on rank {action.stage % size.ranks}",
                "stages go round the ranks, one to each, before a rank gets its second: which ones "
                f"does rank {rank} have?"
                if size.chunks
                else "a rank has one stage, and its number is the rank's.",
            )
        if not 0 <= action.microbatch < size.microbatches:
            raise CheckFailed(
                where,
                f"the microbatches are 0 to {size.microbatches - 1}",
                "look at the loop that yields this one: from which number to which does it run?",
            )


def check_each_once(tried: Tried, rank: int) -> None:
    size, row = tried.size, tried.rows[rank]
    for index, action in enumerate(row):
        if action in row[:index]:
            raise CheckFailed(
                f"{size}, rank {rank} runs {tried.says(action)} twice: {tried.shows(rank, index)}",
                f"each F and each B of the {number(size.microbatches, 'microbatch')} once",
                OUTSIDE if rank and _continues(tried.rows[rank - 1], row) else TWICE,
            )
    missing = [action for action in size.reference.actions[rank] if action not in row]
    if missing:
        raise never(tried, rank, missing)


def _continues(before: Sequence[Action], row: Sequence[Action]) -> bool:
    """Whether a row continues the previous rank's."""
    begun = zip(before, row, strict=False)
    same = all((one.kind, one.microbatch) == (two.kind, two.microbatch) for one, two in begun)
    return same and len(row) > len(before)


def never(tried: Tried, rank: int, missing: Sequence[Action]) -> CheckFailed:
    size, row = tried.size, tried.rows[rank]
    absent = {action.stage for action in missing} - {action.stage for action in row}
    if absent:
        hint = f"stage {min(absent)} is one of this rank's too."
    elif {action.kind for action in missing} != {"B"}:
        hint = "how many forwards does each of your loops run, and how many are there in all?"
    elif any(action.kind == "B" for action in row):
        hint = (
            "after the last forward some microbatches are still in flight: when do their backwards "
            "run?"
        )
    else:
        hint = "without its backward a microbatch gives no gradient."
    said = ", ".join(map(tried.says, missing[:4])) + ", ..." * (len(missing) > 4)
    return CheckFailed(
        f"{size}, rank {rank} never runs {said}",
        f"each F and each B of the {number(size.microbatches, 'microbatch')} once",
        hint,
    )


def check_sequence(tried: Tried, rank: int) -> None:
    """Check the order of a complete row's forwards and backwards, each B after its own F."""
    size, row = tried.size, tried.rows[rank]
    for index, action in enumerate(row):
        own = Action(action.stage, "F", action.microbatch)
        if action.kind == "B" and own in row[index:]:
            raise CheckFailed(
                f"{size}, rank {rank} runs {tried.says(action)} before {tried.says(own)}: "
                f"{tried.shows(rank, index)}",
                "a backward after its own forward",
                "a backward needs the activations that its forward left. How many forwards has "
                "this rank run when its first backward is due?",
            )
    for kind in ("F", "B"):
        own = [a for a in row if a.kind == kind]
        order = [a for a in size.reference.actions[rank] if a.kind == kind]
        for place, (seen, wanted) in enumerate(zip(own, order, strict=True)):
            if seen != wanted:
                raise CheckFailed(
                    f"{size}, rank {rank} runs {tried.says(seen)} where {tried.says(wanted)} is "
                    f"due: {tried.shows(rank, row.index(seen))}",
                    f"{KIND_NAMES[kind]}s in this order: "
                    f"{' '.join(map(tried.says, order[: place + 1]))} ...",
                    why_sequence(size, kind, seen, wanted),
                )


def check_turns(tried: Tried, rank: int) -> None:
    """Check that from the first backward on F and B alternate until no forward is left."""
    kinds = kinds_of(tried.rows[rank])
    first, last = kinds.find("B"), kinds.rfind("F")
    for index in range(first + 1, last + 1):
        if kinds[index] == kinds[index - 1]:
            name = "forwards" if kinds[index] == "F" else "backwards"
            raise CheckFailed(
                f"{tried.size}, rank {rank} runs two {name} in a row: {tried.shows(rank, index)}",
                TURNS,
                "what does the loop of the steady state yield in each iteration?",
            )


def check_ends(tried: Tried) -> None:
    """Check that every rank can finish its row, whatever its stage numbers."""
    size, rows = tried.size, tried.rows
    for rank in range(size.ranks):
        check_stages(tried, rank)
    homes = {action.stage: rank for rank, row in enumerate(rows) for action in row}
    places = tuple(homes.get(stage, stage % size.ranks) for stage in range(size.stages))
    try:
        check_progress(Schedule(rows, places))
    except ScheduleError as error:
        assert error.rank is not None and error.index is not None
        words = str(error).partition("; its row")[0]
        raise CheckFailed(
            f"{size}, {words}: {tried.shows(error.rank, error.index)}",
            "every rank reaches the end of its row",
            why_stuck(tried, error),
        ) from None


def check_legal(tried: Tried) -> None:
    """Raises CheckFailed for rows that cannot run to the end."""
    for rank in range(tried.size.ranks):
        check_places(tried, rank)
        check_each_once(tried, rank)
    check_ends(tried)
