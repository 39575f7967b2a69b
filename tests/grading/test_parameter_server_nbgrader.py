"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect
import re

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.parameter_server import checks as parameter_server_checks
from dlviz.grading.assignments.parameter_server import hints as parameter_server_hints
from dlviz.grading.assignments.parameter_server import run as parameter_server_run
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

SERVER = Assignment("parameter_server")
AUTOMATIC = {
    "check_lock": 4,
    "check_parallel": 2,
    "check_pushes": 2,
    "check_weights": 3,
    "check_bound": 4,
    "check_order": 2,
    "check_no_hang": 1,
}
GIVEN = {"with shared.lock():", "update(worker, gradient)"}  # calls that the notebook explains
LINES = [line for line in SERVER.solution_lines() if len(line) > 13 and line not in GIVEN]


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in SERVER.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert SERVER.points() == {**AUTOMATIC, "explain": 2}
    assert SERVER.points_in_the_table() == 20
    assert {name: getattr(parameter_server_checks, name).points for name in AUTOMATIC} == AUTOMATIC


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, check, feedback, guard, parameter_server_checks, parameter_server_hints)
    package = "\n".join(map(inspect.getsource, modules)) + (parameter_server_run.__doc__ or "")
    assert len(LINES) > 12
    assert [line for line in LINES if line in package] == []


def test_the_copy_that_is_handed_out_is_free_of_the_solution_and_of_hidden_tests():
    raw = SERVER.handed_out().read_text()
    assert [line for line in LINES if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "held.append", "change ="):
        assert word not in raw
    assert raw.count("# YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in raw
    for kept in (
        "def work(shared, gradient, steps, lr):",
        "def serve(comm, weights, update, pushes, bound):",
    ):
        assert kept in raw


@pytest.mark.slow
def test_the_copy_that_is_handed_out_is_what_nbgrader_makes(course):
    (path,) = (course / "release" / SERVER.name).rglob("*.ipynb")
    assert path.read_text() == SERVER.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{SERVER.name}/{SERVER.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
@pytest.mark.sweep
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    SERVER.hand_in(course, "ada", {})
    wrong = {"serve": lambda source: source.replace("- bound <= slowest", "- bound < slowest")}
    SERVER.hand_in(course, "bob", wrong)
    SERVER.hand_in(course, "eve")
    grades = SERVER.grade(course)
    assert grades["ada"] == 18 and grades["eve"] == 0 and 10 < grades["bob"] < 15
    told = {student: SERVER.told(course, student) for student in grades}
    assert "Not yet" not in told["ada"] and "data:image/png" in SERVER.feedback(course, "ada")
    for run in ("12 updates in", "24 pushes in", "18 pushes in"):
        assert re.search(rf"{run} \d+ ms; .*? the weights are those of one process", told["ada"])
    assert "exactly the bound" in told["bob"] and told["eve"].count("still to be written") >= 7
