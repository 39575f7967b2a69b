"""A check: what an assignment calls on a student's program, and its result.

    @check("every rank ends with the sum", points=3, size=Ranks, sizes=(1, 2, 3), run=on_ranks)
    def check_sums(left):
        "raises CheckFailed if the program's results at one size are wrong"

    check_sums(reduce_scatter, all_gather)      prints what was seen and returns the points

    program ---run---> {size: results} ---judge---> passed or CheckFailed ---> points
            in processes of its own         in a process that has run none of it (judge.py)

Each size has an equal share of the points, rounded down to quarters. In nbgrader a cell has as
many points as its last value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlviz.grading.harness import judge
from dlviz.grading.harness.feedback import CheckFailed, wrapped
from dlviz.grading.harness.sandbox import NOT_WRITTEN, TimeUp
from dlviz.grading.harness.sizes import Size
from dlviz.grading.predictions.hand_in import Points, record_check

Program = Callable[..., Any]


Run = Callable[[Sequence[Program], Sequence[Any]], Mapping[Any, Any]]


@dataclass(frozen=True)
class Report:
    """The result of a check. A size that was not tried is in neither `passed` nor `failed`."""

    what: str
    most: int
    sizes: Sequence[Any]
    passed: Mapping[Any, str]  # size -> a remark to print, usually ""
    failed: Mapping[Any, CheckFailed]

    @property
    def points(self) -> float:
        if all(size.trivial for size in self.passed):
            return 0
        quarters = math.floor(4 * self.most * len(self.passed) / len(self.sizes))
        return quarters // 4 if quarters % 4 == 0 else quarters / 4

    @property
    def right(self) -> bool:
        return not self.failed

    @property
    def failure(self) -> CheckFailed | None:
        """The first failed size, with a hint that fits all of them if there is one."""
        if self.right:
            return None
        size, first = next(iter(self.failed.items()))
        hint = size.in_common([*self.passed], [*self.failed]) or first.hint
        return CheckFailed(first.seen, first.expected, hint)

    def __str__(self) -> str:
        worth = f"{self.points:g} of {self.most} point{'s' * (self.most > 1)}"
        remarks = wrapped(next(filter(None, self.passed.values()), ""))
        listed = self.sizes[0].listed
        if self.right:
            return "\n".join(
                [*wrapped(f"Right, {worth}: {self.what}, {listed(self.sizes)}."), *remarks]
            )
        part = f": right {listed([*self.passed])}" if self.points else ""
        summary = [f"Not yet, {worth}{part}.", str(self.failure)]
        if self.failure is not None and self.failure.hint == NOT_WRITTEN:  # nothing was run
            summary = [f"Not yet, {worth}{part}: {self.failure.seen}; {NOT_WRITTEN}"]
        return "\n".join([line for text in summary for line in wrapped(text)] + remarks)


class Check:
    """Called with a program: the one or more functions of which it consists."""

    def __init__(
        self,
        judge: Callable[[Any], str | None],
        what: str,
        points: int,
        size: Callable[..., Size],
        sizes: Sequence[Any],
        run: Run,
    ):
        self.judge = judge
        self.what = what
        self.points = points
        self.size = size
        self.sizes = sizes
        self.run = run
        self.__doc__ = judge.__doc__
        self.__name__ = judge.__name__
        self.__module__ = judge.__module__

    def __call__(
        self, *programs: Program, sizes: Sequence[Any] = (), also: Sequence[Any] = ()
    ) -> float:
        """Print the result, record it for the report to hand in, and return the points. `sizes`
        replace the check's own, those of `also` are added. A separate process judges the program
        (judge.py)."""
        given = [*(sizes or self.sizes), *also]
        self._tried(given)  # raises ValueError for an invalid size, here
        points, text, printed = judge.ask((self.__module__, self.__name__), programs, given)
        print(printed + text)
        names = [getattr(program, "__name__", "a program") for program in programs]
        record_check(f"{' and '.join(names)}: {self.what}", points, self.points)
        return Points(points, self.points)

    def grade(self, *programs: Program, sizes: Sequence[Any] = ()) -> Report:
        """The check's result, judged in this process, which must have run none of the program.
        Sizes are numbers or tuples of them, each tried once."""
        tried = self._tried(sizes or self.sizes)
        passed: dict[Any, str] = {}
        failed: dict[Any, CheckFailed] = {}
        for size, left in self.run(programs, tried).items():
            try:
                if isinstance(left, CheckFailed):
                    raise left
                passed[size] = self.judge(left) or ""
            except CheckFailed as summary:
                failed[size] = summary
        return Report(self.what, self.points, tried, passed, failed)

    def _tried(self, sizes: Sequence[Any]) -> list[Any]:
        given = [each if isinstance(each, tuple) else (each,) for each in sizes]
        return [*dict.fromkeys(self.size(*numbers) for numbers in given)]


def check(
    what: str, points: int, size: Callable[..., Size], sizes: Sequence[Any], run: Run
) -> Callable[[Any], Check]:
    """Make a check of a function that judges a program's results at one size: it raises
    CheckFailed or returns a remark to print."""
    return lambda judge: Check(judge, what, points, size, sizes, run)


def at_each(sizes: Sequence[Any], attempt: Callable[[Any], Any]) -> dict[Any, Any]:
    """The result of `attempt` at each size, or the CheckFailed that it raised. After a time-out
    no further size is tried: each would take as long."""
    left: dict[Any, Any] = {}
    for size in sizes:
        try:
            left[size] = attempt(size)
        except CheckFailed as failed:
            left[size] = failed
            if isinstance(failed.__cause__, TimeUp):
                break
    return left


def each_alone(run: Run, programs: Sequence[Program], sizes: Sequence[Any]) -> dict[Any, Any]:
    """The results of `run` at each size by itself, so that a size at which it does not finish
    costs no other."""

    def tried(size: Any) -> Any:
        left = run(programs, [size])[size]
        if isinstance(left, CheckFailed):
            raise left
        return left

    return at_each(sizes, tried)
