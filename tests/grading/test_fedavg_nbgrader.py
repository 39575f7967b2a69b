"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect
import re

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.fedavg import checks as fedavg_checks
from dlviz.grading.assignments.fedavg import hints as fedavg_hints
from dlviz.grading.assignments.fedavg import model as fedavg_model
from dlviz.grading.assignments.fedavg import run as fedavg_run
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

FEDAVG = Assignment("fedavg")
AUTOMATIC = {
    "check_local": 3,
    "check_average": 4,
    "check_bytes": 2,
    "check_select": 2,
    "check_deadline": 3,
    "check_answered": 3,
    "check_no_hang": 1,
}
GIVEN = {"data.test(weights)"}  # calls that the notebook explains
LINES = [line for line in FEDAVG.solution_lines() if len(line) > 18 and line not in GIVEN]


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in FEDAVG.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert FEDAVG.points() == {**AUTOMATIC, "explain": 2}
    assert FEDAVG.points_in_the_table() == 20
    assert {name: getattr(fedavg_checks, name).points for name in AUTOMATIC} == AUTOMATIC


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, check, feedback, guard, fedavg_checks, fedavg_hints, fedavg_model, fedavg_run)
    package = "\n".join(map(inspect.getsource, modules))
    assert len(LINES) > 25
    assert [line for line in LINES if line in package] == []


def test_the_copy_that_is_handed_out_is_free_of_the_solution_and_of_hidden_tests():
    raw = FEDAVG.handed_out().read_text()
    assert [line for line in LINES if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "owing", "due ="):
        assert word not in raw
    assert raw.count("# YOUR CODE HERE") == 4 and "YOUR ANSWER HERE" in raw
    for kept in (
        "def server(comm, weights, counts, data, rounds):",
        "def client(comm, weights, data, rounds, epochs, batch, sgd):",
        "def select(clients, fraction, rng):",
        "def timed_server(comm, weights, counts, data, rounds, choose, deadline):",
    ):
        assert kept in raw


@pytest.mark.slow
def test_the_copy_that_is_handed_out_is_what_nbgrader_makes(course):
    (path,) = (course / "release" / FEDAVG.name).rglob("*.ipynb")
    assert path.read_text() == FEDAVG.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{FEDAVG.name}/{FEDAVG.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
@pytest.mark.sweep
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    FEDAVG.hand_in(course, "ada", {})
    wrong = {
        "rounds": lambda source: source.replace("counts[each] / everybody", "1 / len(counts)"),
        "timed_server": lambda source: source.replace(", deadline=due", ""),
    }
    FEDAVG.hand_in(course, "bob", wrong)
    FEDAVG.hand_in(course, "eve")
    grades = FEDAVG.grade(course)
    assert grades["ada"] == 18 and grades["eve"] == 0 and 11 <= grades["bob"] < 13, grades
    told = {student: FEDAVG.told(course, student) for student in grades}
    assert "Not yet" not in told["ada"] and "data:image/png" in FEDAVG.feedback(course, "ada")
    for run in ("154240 bytes a round", "14 updates made, 12 of them", "2 labels each"):
        assert re.search(rf"{run}.*? the weights are those of one process", told["ada"])
    assert "three times the say" in told["bob"] and "comes after the deadline" in told["bob"]
    assert told["eve"].count("still to be written") >= 7
