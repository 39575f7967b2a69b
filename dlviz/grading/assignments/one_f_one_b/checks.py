"""Checks of a student's pipeline schedules: what was seen, what was expected, one hint.

    one_f_one_b(rank, ranks, microbatches)             "F0", "B3": of the rank's one stage
    interleaved(rank, ranks, microbatches, chunks)     "6F0", "2B3": the stage first

Each check gets the rows of all ranks (run.py) at several sizes and tests one property;
check_training lets real ranks train with them. Symbols: p ranks, m microbatches, v chunks, r a
rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any

from dlviz.cluster import launch
from dlviz.grading.assignments.one_f_one_b import train as training
from dlviz.grading.assignments.one_f_one_b.hints import kinds_of, most_in_flight, why_held, why_idle
from dlviz.grading.assignments.one_f_one_b.rules import (
    TURNS,
    check_each_once,
    check_ends,
    check_legal,
    check_places,
    check_sequence,
    check_stages,
    check_turns,
    never,
)
from dlviz.grading.assignments.one_f_one_b.run import ScheduleSize, Tried, rows_of
from dlviz.grading.harness.check import Program, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, number, passes
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, peak_in_flight
from dlviz.schedules import Action, Schedule, ScheduleError
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
STEP = 0.005  # s that a forward takes through all stages of a rank; a backward takes twice that

pipeline = partial(check, size=ScheduleSize, sizes=PLAIN, run=rows_of)


@pipeline("every action is there once, and in order", points=3)
def check_order(tried: Tried) -> None:
    """Each rank runs each F and B of its stages once, in the schedule's order, a backward after its
    own forward; and from the first backward on, forwards and backwards take turns."""
    for rank in range(tried.size.ranks):
        check_places(tried, rank)
        check_each_once(tried, rank)
        check_sequence(tried, rank)
        check_turns(tried, rank)
    turns = [rank for rank, row in enumerate(tried.size.reference.actions) if "BF" in kinds_of(row)]
    if turns and not any("BF" in kinds_of(tried.rows[rank]) for rank in turns):
        first = kinds_of(tried.rows[turns[0]]).find("B")
        raise CheckFailed(
            f"{tried.size}, rank {turns[0]} runs all its forwards and then all its backwards: "
            f"{tried.shows(turns[0], first)}",
            TURNS,
            "that is GPipe's order. Which microbatch's gradient is ready first, and when?",
        )


@pipeline("no rank holds too much or too little", points=3)
def check_in_flight(tried: Tried) -> None:
    """The most microbatches whose forward a rank has run and whose backward it has not: min(p -
    r, m); in chunks, min(2(p-1-r) + (v-1)p + 1, vm)."""
    size, held = tried.size, [most_in_flight(row) for row in tried.rows]
    for rank, row in enumerate(size.reference.actions):
        wanted = most_in_flight(row)
        if held[rank] != wanted:
            what = "chunk" if size.chunks else "microbatch"
            raise CheckFailed(
                f"{size}, rank {rank} holds the activations of up to {number(held[rank], what)} at "
                "the same time",
                "fewer: no more than keep the rank busy"
                if held[rank] > wanted
                else "more: as many as keep the rank busy",
                why_held(tried, held, rank, wanted),
            )


@pipeline("every rank comes to its end", points=1)
def check_no_deadlock(tried: Tried) -> None:
    """Every rank reaches the end of its complete row: whatever an action waits for is computed
    by a rank that can reach it."""
    there = {action for row in tried.rows for action in row}
    for rank, row in enumerate(tried.size.reference.actions):
        check_stages(tried, rank)
        if missing := [action for action in row if action not in there]:
            raise never(tried, rank, missing)
    check_ends(tried)


@pipeline("the bubble is that of the formula", points=1)
def check_bubble(tried: Tried) -> None:
    """Simulated, with a B that takes twice as long as an F, the bubble ratio is (p-1)/m; with
    chunks, (p-1)/(vm)."""
    check_legal(tried)
    size, trace = tried.size, simulate(tried.schedule, _costs(tried.size))
    ratio, share = bubble_ratio(trace), size.microbatches * (size.chunks or 1)
    wanted = Fraction(size.ranks - 1, share)
    if abs(ratio - wanted) > 1e-6:
        formula = "(p-1)/(vm)" if size.chunks else "(p-1)/m"
        raise CheckFailed(
            f"{size}, a bubble ratio of {ratio:.4g}",
            f"{formula} = {size.ranks - 1}/{share} = {float(wanted):.4g}",
            why_idle(tried, trace),
        )


def _trained(
    programs: Sequence[Program], sizes: Sequence[ScheduleSize]
) -> Mapping[ScheduleSize, Any]:
    """Each size, with its ranks' training results."""
    left: dict[ScheduleSize, Any] = {}
    for size, tried in rows_of(programs, sizes).items():
        left[size] = tried
        if isinstance(tried, Tried):
            try:
                check_legal(tried)
                run = launch(training.work, size.ranks, device="cpu", args=(tried.schedule,))
                left[size] = size, run.results
            except CheckFailed as failed:
                left[size] = failed
    return left


