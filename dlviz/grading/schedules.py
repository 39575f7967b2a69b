"""Checks of pipeline schedules that a student wrote: what was seen, what was expected, one hint.

The student writes what one rank does, as a generator (or a function that returns a list):

    one_f_one_b(rank, ranks, microbatches)             "F0", "B3": of the rank's one stage
    interleaved(rank, ranks, microbatches, chunks)     "6F0", "2B3": the stage first

Each check asks for the rows of all ranks, at several sizes, and looks at one side of them alone;
check_training lets real ranks train with them. A program that raises, never ends or yields
something else is told of in a few lines. Symbols: p ranks, m microbatches, v chunks, r a rank.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from dlviz.cluster import launch
from dlviz.grading import training
from dlviz.grading.feedback import NOT_WRITTEN, CheckFailed, Rehearsal, raised
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, peak_in_flight
from dlviz.schedules import Action, Schedule, ScheduleError, make
from dlviz.schedules.orders import loop
from dlviz.schedules.rules import check_progress
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace

__all__ = [
    "CHUNKED",
    "PLAIN",
    "CheckFailed",
    "Rehearsal",
    "check_bubble",
    "check_in_flight",
    "check_no_deadlock",
    "check_order",
    "check_training",
    "rehearse",
    "train",
]
Program = Callable[..., Any]
Sizes = Sequence[tuple[int, ...]]

PLAIN = ((4, 8), (3, 7), (5, 3))  # ranks, microbatches
CHUNKED = ((4, 8, 2), (2, 6, 3), (3, 3, 2))  # and chunks
ONE = re.compile(r"(\d{0,6})([FB])(-?\d{1,6})")
STEP = 0.005  # s that a forward takes through all stages of a rank; a backward takes twice that
LINES = 100_000  # lines of Python that a row may take; a hundred actions take some hundred


@dataclass(frozen=True)
class Size:
    ranks: int
    microbatches: int
    chunks: int | None = None  # None: 1F1B, whose actions name no stage

    @property
    def stages(self) -> int:
        return self.ranks * (self.chunks or 1)

    @property
    def reference(self) -> Schedule:
        name = "1f1b" if self.chunks is None else "interleaved"
        return make(name, self.ranks, self.microbatches, self.chunks)

    @property
    def divisible(self) -> bool:
        return self.microbatches % self.ranks == 0

    def __str__(self) -> str:
        words = f"on {_number(self.ranks, 'rank')} with {_number(self.microbatches, 'microbatch')}"
        return words + (f" and {_number(self.chunks, 'chunk')}" if self.chunks else "")


@dataclass(frozen=True)
class Tried:
    """The rows that a student's program gave, at one size."""

    size: Size
    rows: list[list[Action]]

    @property
    def schedule(self) -> Schedule:
        """With each stage on the rank where it belongs."""
        return Schedule(self.rows, loop(self.size.ranks, self.size.chunks or 1), "yours")

    def says(self, action: Action) -> str:
        """An action as the student writes it."""
        return str(action) if self.size.chunks else f"{action.kind}{action.microbatch}"

    def shows(self, rank: int, end: int) -> str:
        """The row of `rank` up to the action number `end`, which stands in brackets."""
        cells = [self.says(action) for action in self.rows[rank][: end + 1]]
        if end < len(cells):
            cells[-1] = f"[{cells[-1]}]"
        return " ".join(["..."] * (len(cells) > 12) + cells[-12:])


def check_order(program: Program, sizes: Sizes = PLAIN) -> None:
    """Each rank runs each F and B of its stages once, in the schedule's order, a backward after its
    own forward; and from the first backward on, forwards and backwards take turns."""

    def check(size: Size) -> None:
        tried = try_out(program, size)
        for rank in range(size.ranks):
            _check_places(tried, rank)
            _check_each_once(tried, rank)
            _check_sequence(tried, rank)
            _check_turns(tried, rank)

    _on_each(sizes, check)
    _passed("every action is there once, and in order", sizes)


