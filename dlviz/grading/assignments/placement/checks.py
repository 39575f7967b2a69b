"""Checks of a student's placements: what was seen, what was expected, one hint.

    play                      when each group runs, on devices that a placement gives it, and which
                              messages that takes
    greedy                    a placement made group by group, messages included
    sample, update, learn     REINFORCE on a table of logits

All is compared with the rule (model.py), at graphs that are drawn so that known mistakes show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import torch

from dlviz.grading.assignments.placement.hints import (
    wrong_greedy,
    wrong_learning,
    wrong_messages,
    wrong_samples,
    wrong_spans,
    wrong_update,
)
from dlviz.grading.assignments.placement.model import Case, Span, greedy
from dlviz.grading.assignments.placement.run import (
    RATE,
    SAMPLES,
    LearnRun,
    PlacementRun,
    PlacementSize,
    SampleLeft,
    UpdateLeft,
    played_cases,
    run_greedy,
    run_learn,
    run_memory,
    run_play,
    run_sample,
    run_update,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal
from dlviz.machine import Link
from dlviz.sim.placement import BRANCHES, Devices
from dlviz.trace import Trace

__all__ = [
    "check_devices", "check_fits", "check_greedy", "check_learn", "check_memory", "check_messages",
    "check_played", "check_sample", "check_update", "rehearse", "rehearse_greedy",
    "rehearse_learn", "rehearse_update",
]  # fmt: skip
PLAYED = [(6, 2), (8, 3, True), (10, 4), (9, 2, True)]
PLACED = [(7, 2), (9, 3, True), (10, 4)]
Programs = Sequence[Callable[..., Any]]


def _ran(run: Callable[..., Any], **how: Any) -> Any:
    return lambda programs, sizes: at_each(sizes, lambda size: run(size, programs[0], **how))


sized = partial(check, size=PlacementSize)


@sized("each group runs at its time", points=3, sizes=PLAYED, run=_ran(run_play, free=True))
def check_devices(tried: PlacementRun) -> None:
    """With messages that take no time: parents first, one group at a time on a device, of those
    that are ready the one of the highest upward rank, for its seconds times the device's factor."""
    _spans(tried)


@sized("each value goes once to each device that needs it", points=2, sizes=PLAYED,
       run=_ran(run_play))  # fmt: skip
def check_messages(tried: PlacementRun) -> None:
    """From the end of its group on, by a port that sends one message at a time."""
    for case, (spans, messages) in _whole(tried):
        if wrong := wrong_messages(case, spans, messages):
            raise _failed(tried, case, wrong, "one message to each other device that needs a value")


@sized("groups wait for messages", points=2, sizes=PLAYED, run=_ran(run_play))
def check_played(tried: PlacementRun) -> None:
    """With messages that take time."""
    _spans(tried)


@sized("a placement that does not fit is not played", points=1, sizes=[(6, 2), (8, 3), (10, 4)],
       run=_ran(run_memory))  # fmt: skip
def check_memory(tried: PlacementRun) -> None:
    """None where the groups on a device hold more bytes than it has, else a play."""
    for case, found in zip(tried.cases, tried.left.found, strict=True):
        over = [(d, bytes) for d, bytes in enumerate(case.over) if bytes]
        if over and (found is not None or tried.left.odd):
            raise _failed(
                tried, case,
                (
                    f"play plays a placement whose groups hold {over[0][1]:g} bytes more than "
                    f"device {over[0][0]} has",
                    "a placement over the memory is accepted: what do the weights of a device's "
                    "groups add up to?",
                ),
                "None",
            )  # fmt: skip
        if not over and found is None:
            seen = "play returned None for a placement that fits to the byte"
            why = "a device may be full to the last byte: which comparison is it?"
            raise _failed(tried, case, (seen, why), "spans and messages")


@sized("each group where it ends first", points=3, sizes=PLACED, run=_ran(run_greedy))
def check_greedy(tried: PlacementRun) -> None:
    """In the order of upward ranks, each on the device where it ends first, when its inputs are
    there and the device is free."""
    _placements(tried, "the device on which it ends first")


@sized("no device holds more than it can", points=1, sizes=[(7, 2), (9, 3), (10, 4, True)],
       run=_ran(run_greedy, fits=True))  # fmt: skip
