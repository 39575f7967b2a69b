"""Checks of pipeline schedules that a student wrote: what was seen, what was expected, one hint.

    one_f_one_b(rank, ranks, microbatches)             "F0", "B3": of the rank's one stage
    interleaved(rank, ranks, microbatches, chunks)     "6F0", "2B3": the stage first

Each check asks for the rows of all ranks (pipeline_rows.py), at several sizes, and looks at one
side of them alone; check_training lets real ranks train with them. Symbols: p ranks, m
microbatches, v chunks, r a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dlviz.cluster import launch
from dlviz.grading import training
from dlviz.grading.check import Program, check
from dlviz.grading.feedback import CheckFailed, Rehearsal, number
from dlviz.grading.pipeline_rows import OUTSIDE, Size, Tried, rows_of
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, peak_in_flight
from dlviz.schedules import Action, Schedule, ScheduleError
from dlviz.schedules.rules import check_progress
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace

__all__ = [
    "CHUNKED",
    "PLAIN",
    "check_bubble",
    "check_in_flight",
    "check_no_deadlock",
    "check_order",
    "check_training",
    "rehearse",
    "train",
]
PLAIN = ((4, 8), (2, 6), (3, 7), (5, 8), (5, 3))  # ranks, microbatches
CHUNKED = ((4, 8, 2), (2, 6, 3), (3, 3, 2))  # and chunks
TURNS = "after the warm-up one forward, one backward in turn, until no forward is left"
TWICE = "two loops yield it: where is the one to stop, and where is the other to go on?"
STEP = 0.005  # s that a forward takes through all stages of a rank; a backward takes twice that

pipeline = partial(check, size=Size, sizes=PLAIN, run=rows_of)


@pipeline("every action is there once, and in order", points=3)
def check_order(tried: Tried) -> None:
    """Each rank runs each F and B of its stages once, in the schedule's order, a backward after its
    own forward; and from the first backward on, forwards and backwards take turns."""
    for rank in range(tried.size.ranks):
        _check_places(tried, rank)
        _check_each_once(tried, rank)
        _check_sequence(tried, rank)
        _check_turns(tried, rank)
    turns = [rank for rank, row in enumerate(tried.size.reference.actions) if "BF" in _kinds(row)]
    if turns and not any("BF" in _kinds(tried.rows[rank]) for rank in turns):
        first = _kinds(tried.rows[turns[0]]).find("B")
        raise CheckFailed(
            f"{tried.size}, rank {turns[0]} runs all its forwards and then all its backwards: "
            f"{tried.shows(turns[0], first)}",
            TURNS,
            "that is GPipe's order. The gradient of which microbatch is there first, and when?",
        )


@pipeline("no rank holds too much or too little", points=3)
def check_in_flight(tried: Tried) -> None:
    """The most microbatches whose forward a rank has run and whose backward it has not:
    min(p - r, m), and of chunks min(2(p-1-r) + (v-1)p + 1, vm)."""
    size, held = tried.size, [_held(row) for row in tried.rows]
    for rank, row in enumerate(size.reference.actions):
        wanted = _held(row)
        if held[rank] != wanted:
            what = "chunk" if size.chunks else "microbatch"
            raise CheckFailed(
                f"{size}, rank {rank} holds the activations of up to "
                f"{number(held[rank], what)} at once",
                "fewer: no more than keep the rank at work"
                if held[rank] > wanted
                else "more: as many as keep the rank at work",
                _why_held(tried, held, rank, wanted),
            )


@pipeline("every rank comes to its end", points=1)
def check_no_deadlock(tried: Tried) -> None:
    """Every rank comes to the end of its row, in which nothing is left out: what an action waits
    for is made by somebody who can get there."""
    there = {action for row in tried.rows for action in row}
    for rank, row in enumerate(tried.size.reference.actions):
        _check_stages(tried, rank)
        if missing := [action for action in row if action not in there]:
            raise _never(tried, rank, missing)
    _check_progress(tried)


@pipeline("the bubble is that of the formula", points=1)
def check_bubble(tried: Tried) -> None:
    """Simulated, with a B that takes twice an F, the bubble ratio is (p-1)/m, and with chunks
    (p-1)/(vm)."""
    _check_legal(tried)
    size, trace = tried.size, simulate(tried.schedule, _costs(tried.size))
    ratio, share = bubble_ratio(trace), size.microbatches * (size.chunks or 1)
    wanted = Fraction(size.ranks - 1, share)
    if abs(ratio - wanted) > 1e-6:
        formula = "(p-1)/(vm)" if size.chunks else "(p-1)/m"
        raise CheckFailed(
            f"{size}, a bubble ratio of {ratio:.4g}",
            f"{formula} = {size.ranks - 1}/{share} = {float(wanted):.4g}",
            _why_idle(tried, trace),
        )


def _trained(programs: Sequence[Program], sizes: Sequence[Size]) -> Mapping[Size, Any]:
    """The size, and what its ranks came to in training."""
    left: dict[Size, Any] = {}
    for size, tried in rows_of(programs, sizes).items():
        left[size] = tried
        if isinstance(tried, Tried):
            try:
                _check_legal(tried)
                run = launch(training.work, size.ranks, device="cpu", args=(tried.schedule,))
                left[size] = size, run.results
            except CheckFailed as failed:
                left[size] = failed
    return left


@check(
    "real ranks train as one process would",
    points=2,
    size=Size,
    sizes=((4, 8), (3, 7), (5, 3)),
    run=_trained,
)
def check_training(left: tuple[Size, list[training.Result]]) -> None:
    """Real ranks take three steps of training in the student's order: the loss of each and the
    gradients of the last are those of one process, up to the order of their sums."""
    size, results = left
    if told := training.differs(results, size.stages, size.microbatches):
        raise CheckFailed(
            f"{size}, {told}",
            "losses and gradients of one process that has the whole network",
            "compare the rows of the rank that has this stage with its neighbour's.",
        )


def rehearse(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Simulate the student's schedule, as far as it goes where it does not come to its end."""
    size = Size(ranks, microbatches, chunks)
    tried = rows_of([program], [size])[size]
    if isinstance(tried, CheckFailed):
        return Rehearsal(Trace(meta={"clock": "simulated", "ranks": ranks}), _in_short(tried))
    trace, ran = as_far_as_it_goes(tried)
    count = sum(map(len, ran))
    try:
        _check_legal(tried)
    except CheckFailed as failed:
        there = sum(map(len, tried.rows))
        return Rehearsal(trace, f"{count} of {there} actions can run. {_in_short(failed)}")
    held = ", ".join(map(str, peak_in_flight(trace).tolist()))
    told = f"{count} actions; bubble ratio {bubble_ratio(trace):.4g}; in flight at most {held}"
    right = _passes(tried, check_order.judge) and _passes(tried, check_in_flight.judge)
    return Rehearsal(trace, told, right)


