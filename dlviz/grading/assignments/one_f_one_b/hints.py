"""Hints for a student's pipeline schedule: likely causes of what a check saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlviz.grading.assignments.one_f_one_b.run import ScheduleSize, Tried
from dlviz.grading.harness.feedback import number
from dlviz.schedules import Action, ScheduleError
from dlviz.trace import Trace


def why_sequence(size: ScheduleSize, kind: str, seen: Action, wanted: Action) -> str:
    if kind == "B" and seen.stage < wanted.stage:
        return (
            "gradients come from the end of the model. Which of a rank's stages is nearest to it?"
        )
    if seen.stage != wanted.stage or seen.microbatch >= size.ranks and size.chunks:
        return (
            f"microbatches go in groups of {size.ranks}: a group through one stage of the rank, "
            "then the same group through the rank's next."
        )
    if kind == "B":
        return "the gradient of the microbatch that went in first comes back first."
    return "microbatches enter in the order of their numbers."


def kinds_of(row: Sequence[Action]) -> str:
    return "".join(action.kind for action in row)


def most_in_flight(row: Sequence[Action]) -> int:
    """The most forwards in a row that still await their backward."""
    return max(np.cumsum([1 if action.kind == "F" else -1 for action in row]).max(), 0)


def why_held(tried: Tried, held: list[int], rank: int, wanted: int) -> str:
    size = tried.size
    everything = size.microbatches * (size.chunks or 1)
    if all(count >= everything for count in held):
        return (
            "every forward is run before the first backward, as in GPipe. On the last rank, what "
            "can immediately follow the first forward of the last stage?"
        )
    if len(set(held)) == 1:
        return (
            "all ranks hold the same number. The last rank has its first gradient immediately: how "
            "many ranks does a microbatch pass after rank r, before its gradient is back there?"
        )
    if held == [most_in_flight(row) for row in reversed(size.reference.actions)]:
        return "which rank waits longest for its first gradient, the first or the last?"
    forwards = kinds_of(tried.rows[rank]).partition("B")[0].count("F")
    if held[rank] == everything:
        return (
            f"rank {rank} runs all its forwards before its first backward. What can follow its "
            "first forward, as soon as the gradient of that microbatch is ready?"
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
            f"of them belongs to the steady state, so its warm-up has {forwards - 1}: is that "
            f"{warmup}?"
        )
    if size.chunks:
        return (
            "the warm-up is too short. What does the first microbatch pass before its gradient is "
            "back: how many stages of this rank, and how far is it to the last rank and back?"
        )
    return (
        "too few to keep the ranks after this one busy: each of them could be at work on one. How "
        "many forwards does the warm-up run?"
    )


def why_stuck(tried: Tried, error: ScheduleError) -> str:
    rank, lacks = error.rank, error.needs[0]
    if rank is not None and lacks in tried.rows[rank]:
        return f"{lacks} comes later on the same rank: a backward needs its own forward first."
    return (
        "follow the waits from rank to rank: each waits for an action that another has not run "
        "yet, until the circle closes. Which of them could run a forward first, or a backward?"
    )


def why_idle(tried: Tried, trace: Trace) -> str:
    """A hint with the longest gap inside a row."""
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