def check_fits(tried: PlacementRun) -> None:
    """Of the devices that have room."""
    _placements(tried, "of the devices with room the one on which it ends first")


@sized("placements are drawn from the logits", points=1, sizes=[(3, 2), (4, 3), (5, 4)],
       run=_ran(run_sample))  # fmt: skip
def check_sample(left: SampleLeft) -> None:
    """Each group's device by the softmax of its logits, all draws from one generator."""
    groups, count = left.logits.shape
    where = f"{PlacementSize(groups, count)}, "
    if left.odd:
        raise CheckFailed(
            f"{where}sample returned {left.odd}",
            f"a list of {groups} devices, numbers from 0 to {count - 1}",
            "a placement has a device for each group: `.tolist()` makes numbers of a tensor.",
        )
    if wrong := wrong_samples(left):
        raise CheckFailed(f"{where}{wrong[0]}", "draws from the softmax of each row", wrong[1])


@sized("what was better than expected becomes likelier", points=3, sizes=[(4, 2), (5, 3), (6, 4)],
       run=_ran(run_update))  # fmt: skip
def check_update(left: UpdateLeft) -> None:
    """The logits after one update by REINFORCE, and the baseline."""
    groups, devices = left.logits.shape
    if wrong := wrong_update(left, RATE):
        raise CheckFailed(
            f"{PlacementSize(groups, devices)}, {wrong[0]}",
            "lr times the mean of (reward - baseline) times the gradient of log p",
            wrong[1],
        )


@sized("what is learned is better than chance", points=2, sizes=[(10, 2), (6, 3, True), (8, 2)],
       run=_ran(run_learn))  # fmt: skip
def check_learn(tried: LearnRun) -> None:
    """The last plays are better than placements at random, and the best one is returned."""
    if wrong := wrong_learning(tried):
        raise CheckFailed(
            f"{tried.size}, {wrong[0]}", "ever better plays, and the best of them", wrong[1]
        )


def _whole(tried: PlacementRun) -> list[tuple[Case, Any]]:
    """Each case with spans and messages. Raises CheckFailed if there are none."""
    for case, found in zip(tried.cases, tried.left.found, strict=True):
        if found is None:
            said = tried.left.odd or "play returned None"
            why = "play returns two lists: a (start, end) for each group, and a (group, device, "
            raise _failed(
                tried, case, (said, f"{why}start, end) for each message."), "spans and messages"
            )
    return [*zip(tried.cases, tried.left.found, strict=True)]


def _spans(tried: PlacementRun) -> None:
    for case, (spans, _) in _whole(tried):
        if wrong := wrong_spans(case, spans):
            raise _failed(tried, case, wrong, "each group as soon as it can, by the rule")


def _placements(tried: PlacementRun, due: str) -> None:
    if tried.left.odd:
        raise CheckFailed(
            f"{tried.size}, greedy returned {tried.left.odd}",
            "a list with the device of each group",
            "which line returns? A placement is a list, by the numbers of the groups.",
        )
    if wrong := wrong_greedy(tried):
        raise CheckFailed(f"{tried.size}, {wrong[0]}", due, wrong[1])


def _failed(tried: PlacementRun, case: Case, wrong: tuple[str, str], due: str) -> CheckFailed:
    return CheckFailed(f"{tried.size}, placement {[*case.placement]}: {wrong[0]}", due, wrong[1])


# -- rehearsals ------------------------------------------------------------------------------------


@dataclass(repr=False)
class PlacementRehearsal(Rehearsal):
    """A rehearsal with the seconds that a placement took, or the best of those played; the mean
    of each step's plays; and by how much a logit changes."""

    seconds: float = 0
    means: list[float] = field(default_factory=list)
    change: float = 0


