"""What checks say of a program, by one run of it for all that ask for the same, judged in this
process, which has run none of it: the process that judges in a course is tested in test_judge."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from dlviz.grading.harness.check import Check, Program, Report, Run
from dlviz.grading.harness.sandbox import TimeUp

LEFT: OrderedDict[Any, Any] = OrderedDict()  # what programs left, by the run and the numbers of it
MOST = 100


def judged(check: Check, programs: Sequence[Program], sizes: Sequence[Any] = ()) -> Report:
    """As `check.grade` reports it."""
    once = Check(
        check.judge, check.what, check.points, check.size, check.sizes,
        lambda programs, tried: _ran(check.run, tuple(programs), tried),
    )  # fmt: skip
    return once.grade(*programs, sizes=sizes)


def _ran(run: Run, programs: tuple[Program, ...], tried: Sequence[Any]) -> dict[Any, Any]:
    left = {}
    for size in tried:
        key = run, programs, tuple(vars(size).values())
        if key not in LEFT:
            (LEFT[key],) = run(programs, [size]).values()
            while len(LEFT) > MOST:
                LEFT.popitem(last=False)
        left[size] = LEFT[key]
        if isinstance(getattr(left[size], "__cause__", None), TimeUp):
            break
    return left
