"""What the checks say of programs that students hand in: right ones get all points, each wrong one
loses those it should and gets a hint that fits. One of each check in `make test`, all in the sweep.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from judging import judged
from rows import NAMES, HandedIn, checks, rows

from dlviz.grading.harness import feedback

ROWS = [row for name in NAMES for row in rows(name)]
RIGHT = [row for row in ROWS if not row.loses]


def hints() -> list[Any]:
    """Each row beside a check that is to tell of it; the first of each check runs every time."""
    found, seen = [], set()
    for row in ROWS:
        for check in row.hint:
            often = check in row.loses and (row.assignment, check) not in seen
            seen |= {(row.assignment, check)} if often else set()
            marks = () if often else pytest.mark.sweep
            found.append(pytest.param(row, check, marks=marks, id=f"{row}: {check}"))
    return found


def report(row: HandedIn, check: str, sizes=()):
    return judged(row.check(check), row.programs(check), sizes)


def said(report) -> str:
    return " ".join(str(report).split())


@pytest.mark.slow
@pytest.mark.parametrize(("row", "check"), hints())
def test_a_program_is_told_what_fits(row, check):
    found = report(row, check, row.at[check])
    assert re.search(row.hint[check], said(found)), said(found)
    assert (found.failure is not None) == (check in row.loses), said(found)
    if found.failure is not None:
        assert found.failure.seen and found.failure.expected and found.failure.hint
        assert len(str(found).splitlines()) <= 16
    assert max(map(len, str(found).splitlines())) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.parametrize("row", RIGHT, ids=str)
def test_a_right_program_gets_all_points(row):
    for check in row.checks():
        found = report(row, check, row.at[check])
        assert found.failure is None and found.points == found.most, said(found)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_program_loses_the_points_it_should(row):
    found = {check: report(row, check) for check in row.checks()}
    lost = {check for check, each in found.items() if each.points < each.most}
    assert lost == row.loses, {check: said(each) for check, each in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_rows_name_checks_and_each_check_has_a_program_that_loses_it(name):
    known = set(checks(name))
    for row in rows(name):
        assert row.loses | {*row.hint} <= known, str(row)
        assert row.hint or not row.loses, f"{row}: nothing is told"
    assert known == {check for row in rows(name) for check in row.loses & {*row.hint}}
