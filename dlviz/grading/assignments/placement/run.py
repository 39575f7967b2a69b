"""Run a student's placement functions, and record the results for a check.

    spans, messages = play(graph, placement, devices)     None where the placement does not fit
    placement = greedy(graph, devices)
    placement = sample(logits, rng)
    logits, baseline = update(logits, placements, seconds, baseline, lr)
    placement = learn(play, groups, devices, steps, rng)

Graphs are dlviz.sim's, drawn anew for each run (model.py); those of `learn` are always the same, so
that its draws are, too. `learn` gets a player of the checks, so that its points do not depend on
the student's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf
from typing import Any

import torch

from dlviz.cluster import Comm
from dlviz.grading.assignments.placement.model import (
    Case,
    Sent,
    Span,
    devices_of,
    drawn,
    every_placement,
    graph_of,
    memory_cases,
    shows_fits,
    shows_greedy,
    shows_played,
    shows_spans,
)
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness import dealt
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.feedback import number
from dlviz.grading.harness.guard import calls_of_dlviz
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Link
from dlviz.sim.placement import LAB, Devices, Graph

Program = Callable[..., Any]
GIVEN = "sim/placement/graph.py", "machine/", "counts.py"  # what a graph says of itself
SAMPLES, LR, PENALTY = 10, 2.0, 60.0  # as the notebook has them
STEPS, DRAWS, RATE = 60, 1500, 0.5
SEEDS = 1, 2, 3
OWN = OwnWork(
    "lines of your own",
    "when can a group start, and where does it end first?",
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "positional argument": "play gets (graph, placement, devices), greedy (graph, devices), sample "
    "(logits, rng), update (logits, placements, seconds, baseline, lr), learn (play, groups, "
    "devices, steps, rng).",
    "no attribute": "the table above play lists what graph and devices have.",
    "KeyError": "what is looked up there was not stored before: do parents come before their "
    "children, whatever their numbers, and is a value also stored for its own device?",
    "arg is an empty sequence": "of nothing there is no max or min, unless it gets a default: "
    "which group has no parents? Which list is empty?",
    "iterable argument is empty": "of nothing there is no max or min, unless it gets a default: "
    "which group has no parents? Which list is empty?",
    "NoneType": "something is None there: does every branch return? A placement that does not fit "
    "has no seconds.",
}  # fmt: skip
attempted = partial(harness.attempt, where="", known=KNOWN, own=OWN, plain=True)


@dataclass(frozen=True)
class PlacementSize(Size):
    """A number of groups, and devices of which each may take another time."""

    legend = "groups x devices"
    groups: int
    devices: int
    unequal: bool = False

    def __str__(self) -> str:
        unequal = " of unequal speed" * self.unequal
        return f"with {number(self.groups, 'group')} on {number(self.devices, 'device')}{unequal}"

    @property
    def short(self) -> str:
        return f"{self.groups}x{self.devices}{' (unequal)' * self.unequal}"

    @property
    def trivial(self) -> bool:
        return self.devices == 1


# -- players and greedies --------------------------------------------------------------------------


@dataclass
class PlacementsLeft(Left):
    """For each case what the function returned, in plain numbers: of a player (spans, messages) or
    None, of a greedy a list; and where that is something else, what."""

    found: list[Any] = field(default_factory=list)
    odd: str = ""


@dataclass(frozen=True)
class PlacementRun:
    size: PlacementSize
    cases: list[Case]
    left: PlacementsLeft


def run_play(size: PlacementSize, program: Program, free: bool = False) -> PlacementRun:
    """Play placements; messages are `free`, or take time."""
    shows, link = (shows_spans, Link(0, inf)) if free else (shows_played, None)
    return played_cases(size, program, drawn(*_numbers(size), shows, link))


def run_memory(size: PlacementSize, program: Program) -> PlacementRun:
    return played_cases(size, program, memory_cases(size.groups, size.devices))


def played_cases(size: PlacementSize, program: Program, cases: list[Case]) -> PlacementRun:
    run = attempted(_played, 1, program, cases, where=size, expects="spans and messages")
    return PlacementRun(size, cases, run.results[0])


def run_greedy(
    size: PlacementSize, program: Program, fits: bool = False, cases: list[Case] | None = None
) -> PlacementRun:
    """Place graphs, drawn unless there are `cases`; where it has to `fit`, memory is short."""
    shows = shows_fits if fits else shows_greedy
    cases = cases or drawn(*_numbers(size), shows, memory=fits)
    run = attempted(_placed, 1, program, cases, where=size, expects="a placement")
    return PlacementRun(size, cases, run.results[0])


def _numbers(size: PlacementSize) -> tuple[int, int, bool]:
    return size.groups, size.devices, size.unequal


def _played(comm: Comm, program: Program, cases: list[Case]) -> PlacementsLeft:
    left = PlacementsLeft()
    for case in cases:
        found = _called(left, program, case.graph, [*case.placement], case.devices)
        left.found.append(None if found is None else _spans_and_messages(left, found))
    return left


def _placed(comm: Comm, program: Program, cases: list[Case]) -> PlacementsLeft:
    left = PlacementsLeft()
    for case in cases:
        found = _called(left, program, case.graph, case.devices)
        left.found.append(_devices(left, found, len(case.graph), case.devices.count))
    return left


def _called(left: Left, program: Program, *given: Any) -> Any:
    for each in given:
        if isinstance(each, Graph):
            assert each.children  # computed here, once
    with calls_of_dlviz(left.borrowed, *GIVEN):
        return program(*given)


def _spans_and_messages(left: PlacementsLeft, found: Any) -> tuple[list[Span], list[Sent]] | None:
    """In plain numbers."""
    try:
        spans, messages = found
        return [(float(a), float(b)) for a, b in spans], [
            (int(group), int(to), float(a), float(b)) for group, to, a, b in messages
        ]
    except (TypeError, ValueError):
        left.odd = left.odd or f"play returned {_brief(found)}"
    return None


def _devices(left: PlacementsLeft, found: Any, groups: int, count: int) -> list[int] | None:
    """A placement in plain numbers; None, and a word of it, if it is none."""
    try:
        devices = [int(each) for each in found]
    except (TypeError, ValueError):
        devices = []
    if len(devices) == groups and all(0 <= each < count for each in devices):
        return devices
    left.odd = left.odd or _brief(found)
    return None


def _brief(item: Any) -> str:
    said = "nothing" if item is None else repr(item)
    return said if len(said) <= 60 else f"{said[:57]}..."


# -- learning --------------------------------------------------------------------------------------


@dataclass
class SampleLeft(PlacementsLeft):
    """`found`: the placements drawn; `again`: the first ones, from the same seed."""

    logits: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    again: list[Any] = field(default_factory=list)


def run_sample(size: PlacementSize, program: Program) -> SampleLeft:
    logits = dealt.drawn(size.groups, size.devices)
    run = attempted(_sampled, 1, program, logits, where=size, expects="a placement", times=2)
    return run.results[0]


def _sampled(comm: Comm, program: Program, logits: torch.Tensor) -> SampleLeft:
    left = SampleLeft(logits=logits)
    for found, draws in ((left.found, DRAWS), (left.again, 20)):
        rng = torch.Generator().manual_seed(DRAWS)
        for _ in range(draws):
            each = _called(left, program, logits.clone(), rng)
            found.append(_devices(left, each, *logits.shape))
            if found[-1] is None:
                return left
    return left


@dataclass
class UpdateLeft(Left):
    """What `update` got, and the logits and the baseline that it returned (None: no such thing)."""

    logits: torch.Tensor
    placements: list[list[int]]
    seconds: list[float]
    baseline: float
    after: torch.Tensor | None = None
    new_baseline: float | None = None


def run_update(
    size: PlacementSize, program: Program, left: UpdateLeft | None = None, lr: float = RATE
) -> UpdateLeft:
    """One update, drawn unless it is given, by a sample less than there are groups: so each one's
    share can be solved for."""
    left = left or _drawn_update(size)
    return attempted(_updated, 1, program, left, lr, where=size, expects="two things").results[0]


def _drawn_update(size: PlacementSize) -> UpdateLeft:
    draw = random.SystemRandom()
    placements: list[list[int]] = []
    while len(placements) < size.groups - 1:
        each = [draw.randrange(size.devices) for _ in range(size.groups)]
        placements += [each] * (each not in placements)
    seconds = [draw.uniform(4, 30) for _ in placements]
    logits, baseline = dealt.drawn(size.groups, size.devices), -draw.uniform(3, 4)
    return UpdateLeft(logits, placements, seconds, baseline)


def _updated(comm: Comm, program: Program, left: UpdateLeft, lr: float) -> UpdateLeft:
    given = left.logits.clone(), [[*each] for each in left.placements], [*left.seconds]
    found = _called(left, program, *given, left.baseline, lr)
    if isinstance(found, tuple | list) and len(found) == 2:
        after, baseline = found
        if isinstance(after, torch.Tensor):
            left.after = dealt.copied(after)
        if isinstance(baseline, torch.Tensor) and baseline.numel() == 1:
            baseline = baseline.item()
        if isinstance(baseline, int | float):
            left.new_baseline = float(baseline)
    return left


@dataclass
class LearnLeft(PlacementsLeft):
    """Of each seed the placement that `learn` returned (`found`; [] if it is none), those that it
    played, and their seconds."""

    plays: list[list[list[int]]] = field(default_factory=list)
    seconds: list[list[float | None]] = field(default_factory=list)


@dataclass(frozen=True)
class LearnRun:
    size: PlacementSize
    graph: Graph
    devices: Devices
    left: LearnLeft

    @property
    def all(self) -> list[float]:
        """The seconds of every placement, in order; PENALTY for those that do not fit."""
        return sorted(counted(table_of(self.graph, self.devices).values()))


def learned_graph(size: PlacementSize) -> tuple[Graph, Devices]:
    """The lab's graph for ten groups on two devices; the others are drawn, the same ones always.
    With eight groups memory is short."""
    if size.groups == 10:
        return LAB, Devices(2, Link(1, inf))
    draw = random.Random(size.groups)
    graph = graph_of(size.groups, draw)
    devices = devices_of(size.devices, size.unequal, draw)
    if size.groups == 8:
        room = int(1.25 * sum(graph.weights or ()) / size.devices)
        devices = Devices(size.devices, devices.link, devices.factors, room)
    return graph, devices


def run_learn(
    size: PlacementSize, program: Program, steps: int = STEPS, seeds: Sequence[int] = SEEDS
) -> LearnRun:
    """Let `program` learn once with each seed: by one alone a wrong learner may be lucky."""
    graph, devices = learned_graph(size)
    run = attempted(
        _learned, 1, program, table_of(graph, devices), devices.count, steps, seeds,
        where=size, expects="the best placement that was played", times=3,
    )  # fmt: skip
    return LearnRun(size, graph, devices, run.results[0])


def _learned(
    comm: Comm, program: Program, table: dict[Any, Any], count: int, steps: int,
    seeds: Sequence[int],
) -> LearnLeft:  # fmt: skip
    left, groups = LearnLeft(), len(next(iter(table)))

    def play(placement: Any) -> float | None:
        each = _devices(left, placement, groups, count)
        if each is None:
            raise ValueError(f"play needs a device for each group, and got {_brief(placement)}.")
        if len(left.plays[-1]) == steps * SAMPLES:
            raise ValueError(f"play was called more than {SAMPLES} times a step.")
        left.plays[-1].append(each)
        left.seconds[-1].append(table[tuple(each)])
        return left.seconds[-1][-1]

    for seed in seeds:
        left.plays.append([])
        left.seconds.append([])
        rng = torch.Generator().manual_seed(seed)
        found = _called(left, program, play, groups, count, steps, rng)
        left.found.append(_devices(left, found, groups, count) or [])
    return left


def counted(seconds: Iterable[float | None]) -> list[float]:
    return [PENALTY if each is None else each for each in seconds]


@lru_cache(maxsize=8)
def table_of(graph: Graph, devices: Devices) -> dict[tuple[int, ...], float | None]:
    return every_placement(graph, devices)
