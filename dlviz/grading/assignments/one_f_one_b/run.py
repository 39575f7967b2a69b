"""The rows of a student's pipeline schedule: what each rank does, from the student's function.

    one_f_one_b(rank, ranks, microbatches)             "F0", "B3": of the rank's one stage
    interleaved(rank, ranks, microbatches, chunks)     "6F0", "2B3": the stage first

One process asks for all ranks and sizes of a check. A function that raises, never ends, yields
something else, or takes its row from dlviz's own schedules gives a CheckFailed that says why.
"""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dlviz.cluster import Comm, RunError
from dlviz.grading.harness.check import Program, each_alone
from dlviz.grading.harness.feedback import CheckFailed, listed, number, raised
from dlviz.grading.harness.guard import calls_of_dlviz
from dlviz.grading.harness.sandbox import HINTS, NEVER_ENDS, TimeUp, ended_by, run_alone, why_ended
from dlviz.grading.harness.sizes import Size
from dlviz.schedules import Action, Schedule, make
from dlviz.schedules.orders import loop

ONE = re.compile(r"(\d{0,6})([FB])(-?\d{1,6})")
FRACTION = re.compile(r"\d*[FB]-?\d+\.\d+")
PARAMETERS = ("rank", "ranks", "microbatches", "chunks")
PICTURE = "4x8"  # the size that the notebook shows
PRINTED = 10_000  # characters of the function's output that are shown
WHOLE = "ranks and microbatches have whole numbers: `/` makes a fraction, `//` does not."
ONE_ROW = "the function gives the row of one rank; it is called once for each."
OUTSIDE = (
    "a list made outside the call, or as a parameter's default, exists once, and every call adds "
    "to it."
)


@dataclass(frozen=True)
class ScheduleSize(Size):
    """Ranks, microbatches, and for an interleaved schedule the chunks of each rank."""

    ranks: int
    microbatches: int
    chunks: int | None = None  # None: 1F1B, whose actions name no stage

    @property
    def trivial(self) -> bool:
        return False

    @property
    def stages(self) -> int:
        return self.ranks * (self.chunks or 1)

    @property
    def reference(self) -> Schedule:
        name = "1f1b" if self.chunks is None else "interleaved"
        return make(name, self.ranks, self.microbatches, self.chunks)

    def __str__(self) -> str:
        words = f"on {number(self.ranks, 'rank')} with {number(self.microbatches, 'microbatch')}"
        return words + (f" and {number(self.chunks, 'chunk')}" if self.chunks else "")

    @classmethod
    def listed(cls, sizes: Sequence[ScheduleSize]) -> str:
        legend = "p x m" + " x v" * (sizes[0].chunks is not None)
        return f"at {legend} = {listed([size.short for size in sizes])}"

    @property
    def short(self) -> str:
        chunks = "" if self.chunks is None else f"x{self.chunks}"
        return f"{self.ranks}x{self.microbatches}{chunks}"

    @staticmethod
    def in_common(passed: Sequence[ScheduleSize], failed: Sequence[ScheduleSize]) -> str:
        if not passed or len(failed) + len(passed) < 3:
            return ""
        if all(size.few for size in failed) and not any(size.few for size in passed):
            return (
                "it works for as many microbatches as ranks or more. Here there are fewer: how "
                "long is this rank's warm-up then, and how far does each of your loops run?"
            )
        if [size.short for size in passed] == [PICTURE]:
            return (
                f"it works only {passed[0]}. Which numbers in it belong to that size, where rank, "
                "ranks or microbatches should be?"
            )
        if all(size.divisible for size in passed) and not any(size.divisible for size in failed):
            return "it works where the ranks divide the microbatches. Where does yours rely on it?"
        return ""

    @property
    def few(self) -> bool:
        return self.microbatches < self.ranks

    @property
    def divisible(self) -> bool:
        return self.microbatches % self.ranks == 0


@dataclass(frozen=True)
class Tried:
    """The rows of a student's program at one size."""

    size: ScheduleSize
    rows: list[list[Action]]

    @property
    def schedule(self) -> Schedule:
        """With each stage on the rank where it belongs."""
        return Schedule(self.rows, loop(self.size.ranks, self.size.chunks or 1), "yours")

    def says(self, action: Action) -> str:
        """An action as the student writes it."""
        return str(action) if self.size.chunks else f"{action.kind}{action.microbatch}"

    def shows(self, rank: int, end: int) -> str:
        """The row of `rank` up to the action at place `end`, which is in brackets."""
        cells = [self.says(action) for action in self.rows[rank][: end + 1]]
        if end < len(cells):
            cells[-1] = f"[{cells[-1]}]"
        return " ".join(["..."] * (len(cells) > 12) + cells[-12:])


def rows_of(
    programs: Sequence[Program], sizes: Sequence[ScheduleSize]
) -> dict[ScheduleSize, Tried | CheckFailed]:
    """The program's rows at each size; a run that does not finish is repeated size by size, so
    that one size costs no other."""
    try:
        found, printed = run_alone(_asked, 1, programs[0], sizes).results[0]
    except RunError as error:
        if len(sizes) > 1:
            return each_alone(rows_of, programs, sizes)
        spans = [] if error.trace is None else [*error.trace.spans.rows()]
        where = next((row.name for row in reversed(spans) if row.kind == "phase"), str(sizes[0]))
        failed = _ended(error, where)
        failed.__cause__ = error
        return {sizes[0]: failed}
    print(printed, end="")
    return dict(zip(sizes, found, strict=True))


