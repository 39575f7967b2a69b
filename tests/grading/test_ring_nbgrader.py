"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from courses import Assignment, nbgrader

from dlviz.grading import all_reduce, attempt, feedback, guard

RING = Assignment("ring_all_reduce")
AUTOMATIC = {
    "check_reduce_scatter": 3,
    "check_all_gather": 3,
    "check_sums": 3,
    "check_steps": 3,
    "check_bytes": 3,
    "check_no_hang": 3,
}


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course to which the assignment was released."""
    return RING.release(tmp_path_factory.mktemp("course"))


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in RING.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in RING.source.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert RING.points() == {**AUTOMATIC, "explain": 2}
    assert RING.points_in_the_table() == 20


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    package = "\n".join(map(inspect.getsource, (all_reduce, attempt, guard, feedback)))
    lines = RING.solution_lines()
    assert len(lines) > 12
    assert [line for line in lines if line in package] == []
    assert not re.search(r"chunks\[\(", package), "a chunk's number is for the student to find"


@pytest.mark.slow
def test_the_students_copy_is_free_of_the_solution_and_of_hidden_tests(course):
    (path,) = (course / "release").rglob("*.ipynb")
    text = RING.released(course)
    assert [line for line in RING.solution_lines() if line in text] == []
    raw = path.read_text()
    for word in ("SOLUTION", "HIDDEN", "ranks=[7]", "% n", "isend(chunks"):
        assert word not in raw
    assert text.count("# YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in text
    assert "def reduce_scatter(comm, chunks):" in text and "def all_gather(comm, chunks):" in text
    assert [file.name for file in (course / "release").rglob("*") if file.is_file()] == [path.name]


@pytest.mark.slow
def test_the_solution_validates(course):
    notebook = f"source/{RING.name}/{RING.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
def test_right_wrong_and_empty_submissions_are_graded_and_get_their_feedback(course):
    RING.hand_in(course, "ada", {})
    change = {"reduce_scatter": lambda source: source.replace("mine += arriving", "pass")}
    RING.hand_in(course, "bob", change)
    RING.hand_in(course, "eve")
    # of 20, and the question is still to grade
    assert RING.grade(course) == {"ada": 18, "bob": 12, "eve": 0}

    told = {student: RING.told(course, student) for student in ("ada", "bob", "eve")}
    assert "Not yet." not in told["ada"]
    assert "data:image/png" in RING.feedback(course, "ada"), "the picture of the student's program"
    assert "messages arrive, but no cell has changed: what becomes of what arrives?" in told["bob"]
    assert told["bob"].count("Not yet.") == 2
    assert "still to be written" in told["eve"] and told["eve"].count("Not yet.") == 6