def check_in_flight(program: Program, sizes: Sizes = PLAIN) -> None:
    """The most microbatches whose forward a rank has run and whose backward it has not:
    min(p - r, m), and of chunks min(2(p-1-r) + (v-1)p + 1, vm)."""

    def check(size: Size) -> None:
        tried = try_out(program, size)
        held = [_held(row) for row in tried.rows]
        for rank, row in enumerate(size.reference.actions):
            wanted = _held(row)
            if held[rank] != wanted:
                what = "chunk" if size.chunks else "microbatch"
                raise CheckFailed(
                    f"{size}, rank {rank} holds the activations of up to "
                    f"{_number(held[rank], what)} at once",
                    f"{wanted}: {_formula(size)} with r = {rank}",
                    _why_held(tried, held, rank, wanted),
                )

    _on_each(sizes, check)
    _passed("no rank holds too much or too little", sizes)


def check_no_deadlock(program: Program, sizes: Sizes = PLAIN) -> None:
    """Every rank comes to the end of its row: what an action waits for is made by somebody who can
    get there."""

    def check(size: Size) -> None:
        tried = try_out(program, size)
        _check_progress(tried)
        if not any(action.kind == "B" for row in tried.rows for action in row):
            raise CheckFailed(
                f"{size}, no rank runs a backward",
                "forwards and backwards that come to their end",
                "without backwards nobody waits for anybody behind: yield them too.",
            )

    _on_each(sizes, check)
    _passed("every rank comes to its end", sizes)


def check_bubble(program: Program, sizes: Sizes = PLAIN) -> None:
    """Simulated, with a B that takes twice an F, the bubble ratio is (p-1)/m, and with chunks
    (p-1)/(vm)."""

    def check(size: Size) -> None:
        tried = try_out(program, size)
        _check_legal(tried)
        trace = simulate(tried.schedule, _costs(size))
        ratio, share = bubble_ratio(trace), size.microbatches * (size.chunks or 1)
        wanted = Fraction(size.ranks - 1, share)
        if abs(ratio - wanted) > 1e-6:
            formula = "(p-1)/(vm)" if size.chunks else "(p-1)/m"
            raise CheckFailed(
                f"{size}, a bubble ratio of {ratio:.4g}",
                f"{formula} = {size.ranks - 1}/{share} = {float(wanted):.4g}",
                _why_idle(tried, trace),
            )

    _on_each(sizes, check)
    _passed("the bubble is that of the formula", sizes)


def check_training(program: Program, sizes: Sizes = PLAIN) -> None:
    """Real ranks take three steps of training in the student's order: the loss of each and the
    gradients of the last are those of one process, up to the order of their sums."""

    def check(size: Size) -> None:
        tried = try_out(program, size)
        _check_legal(tried)
        run = launch(training.work, size.ranks, device="cpu", args=(tried.schedule,))
        if told := training.differs(run.results, size.stages, size.microbatches):
            raise CheckFailed(
                f"{size}, {told}",
                "losses and gradients of one process that has the whole network",
                "compare the rows of the rank that has this stage with its neighbour's.",
            )

    _on_each(sizes, check)
    _passed("real ranks train as one process would", sizes)


