"""The base of all checks: shares of the points, hints of several sizes, processes of their own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlviz.grading.harness import sandbox
from dlviz.grading.harness.check import Check, Report, check
from dlviz.grading.harness.feedback import WIDTH, CheckFailed


@dataclass(frozen=True)
class Count:
    """A size with nothing to it but a number; 0 is right whatever a program does."""

    number: int

    @property
    def trivial(self) -> bool:
        return self.number == 0

    @staticmethod
    def listed(sizes) -> str:
        return f"for {', '.join(str(size.number) for size in sizes)}"

    @staticmethod
    def in_common(passed, failed) -> str:
        return "it is right for 1 alone." if [size.number for size in passed] == [1] else ""


def call(programs, sizes):
    return {size: programs[0](size.number) for size in sizes}


@check("numbers are doubled", points=3, size=Count, sizes=(1, 2, 3, 0), run=call)
def check_doubled(left):
    """The number, and what a program made of it."""
    number, result = left
    if result != 2 * number:
        raise CheckFailed(f"{number} gave {result}", f"{2 * number}", f"double {number}.")
    return "Zero is a number." if number == 0 else None


def doubles(number):
    return number, 2 * number


def doubles_one(number):
    return number, 2 if number == 1 else 0


def doubles_small(number):
    return number, 2 * number if number < 3 else 0


def zero(number):
    return number, 0


def test_a_program_that_is_right_has_all_points_and_is_told_so_with_what_is_to_be_noted(capsys):
    assert check_doubled(doubles) == 3
    said = "Right, 3 of 3 points: numbers are doubled, for 1, 2, 3, 0.\nZero is a number.\n"
    assert capsys.readouterr().out == said


def test_each_size_has_an_equal_share_rounded_down_to_quarters():
    assert check_doubled.grade(doubles_small).points == 2.25
    assert check_doubled.grade(doubles_small, sizes=[1, 2, 3]).points == 2
    assert check_doubled.grade(doubles_small, sizes=[1, 2, 3, 3, 2]).points == 2  # each counts once
    assert check_doubled.grade(doubles_one, sizes=[1, 2, 3, 4, 5, 6, 7]).points == 0.25
    assert check_doubled.grade(doubles_one, sizes=range(1, 20)).points == 0


def test_sizes_that_students_do_not_see_share_the_points(capsys):
    assert check_doubled(doubles_small, also=[4, 5]) == 1.5  # 3 of 6
    assert "Not yet, 1.5 of 3 points: right for 1, 2, 0.\nSeen:     3 gave 0" in (
        capsys.readouterr().out
    )


def test_what_anything_does_right_earns_no_point(capsys):
    assert check_doubled(zero) == 0
    assert capsys.readouterr().out.startswith("Not yet, 0 of 3 points.\nSeen:     1 gave 0\n")


def test_of_several_failures_the_first_is_told_with_the_hint_for_all():
    failure = check_doubled.grade(doubles_one, sizes=[3, 1, 2]).failure
    assert (failure.seen, failure.expected) == ("3 gave 0", "6")
    assert failure.hint == "it is right for 1 alone."
    assert not check_doubled.grade(doubles_one).right and check_doubled.grade(doubles).right


def test_a_size_that_was_not_tried_counts_as_not_passed():
    report = Report("so", 2, [Count(1), Count(2)], {Count(1): ""}, {})
    assert report.points == 1 and isinstance(check_doubled, Check)


def test_lines_are_wrapped_for_a_page_that_does_not():
    failed = CheckFailed("this", "that", "look again " * 12)
    report = Report("so", 2, [Count(1)], {}, {Count(1): failed})
    head, seen, expected, *hint = str(report).splitlines()
    assert (head, seen, expected) == ("Not yet, 0 of 2 points.", "Seen:     this", "Expected: that")
    assert hint[0].startswith("Hint:     look") and hint[1].startswith(" " * 10 + "look")
    assert max(map(len, hint)) <= WIDTH


def test_the_time_is_longer_only_where_many_programs_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, seconds in ((0.1, 5), (8.0, 5), (16.0, 10)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert sandbox.limit() == seconds


@pytest.mark.slow
def test_the_time_counts_from_when_the_program_begins(monkeypatch):
    """A machine that takes long to start a process takes nothing from the program."""
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert sandbox.run_alone(returns, 1, SlowToArrive()).results == [None]


class SlowToArrive:
    """What takes two seconds to be unpickled by the process that is to run a program."""

    def __reduce__(self):
        return time.sleep, (2.0,)


def returns(comm, given):
    return given


def test_nothing_of_a_run_stays_behind_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox.run_alone(where, 1, tmp_path)
    assert not [*tmp_path.iterdir()]


def where(comm, folder: Path) -> None:
    assert [*folder.glob("dlviz-grading-*")]