def rehearse(program: Callable[..., Any], placement: Sequence[int], message: float) -> Any:
    """Play a placement of a stem, four branches and a join on two devices, with messages of so
    many seconds."""
    case = Case(BRANCHES, Devices(2, Link(message, inf)), [*placement])
    try:
        tried = played_cases(PlacementSize(6, 2), program, [case])
        ((_, (spans, messages)),) = _whole(tried)
    except CheckFailed as failed:
        return PlacementRehearsal(**vars(Rehearsal.stopped(failed, 2)))
    trace, wrong = _trace(case, spans, messages), None
    took = max((end for _, end in spans), default=0)
    summary = f"placement {[*placement]} with messages of {message:g} s: {took:g} s"
    wrong = wrong_spans(case, spans) or wrong_messages(case, spans, messages)
    if wrong:
        said = CheckFailed(wrong[0], "", wrong[1]).in_short
        return PlacementRehearsal(trace, f"{summary}\nnot yet right\n{said}", seconds=took)
    return PlacementRehearsal(trace, summary, True, took)


def rehearse_greedy(program: Callable[..., Any], player: Callable[..., Any], message: float) -> Any:
    """What the placement of a greedy promises, and what it takes when it is played."""
    case = Case(BRANCHES, Devices(2, Link(message, inf)), [])
    size = PlacementSize(6, 2)
    try:
        tried = run_greedy(size, program, cases=[case])
        _placements(tried, "where it ends first")
    except CheckFailed as failed:
        return PlacementRehearsal(**vars(Rehearsal.stopped(failed, 2)))
    (found,) = tried.left.found
    promised = max(ends[found[group]][1] for group, ends in greedy(case, given=found))
    done = rehearse(player, found, message)
    done.summary = f"{done.summary}; promised were {promised:g} s"
    return done


def rehearse_update(program: Callable[..., Any]) -> Any:
    """By how much the logit of a device rises whose sample has a reward of -2, with a baseline of
    -3, a probability of 1/4 and lr = 1."""
    left = UpdateLeft(torch.zeros(1, 4, dtype=torch.float64), [[2]], [4.0], -3.0)
    try:
        left = run_update(PlacementSize(1, 4), program, left, 1.0)
        if wrong := wrong_update(left, 1.0):
            raise CheckFailed(wrong[0], "", wrong[1])
    except CheckFailed as failed:
        return PlacementRehearsal(**vars(Rehearsal.stopped(failed, 1)))
    assert left.after is not None
    logits = left.after[0].tolist()
    said = ", ".join(f"{each:g}" for each in logits)
    return PlacementRehearsal(Trace(), f"logits 0, 0, 0, 0 become {said}", True, change=logits[2])


def rehearse_learn(program: Callable[..., Any], steps: int = 100, seed: int = 1) -> Any:
    """Learn to place the lab's graph of ten groups on two devices, with messages of 1 s."""
    try:
        tried = run_learn(PlacementSize(10, 2), program, steps, (seed,))
    except CheckFailed as failed:
        return PlacementRehearsal(**vars(Rehearsal.stopped(failed, 2)))
    plays = [each for each in tried.left.seconds[0] if each is not None]
    best = min(plays, default=0)
    every = tried.all
    summary = (
        f"{len(plays)} plays, the best takes {best:g} s; of all {len(every)} placements the best "
        f"takes {every[0]:g} s, {sum(every) / len(every):.3g} s in the mean"
    )
    if plays:
        summary += f"; the last 50 plays take {sum(plays[-50:]) / len(plays[-50:]):.3g} s"
    if wrong := wrong_learning(tried):
        summary += f"\nnot yet right\n{CheckFailed(wrong[0], '', wrong[1]).in_short}"
    updates = [plays[i : i + SAMPLES] for i in range(0, len(plays), SAMPLES)]
    means = [sum(each) / len(each) for each in updates]
    return PlacementRehearsal(Trace(), summary, not wrong, best, means)


def _trace(case: Case, spans: Sequence[Span], messages: Sequence[Any]) -> Trace:
    rows = [
        {"rank": device, "lane": "compute", "kind": "forward", "name": f"group {group}",
         "stage": group, "start": start, "end": end}
        for group, (device, (start, end)) in enumerate(zip(case.placement, spans, strict=False))
    ]  # fmt: skip
    sent = [
        {"src": case.placement[group], "dst": to, "nbytes": case.graph.nbytes[group], "tag": group,
         "sent": start, "arrived": end, "received": end}
        for group, to, start, end in messages
        if 0 <= group < len(case.placement)
    ]  # fmt: skip
    return Trace(rows, sent, meta={"clock": "simulated", "ranks": case.devices.count})