def _ended(error: RunError, where: str) -> CheckFailed:
    expected = "the actions of the rank, one after the other"
    if isinstance(error, TimeUp):
        return CheckFailed(
            f"{where}, the function was still running when the time was up, {error.places[0]}",
            expected,
            NEVER_ENDS,
        )
    return CheckFailed(f"{where}: {ended_by(error)}", expected, why_ended(error))


def _asked(
    comm: Comm, program: Program, sizes: Sequence[ScheduleSize]
) -> tuple[list[Tried | CheckFailed], str]:
    """The rows of all ranks at each size, and what the program printed."""
    found, printed = [], io.StringIO()
    returned: list[Any] = []  # the lists returned so far: each call must make a new one
    with redirect_stdout(printed):
        for size in sizes:
            try:
                _check_parameters(program, size)
                rows = []
                for rank in range(size.ranks):
                    with comm.span("phase", f"{size}, rank {rank}"):
                        rows.append(_row(program, size, rank, returned))
                found.append(Tried(size, rows))
            except CheckFailed as failed:
                found.append(failed)
    return found, printed.getvalue()[:PRINTED]


def _check_parameters(program: Program, size: ScheduleSize) -> None:
    names = [*inspect.signature(program).parameters] if callable(program) else []
    wanted = [*PARAMETERS[: 3 if size.chunks is None else 4]]
    if names != wanted and sorted(names) == sorted(wanted):
        raise CheckFailed(
            f"the function has the parameters {', '.join(names)}",
            f"{', '.join(wanted)}, in this order",
            "the order counts: the first number given is the rank, the second the ranks.",
        )


def _row(program: Program, size: ScheduleSize, rank: int, returned: list[Any]) -> list[Action]:
    numbers = (rank, size.ranks, size.microbatches, size.chunks)
    most = 2 * size.microbatches * (size.chunks or 1)
    where, expected = f"{size}, rank {rank}", f"the {most} actions of the rank, one after the other"
    borrowed: list[str] = []
    try:
        with calls_of_dlviz(borrowed):
            given = program(*numbers[: 3 if size.chunks is None else 4])
            items = [*islice(given, 10 * most)] if isinstance(given, Iterable) else None
    except BaseException as error:
        raise CheckFailed(f"{where} raised {raised(error)}", expected, _why_raised(error)) from None
    if borrowed:
        raise CheckFailed(
            f"{where}: the row was made by {borrowed[0]}",
            "a row that your own lines make",
            "you may look at dlviz's own schedules. Which rank does what, and when, is yours to "
            "write.",
        )
    if items is None or isinstance(given, str | dict):
        raise CheckFailed(
            f"{where}: the function returned {_brief(given)}", expected, _why_no_row(given)
        )
    if isinstance(given, list) and any(given is other for other in returned):
        raise CheckFailed(
            f"{where}: the function returned the list that it had returned before",
            "a new list for each rank and each size",
            OUTSIDE,
        )
    returned.append(given)
    if len(items) == 10 * most:
        raise CheckFailed(
            f"{where} was still yielding after {len(items)} actions",
            f"{most} actions: an F and a B for each microbatch{' and chunk' * bool(size.chunks)}",
            "a loop does not end: what changes in it, and when should it stop?",
        )
    if not items:
        raise CheckFailed(
            f"{where} yielded nothing",
            expected,
            "what is the first action of this rank, and what the last? (`return` ends a generator, "
            "`yield` goes on.)",
        )
    return [_action(item, size, rank, expected) for item in items]


def _action(item: Any, size: ScheduleSize, rank: int, expected: str) -> Action:
    found = ONE.fullmatch(item.strip()) if isinstance(item, str) else None
    if not found or (size.chunks and not found[1]):
        named = "4F0 or 4B3" if size.chunks else "F0 or B3"
        raise CheckFailed(
            f"{size}, rank {rank} yielded {_brief(item)}, which is no action",
            f"{expected}, each a text such as {named}",
            _why_no_action(item, size),
        )
    stage, kind, microbatch = found.groups()
    return Action(int(stage or rank), kind, int(microbatch))


def _why_no_row(given: Any) -> str:
    if isinstance(given, str):
        return "a text is read character by character: yield each action by itself."
    if isinstance(given, dict):
        return ONE_ROW
    return "yield each action where it is due, or put them into a list and return that."


def _why_no_action(item: Any, size: ScheduleSize) -> str:
    if isinstance(item, Action):
        return "that is an object of dlviz's own: write each action as a text."
    if isinstance(item, str) and FRACTION.fullmatch(item.strip()):
        return WHOLE
    if isinstance(item, list):
        return ONE_ROW
    if isinstance(item, str) and len(re.findall(r"[FB]\W*\d", item)) > 1:
        return "these are several actions in one text: yield each of them by itself."
    symbols = re.sub("[^0-9FB-]", "", item.upper()) if isinstance(item, str) else ""
    if symbols != item and ONE.fullmatch(symbols):
        return "write a capital F or B, and the number right after it: F0, B3."
    if item is None or (isinstance(item, str) and not re.search(r"[FB]", item)):
        return "waiting is not written down: a rank waits by itself for what its action needs."
    text, where = ("{stage}B{i}", " and stage the stage") if size.chunks else ("B{i}", "")
    return f'an f-string makes one: f"{text}", where i is the microbatch{where}.'


def _why_raised(error: BaseException) -> str:
    if isinstance(error, TypeError) and "'float'" in str(error):
        return WHOLE
    if isinstance(error, TypeError) and "argument" in str(error):
        return "leave the function's parameters unchanged."
    return next(
        (hint for name, hint in HINTS.items() if name == type(error).__name__),
        "call the function for that rank in a new cell, and look at what it yields.",
    )


def _brief(item: Any) -> str:
    return repr(item) if len(repr(item)) <= 40 else f"{repr(item)[:37]}..."
