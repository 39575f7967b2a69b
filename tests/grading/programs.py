"""What the checks say of programs that students hand in, as the rows of an assignment have them:
right ones get all points, each wrong one loses those it should and gets a hint that fits.

    globals().update(held_to_rows("ddp"))       in the assignment's test file
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from courses import ASSIGNMENTS
from judging import judged
from rows import HandedIn, checks, misconceptions, rows

from dlviz.grading.harness import feedback
from dlviz.grading.harness.check import Report


def held_to_rows(name: str) -> dict[str, Callable[..., Any]]:
    """In `make test` two right programs, and the first wrong one of each check; in the sweep all of
    them at all sizes."""
    programs = rows(name)
    right = [row for row in programs if not row.loses]
    wrong = {
        check: next(row for row in programs if check in row.loses & {*row.hint})
        for check in checks(name)  # so each has one
    }

    @pytest.mark.slow
    @pytest.mark.parametrize("check", wrong)
    def test_a_wrong_program_is_told_what_fits(check):
        _is_told(wrong[check], check)

    @pytest.mark.slow
    @pytest.mark.parametrize("row", right[:2], ids=str)
    def test_a_right_program_gets_all_points(row):
        for check in row.checks():
            found = report(row, check, row.at[check])
            assert found.right and found.points == found.most, said(found)

    @pytest.mark.slow
    @pytest.mark.sweep
    @pytest.mark.parametrize("row", programs, ids=str)
    def test_a_program_loses_the_points_it_should_and_is_told_what_fits(row):
        assert row.loses | {*row.hint} <= {*checks(name)} and (row.hint or not row.loses)
        for check in row.hint:
            _is_told(row, check)
        found = {check: report(row, check) for check in row.checks()}
        lost = {check for check, each in found.items() if each.points < each.most}
        assert lost == row.loses, {check: said(each) for check, each in found.items()}

    def test_the_lecturers_table_is_what_the_programs_show():
        page = (ASSIGNMENTS / "README.md").read_text(encoding="utf-8")
        assert misconceptions(name) in page, "make teaching writes it"

    return {each: test for each, test in locals().items() if each.startswith("test_")}


def report(row: HandedIn, check: str, sizes=()) -> Report:
    return judged(row.check(check), row.programs(check), sizes)


def said(found: Report) -> str:
    return " ".join(str(found).split())


def _is_told(row: HandedIn, check: str) -> None:
    found = report(row, check, row.at[check])
    assert re.search(row.hint[check], said(found)), (check, row.hint[check], said(found))
    assert found.right == (check not in row.loses), said(found)
    failure, lines = found.failure, str(found).splitlines()
    if failure is not None:
        assert failure.seen and failure.expected and failure.hint and len(lines) <= 16
    assert max(map(len, lines)) <= feedback.WIDTH