def train(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Train for one step with the student's schedule on real ranks, paced, with messages that take
    no time; where it does not come to its end, simulate it as far as it goes."""
    size = Size(ranks, microbatches, chunks)
    tried = rows_of([program], [size])[size]
    if not isinstance(tried, Tried) or not _passes(tried, _check_legal):
        played = rehearse(program, ranks, microbatches, chunks)
        return Rehearsal(played.trace, f"No rank was started. {played.told}")
    costs = _costs(size)
    machine = Machine(classroom(ranks).device, Topology.switch(ranks, Link(0.0, inf)), STEP)
    run = launch(training.work, ranks, machine=machine, args=(tried.schedule, 1, costs))
    ratio = bubble_ratio(simulate(tried.schedule, costs))
    told = (
        f"{ranks} processes; loss {run.results[0][0][0]:.4f}; "
        f"bubble ratio measured {bubble_ratio(run.trace, 'wall'):.4g}, simulated {ratio:.4g}"
    )
    return Rehearsal(run.trace, told)


def as_far_as_it_goes(tried: Tried) -> tuple[Trace, list[list[Action]]]:
    """The Trace of the actions that can run, rank by rank until its first that cannot; and them."""
    schedule = tried.schedule
    rows = [list(row) for row in tried.rows]
    while any(rows):
        try:
            trace = simulate(Schedule(rows, schedule.stage_rank, schedule.name), _costs(tried.size))
            return trace, rows
        except ScheduleError as error:
            assert error.rank is not None and error.index is not None
            del rows[error.rank][error.index :]
    return Trace(meta={"clock": "simulated", "ranks": schedule.ranks}), rows


def _check_stages(tried: Tried, rank: int) -> None:
    """That the stages of a rank's actions exist."""
    for index, action in enumerate(tried.rows[rank]):
        if action.stage >= tried.size.stages:
            raise CheckFailed(
                f"{tried.size}, rank {rank} runs {action}: {tried.shows(rank, index)}",
                f"the stages 0 to {tried.size.stages - 1}",
                "count the stages: every rank has as many as there are chunks.",
            )


def _check_places(tried: Tried, rank: int) -> None:
    size = tried.size
    _check_stages(tried, rank)
    for index, action in enumerate(tried.rows[rank]):
        where = f"{size}, rank {rank} runs {tried.says(action)}: {tried.shows(rank, index)}"
        if action.stage % size.ranks != rank:
            raise CheckFailed(
                where,
                f"stage {action.stage} is on rank {action.stage % size.ranks}",
                "stages go round the ranks, one to each, before a rank gets its second: which ones "
                f"does rank {rank} then have?"
                if size.chunks
                else "a rank has one stage, and its number is the rank's.",
            )
        if not 0 <= action.microbatch < size.microbatches:
            raise CheckFailed(
                where,
                f"the microbatches are 0 to {size.microbatches - 1}",
                "look at the loop that yields this one: from which number to which does it run?",
            )


def _check_each_once(tried: Tried, rank: int) -> None:
    size, row = tried.size, tried.rows[rank]
    for index, action in enumerate(row):
        if action in row[:index]:
            raise CheckFailed(
                f"{size}, rank {rank} runs {tried.says(action)} twice: {tried.shows(rank, index)}",
                f"each F and each B of the {number(size.microbatches, 'microbatch')} once",
                OUTSIDE if rank and _kept(tried.rows[rank - 1], row) else TWICE,
            )
    missing = [action for action in size.reference.actions[rank] if action not in row]
    if missing:
        raise _never(tried, rank, missing)


def _kept(before: Sequence[Action], row: Sequence[Action]) -> bool:
    """Whether a row goes on where that of the rank before it ended."""
    begun = zip(before, row, strict=False)
    same = all((one.kind, one.microbatch) == (two.kind, two.microbatch) for one, two in begun)
    return same and len(row) > len(before)


def _never(tried: Tried, rank: int, missing: Sequence[Action]) -> CheckFailed:
    size, row = tried.size, tried.rows[rank]
    absent = {action.stage for action in missing} - {action.stage for action in row}
    if absent:
        hint = f"stage {min(absent)} is one of this rank's too."
    elif {action.kind for action in missing} != {"B"}:
        hint = "how many forwards does each of your loops run, and how many are there in all?"
    elif any(action.kind == "B" for action in row):
        hint = "after the last forward some microbatches are still in flight: what becomes of them?"
    else:
        hint = "without its backward a microbatch gives no gradient."
    said = ", ".join(map(tried.says, missing[:4])) + ", ..." * (len(missing) > 4)
    return CheckFailed(
        f"{size}, rank {rank} never runs {said}",
        f"each F and each B of the {number(size.microbatches, 'microbatch')} once",
        hint,
    )


def _check_sequence(tried: Tried, rank: int) -> None:
    """Of a complete row: its forwards and its backwards in order, each B after its own F."""
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
    for kind, name in (("F", "forward"), ("B", "backward")):
        own = [a for a in row if a.kind == kind]
        order = [a for a in size.reference.actions[rank] if a.kind == kind]
        for place, (seen, wanted) in enumerate(zip(own, order, strict=True)):
            if seen != wanted:
                raise CheckFailed(
                    f"{size}, rank {rank} runs {tried.says(seen)} where {tried.says(wanted)} is "
                    f"due: {tried.shows(rank, row.index(seen))}",
                    f"{name}s in this order: {' '.join(map(tried.says, order[: place + 1]))} ...",
                    _why_sequence(size, kind, seen, wanted),
                )


def _why_sequence(size: Size, kind: str, seen: Action, wanted: Action) -> str:
    if kind == "B" and seen.stage < wanted.stage:
        return (
            "gradients come back from the end of the model. Which of a rank's stages is nearest to "
            "that?"
        )
    if seen.stage != wanted.stage or seen.microbatch >= size.ranks and size.chunks:
        return (
            f"microbatches go in groups of {size.ranks}: a group through one stage of the rank, "
            "then the same group through the rank's next."
        )
    if kind == "B":
        return "the gradient of the microbatch that went in first comes back first."
    return "microbatches enter in the order of their numbers."


def _check_turns(tried: Tried, rank: int) -> None:
    """From the first backward on, F and B take turns until the forwards are used up."""
    kinds = _kinds(tried.rows[rank])
    first, last = kinds.find("B"), kinds.rfind("F")
    for index in range(first + 1, last + 1):
        if kinds[index] == kinds[index - 1]:
            name = "forwards" if kinds[index] == "F" else "backwards"
            raise CheckFailed(
                f"{tried.size}, rank {rank} runs two {name} in a row: {tried.shows(rank, index)}",
                TURNS,
                "what does the loop of the steady state yield each time?",
            )


def _kinds(row: Sequence[Action]) -> str:
    return "".join(action.kind for action in row)


def _held(row: Sequence[Action]) -> int:
    """The most forwards in a row whose backward has not come yet."""
    return max(np.cumsum([1 if action.kind == "F" else -1 for action in row]).max(), 0)


def _why_held(tried: Tried, held: list[int], rank: int, wanted: int) -> str:
    size = tried.size
    everything = size.microbatches * (size.chunks or 1)
    if all(count >= everything for count in held):
        return (
            "every forward is run before the first backward, as in GPipe. On the last rank, what "
            "can follow the first forward of the last stage at once?"
        )
    if len(set(held)) == 1:
        return (
            "all ranks hold the same number. The last rank has its first gradient at once: how "
            "many ranks does a microbatch pass after rank r, before its gradient is back there?"
        )
    if held == [_held(row) for row in reversed(size.reference.actions)]:
        return "which rank waits longest for its first gradient, the first or the last?"
    forwards = _kinds(tried.rows[rank]).partition("B")[0].count("F")
    if held[rank] == everything:
        return (
            f"rank {rank} runs all its forwards before its first backward. What can follow its "
            "first forward, as soon as the gradient of that microbatch is there?"
        )
    if held[rank] > everything:
        return (
            f"rank {rank} runs {number(held[rank], 'forward')}, and there are {everything}. How "
            "many may a warm-up run at most?"
        )
    if held[rank] > wanted:
        warmup = "one for each rank after it"
        if size.chunks:
            warmup = f"(v-1)p and 2(p-1-r) more, with r = {rank}"
        return (
            f"before its first backward rank {rank} runs {number(forwards, 'forward')}. The last "
            f"of them is the first of the steady state, so its warm-up has {forwards - 1}: is that "
            f"{warmup}?"
        )
    if size.chunks:
        return (
            "the warm-up is too short. What does the first microbatch pass until its gradient is "
            "back: how many stages of this rank, and how far is it to the last rank and back?"
        )
    return (
        "too few to keep the ranks after this one busy: each of them could be at work on one. How "
        "many forwards does the warm-up run?"
    )


def _check_progress(tried: Tried) -> None:
    """That every rank comes to the end of its row, whatever it numbers its stages."""
    size, rows = tried.size, tried.rows
    for rank in range(size.ranks):
        _check_stages(tried, rank)
    homes = {action.stage: rank for rank, row in enumerate(rows) for action in row}
    places = tuple(homes.get(stage, stage % size.ranks) for stage in range(size.stages))
    try:
        check_progress(Schedule(rows, places))
    except ScheduleError as error:
        assert error.rank is not None and error.index is not None
        words = str(error).partition("; its row")[0]
        raise CheckFailed(
            f"{size}, {words}: {tried.shows(error.rank, error.index)}",
            "every rank comes to the end of its row",
            _why_stuck(tried, error),
        ) from None


def _why_stuck(tried: Tried, error: ScheduleError) -> str:
    rank, lacks = error.rank, error.needs[0]
    if rank is not None and lacks in tried.rows[rank]:
        return f"{lacks} comes later on the same rank: a backward needs its own forward first."
    return (
        "follow it from rank to rank: each stops before something that another has not done yet, "
        "until the circle closes. Which of them could do a forward first, or a backward?"
    )


def _check_legal(tried: Tried) -> None:
    """Raises CheckFailed for what can be neither simulated to its end nor run."""
    for rank in range(tried.size.ranks):
        _check_places(tried, rank)
        _check_each_once(tried, rank)
    _check_progress(tried)


def _why_idle(tried: Tried, trace: Trace) -> str:
    """Where the longest gap is, and whether a rank has too few microbatches in flight."""
    spans, (gap, row) = trace.spans, (0.0, 0)
    for rank in range(tried.size.ranks):
        own = np.flatnonzero(spans.rank == rank)
        gaps = spans.start[own[1:]] - spans.end[own[:-1]]
        if len(gaps) and gaps.max() > gap + 1e-9:
            gap, row = gaps.max(), own[gaps.argmax() + 1]
    action = Action(int(spans.stage[row]), spans.kind[row][0].upper(), int(spans.microbatch[row]))
    return (
        f"the longest gap inside a row is that of rank {spans.rank[row]} before "
        f"{tried.says(action)}, {1000 * gap:.3g} ms. What could it do meanwhile, or which rank "
        "should have done its part earlier?"
    )


def _costs(size: Size) -> Costs:
    share = STEP / (size.chunks or 1)
    return Costs(forward=share, backward_input=share, backward_weight=share)


def _passes(tried: Tried, judge: Callable[[Tried], Any]) -> bool:
    try:
        judge(tried)
    except CheckFailed:
        return False
    return True


def _in_short(failed: CheckFailed) -> str:
    return f"{failed.seen[0].upper()}{failed.seen[1:]}\nHint: {failed.hint}"
