"""What checks say of a program, by one run of it for all that ask for the same, judged in this
process, which has run none of it: the process that a check starts for that is tested apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from dlviz.grading.check import Check, Program, Report, Run
from dlviz.grading.feedback import CheckFailed


def judged(check: Check, programs: Sequence[Program], sizes: Sequence[Any] = ()) -> Report:
    """As `check.grade` reports it."""
    given = [each if isinstance(each, tuple) else (each,) for each in sizes or check.sizes]
    tried = tuple(dict.fromkeys(check.size(*numbers) for numbers in given))
    passed: dict[Any, str] = {}
    failed: dict[Any, CheckFailed] = {}
    for size, left in _ran(check.run, tuple(programs), tried).items():
        try:
            if isinstance(left, CheckFailed):
                raise left
            passed[size] = check.judge(left) or ""
        except CheckFailed as told:
            failed[size] = told
    return Report(check.what, check.points, tried, passed, failed)


@cache
def _ran(run: Run, programs: tuple[Program, ...], sizes: tuple[Any, ...]) -> Any:
    return run(programs, sizes)
