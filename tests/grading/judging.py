"""What checks say of a program, by one run of it for all that ask for the same, judged in this
process, which has run none of it: the process that judges in a course is tested in test_judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dlviz.grading.harness.check import Check, Program, Report, Run


def judged(check: Check, programs: Sequence[Program], sizes: Sequence[Any] = ()) -> Report:
    """As `check.grade` reports it."""
    once = Check(
        check.judge, check.what, check.points, check.size, check.sizes,
        lambda programs, tried: _ran(check.run, tuple(programs), tuple(tried)),
    )  # fmt: skip
    return once.grade(*programs, sizes=sizes)


@lru_cache(16)
def _ran(run: Run, programs: tuple[Program, ...], sizes: tuple[Any, ...]) -> Any:
    return run(programs, sizes)