@check(
    "real ranks train as one process would",
    points=2,
    size=ScheduleSize,
    sizes=((4, 8), (3, 7), (5, 3)),
    run=_trained,
)
def check_training(left: tuple[ScheduleSize, list[training.Result]]) -> None:
    """Real ranks train for three steps in the student's order: the loss of each step and the
    gradients of the last are those of one process, up to the order of sums."""
    size, results = left
    if summary := training.differs(results, size.stages, size.microbatches):
        raise CheckFailed(
            f"{size}, {summary}",
            "losses and gradients of one process with the whole network",
            "compare the row of the rank that has this stage with its neighbour's.",
        )


def rehearse(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Simulate the student's schedule, up to where it gets stuck."""
    size = ScheduleSize(ranks, microbatches, chunks)
    tried = rows_of([program], [size])[size]
    if isinstance(tried, CheckFailed):
        return Rehearsal(Trace(meta={"clock": "simulated", "ranks": ranks}), tried.in_short)
    trace, ran = as_far_as_it_goes(tried)
    count = sum(map(len, ran))
    try:
        check_legal(tried)
    except CheckFailed as failed:
        there = sum(map(len, tried.rows))
        return Rehearsal(trace, f"{count} of {there} actions can run. {failed.in_short}")
    held = ", ".join(map(str, peak_in_flight(trace).tolist()))
    summary = f"{count} actions; bubble ratio {bubble_ratio(trace):.4g}; in flight at most {held}"
    right = passes(check_order.judge, tried) and passes(check_in_flight.judge, tried)
    return Rehearsal(trace, summary, right)


def train(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Train for one step with the student's schedule on real ranks, paced, with messages that
    take no time; a schedule that gets stuck is simulated up to there."""
    size = ScheduleSize(ranks, microbatches, chunks)
    tried = rows_of([program], [size])[size]
    if not isinstance(tried, Tried) or not passes(check_legal, tried):
        played = rehearse(program, ranks, microbatches, chunks)
        return Rehearsal(played.trace, f"No rank was started. {played.summary}")
    costs = _costs(size)
    machine = Machine(classroom(ranks).device, Topology.switch(ranks, Link(0.0, inf)), STEP)
    run = launch(training.work, ranks, machine=machine, args=(tried.schedule, 1, costs))
    ratio = bubble_ratio(simulate(tried.schedule, costs))
    summary = (
        f"{ranks} processes; loss {run.results[0][0][0]:.4f}; "
        f"bubble ratio measured {bubble_ratio(run.trace, 'wall'):.4g}, simulated {ratio:.4g}"
    )
    return Rehearsal(run.trace, summary)


def as_far_as_it_goes(tried: Tried) -> tuple[Trace, list[list[Action]]]:
    """The Trace of the actions that can run, on each rank up to the first that cannot; and these
    actions."""
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


def _costs(size: ScheduleSize) -> Costs:
    share = STEP / (size.chunks or 1)
    return Costs(forward=share, backward_input=share, backward_weight=share)
