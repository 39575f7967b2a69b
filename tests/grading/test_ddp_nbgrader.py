"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.ddp import checks as ddp_checks
from dlviz.grading.assignments.ddp import hints as ddp_hints
from dlviz.grading.assignments.ddp import run as ddp_run
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

DDP = Assignment("ddp")
AUTOMATIC = {
    "check_buckets": 3,
    "check_gradients": 5,
    "check_launches": 3,
    "check_bytes": 2,
    "check_overlap": 3,
    "check_no_hang": 2,
}


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in DDP.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in DDP.source.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert DDP.points() == {**AUTOMATIC, "explain": 2}
    assert DDP.points_in_the_table() == 20
    assert {name: getattr(ddp_checks, name).points for name in AUTOMATIC} == AUTOMATIC


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, check, ddp_checks, ddp_hints, feedback, guard)
    package = "\n".join(map(inspect.getsource, modules)) + (ddp_run.__doc__ or "")
    lines = DDP.solution_lines()
    assert len(lines) > 30
    assert [line for line in lines if line in package and len(line) > 13] == []


def test_the_copy_that_is_handed_out_is_free_of_the_solution_and_of_hidden_tests():
    raw = DDP.handed_out().read_text()
    known = [line for line in DDP.solution_lines() if len(line) > 13]
    assert [line for line in known if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "self.missing", "def launch"):
        assert word not in raw
    assert raw.count("# YOUR CODE HERE") == 5 and "YOUR ANSWER HERE" in raw
    for kept in (
        "def cut_into_buckets(parameters, most):",
        "class BucketedGradients:",
        "def ready(",
    ):
        assert kept in raw


@pytest.mark.slow
def test_the_copy_that_is_handed_out_is_what_nbgrader_makes(course):
    (path,) = (course / "release" / DDP.name).rglob("*.ipynb")
    assert [file.name for file in (course / "release" / DDP.name).rglob("*") if file.is_file()] == [
        path.name
    ]
    assert path.read_text() == DDP.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{DDP.name}/{DDP.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
@pytest.mark.sweep
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    DDP.hand_in(course, "ada", {})
    wrong = {"bucketed_gradients": lambda source: source.replace("examples / total", "1 / 2")}
    DDP.hand_in(course, "bob", wrong)
    DDP.hand_in(course, "eve")
    grades = DDP.grade(course)
    assert grades["ada"] == 18 and grades["eve"] == 0 and 13 < grades["bob"] < 18
    told = {student: DDP.told(course, student) for student in grades}
    assert "Not yet" not in told["ada"] and "data:image/png" in DDP.feedback(course, "ada")
    assert "the gradients are those of one process" in told["ada"]
    assert "Not yet" in told["bob"] and told["eve"].count("still to be written") >= 7