def rehearse(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Simulate the student's schedule, as far as it goes where it does not come to its end."""
    size = Size(ranks, microbatches, chunks)
    try:
        tried = try_out(program, size)
    except CheckFailed as failed:
        return Rehearsal(Trace(meta={"clock": "simulated", "ranks": ranks}), _in_short(failed))
    trace, ran = as_far_as_it_goes(tried)
    count = sum(map(len, ran))
    try:
        _check_legal(tried)
    except CheckFailed as failed:
        there = sum(map(len, tried.rows))
        return Rehearsal(trace, f"{count} of {there} actions can run. {_in_short(failed)}")
    held = ", ".join(map(str, peak_in_flight(trace).tolist()))
    told = f"{count} actions; bubble ratio {bubble_ratio(trace):.4g}; in flight at most {held}"
    return Rehearsal(trace, told)


def train(
    program: Program, ranks: int = 4, microbatches: int = 8, chunks: int | None = None
) -> Rehearsal:
    """Train for one step with the student's schedule on real ranks, paced, with messages that take
    no time; where it does not come to its end, simulate it as far as it goes."""
    size = Size(ranks, microbatches, chunks)
    try:
        tried = try_out(program, size)
        _check_legal(tried)
    except CheckFailed:
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


def try_out(program: Program, size: Size) -> Tried:
    """The rows of all ranks. Raises CheckFailed where the program gives none."""
    rows = [_row(program, size, rank) for rank in range(size.ranks)]
    return Tried(size, rows)


def _row(program: Program, size: Size, rank: int) -> list[Action]:
    numbers = (rank, size.ranks, size.microbatches, size.chunks)
    most = 2 * size.microbatches * (size.chunks or 1)
    where, expected = f"{size}, rank {rank}", f"the {most} actions of the rank, one after the other"
    try:
        with _limited(LINES):
            given = program(*numbers[: 3 if size.chunks is None else 4])
            items = [*islice(given, 10 * most)] if isinstance(given, Iterable) else None
    except Exception as error:
        hint = NOT_WRITTEN if isinstance(error, NotImplementedError) else _why_raised(error)
        raise CheckFailed(f"{where} {_how(error)}", expected, hint) from None
    if items is None:
        raise CheckFailed(
            f"{where}: the function returned {given!r}",
            expected,
            "yield each action where it is due, or put them into a list and return that.",
        )
    if len(items) == 10 * most:
        raise CheckFailed(
            f"{where} was still yielding after {len(items)} actions",
            f"{most} actions: an F and a B for each microbatch{' and chunk' * bool(size.chunks)}",
            "a loop does not end: what changes in it, and when is it to stop?",
        )
    if not items:
        raise CheckFailed(
            f"{where} yielded nothing",
            expected,
            "what is the first thing that this rank can do, and what the last?",
        )
    return [_action(item, size, rank, expected) for item in items]


def _action(item: Any, size: Size, rank: int, expected: str) -> Action:
    found = ONE.fullmatch(str(item).strip())
    if not found or (size.chunks and not found[1]):
        named, text = ("4F0 or 4B3", "{stage}B{i}") if size.chunks else ("F0 or B3", "B{i}")
        shown = repr(item) if len(repr(item)) <= 40 else f"{repr(item)[:37]}..."
        raise CheckFailed(
            f"{size}, rank {rank} yielded {shown}, which is no action",
            f"{expected}, each written like {named}",
            f'an f-string makes one: f"{text}", where i is the microbatch'
            f"{' and stage the stage' * bool(size.chunks)}.",
        )
    stage, kind, microbatch = found.groups()
    return Action(int(stage or rank), kind, int(microbatch))


class Endless(Exception):
    """The student's code has run too many lines."""


@contextmanager
def _limited(lines: int) -> Iterator[None]:
    """Raises Endless in what runs inside once it has run so many lines of Python."""
    before = sys.gettrace()

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines -= event == "line"
        if lines < 0:
            raise Endless
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def _how(error: Exception) -> str:
    if isinstance(error, Endless):
        return f"was still busy after {LINES} lines{raised(error).removeprefix('Endless')}"
    return f"raised {raised(error)}"


def _why_raised(error: Exception) -> str:
    if isinstance(error, Endless):
        return "does the loop at that line ever end?"
    if isinstance(error, TypeError) and "argument" in str(error):
        return "leave the function's parameters as they are given."
    return "call the function in a cell of its own for that rank, and look at what it yields."


def _on_each(sizes: Sizes, check: Callable[[Size], None]) -> None:
    """Check each size; of several that fail, tell of the first, and of what they have in common."""
    failed: dict[Size, CheckFailed] = {}
    passed: list[Size] = []
    for numbers in sizes:
        size = Size(*numbers)
        try:
            check(size)
            passed.append(size)
        except CheckFailed as told:
            failed[size] = told
    if not failed:
        return
    first = next(iter(failed.values()))
    if passed and all(size.microbatches < size.ranks for size in failed):
        hint = (
            "it works for as many microbatches as ranks or more. Here there are fewer: which of "
            "your loops then runs too far?"
        )
    elif all(s.divisible for s in passed) and not any(s.divisible for s in failed):
        hint = "it works where the ranks divide the microbatches. Where does yours rely on that?"
        hint = hint if passed else first.hint
    else:
        hint = first.hint
    raise CheckFailed(first.seen, first.expected, hint)


def _passed(what: str, sizes: Sizes) -> None:
    named = ["x".join(map(str, numbers)) for numbers in sizes]
    legend = "p x m" + " x v" * (len(sizes[0]) > 2)
    print(f"Right: {what} ({legend}: {', '.join(named)}).")


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
    wanted = f"each F and each B of the {_number(size.microbatches, 'microbatch')} once"
    for index, action in enumerate(row):
        if action in row[:index]:
            raise CheckFailed(
                f"{size}, rank {rank} runs {tried.says(action)} twice: {tried.shows(rank, index)}",
                wanted,
                "two loops yield it: where is the one to stop, and where is the other to go on?",
            )
    missing = [action for action in size.reference.actions[rank] if action not in row]
    if missing:
        only = {action.kind for action in missing}
        absent = {action.stage for action in missing} - {action.stage for action in row}
        if absent:
            hint = f"stage {min(absent)} is one of this rank's too."
        elif only == {"B"} and any(action.kind == "B" for action in row):
            hint = (
                "after the last forward some microbatches are still in flight: what becomes of "
                "them?"
            )
        elif only == {"B"}:
            hint = "without its backward a microbatch gives no gradient."
        else:
            hint = "how many forwards does each of your loops run, and how many are there in all?"
        said = ", ".join(map(tried.says, missing[:4])) + ", ..." * (len(missing) > 4)
        raise CheckFailed(f"{size}, rank {rank} never runs {said}", wanted, hint)


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
        for number, (seen, wanted) in enumerate(zip(own, order, strict=True)):
            if seen != wanted:
                raise CheckFailed(
                    f"{size}, rank {rank} runs {tried.says(seen)} where {tried.says(wanted)} is "
                    f"due: {tried.shows(rank, row.index(seen))}",
                    f"{name}s in this order: {' '.join(map(tried.says, order[: number + 1]))} ...",
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
    row = tried.rows[rank]
    kinds = "".join(action.kind for action in row)
    first, last = kinds.find("B"), kinds.rfind("F")
    for index in range(first + 1, last + 1):
        if kinds[index] == kinds[index - 1]:
            name = "forwards" if kinds[index] == "F" else "backwards"
            raise CheckFailed(
                f"{tried.size}, rank {rank} runs two {name} in a row: {tried.shows(rank, index)}",
                "after the first backward one forward, one backward, until no forward is left",
                "what does the loop of the steady state yield in each round?",
            )


def _held(row: Sequence[Action]) -> int:
    """The most forwards in a row whose backward has not come yet."""
    return max(np.cumsum([1 if action.kind == "F" else -1 for action in row]).max(), 0)


def _formula(size: Size) -> str:
    return "min(2(p-1-r) + (v-1)p + 1, vm)" if size.chunks else "min(p - r, m)"


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
    if held[rank] > everything:
        return "there are not that many: what if the warm-up is longer than the step?"
    if held[rank] > wanted:
        return (
            "the steady state begins with a forward, which comes on top of those of the warm-up. "
            "How many has the rank run before its first backward?"
        )
    if size.chunks:
        return (
            "the warm-up is too short. What does the first microbatch pass until its gradient is "
            "back: how many stages of this rank, and how far is it to the last rank and back?"
        )
    return (
        "too few to keep the ranks behind this one busy: each of them could have one in its hands. "
        "How many forwards does the warm-up run?"
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
    run = {action.stage for row in tried.rows for action in row}
    if absent := [stage for stage in range(tried.size.stages) if stage not in run]:
        return f"no rank runs stage {absent[0]}. Whose is it?"
    if not any(lacks in row for row in tried.rows):
        return f"no rank runs {lacks} at all. Whose is it?"
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


def _in_short(failed: CheckFailed) -> str:
    return f"{failed.seen[0].upper()}{failed.seen[1:]}\nHint: {failed.hint}"


def _number(count: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"
