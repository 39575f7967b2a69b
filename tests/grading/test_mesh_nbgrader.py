"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.mesh_3d import checks as mesh_checks
from dlviz.grading.assignments.mesh_3d import hints as mesh_hints
from dlviz.grading.assignments.mesh_3d import run as mesh_run
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

MESH = Assignment("mesh_3d")
AUTOMATIC = {
    "check_groups": 3,
    "check_neighbours": 2,
    "check_sums": 4,
    "check_gradients": 4,
    "check_loss": 1,
    "check_plan": 4,
}


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in MESH.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in MESH.source.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert MESH.points() == {**AUTOMATIC, "explain": 2}
    assert MESH.points_in_the_table() == 20
    assert {name: getattr(mesh_checks, name).points for name in AUTOMATIC} == AUTOMATIC


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, check, mesh_checks, feedback, guard)
    package = "\n".join(map(inspect.getsource, modules))
    package += repr(mesh_run.KNOWN) + inspect.getsource(mesh_hints)
    lines = MESH.solution_lines()
    assert len(lines) > 20
    assert [line for line in lines if line in package and len(line) > 13] == []


def test_the_copy_that_is_handed_out_is_free_of_the_solution_and_of_hidden_tests():
    raw = MESH.handed_out().read_text()
    known = [line for line in MESH.solution_lines() if len(line) > 25]
    assert [line for line in known if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "reversed"):
        assert word not in raw
    assert raw.count("# YOUR CODE HERE") == 9 and "YOUR ANSWER HERE" in raw
    for kept in ("def train_step(comm", "loss.backward()", "y.backward(gradient)"):
        assert kept in raw


@pytest.mark.slow
def test_the_copy_that_is_handed_out_is_what_nbgrader_makes(course):
    released = course / "release" / MESH.name
    (path,) = released.rglob("*.ipynb")
    assert [file.name for file in released.rglob("*") if file.is_file()] == [path.name]
    assert path.read_text() == MESH.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{MESH.name}/{MESH.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
@pytest.mark.sweep
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    MESH.hand_in(course, "ada", {})
    mean = "        p.grad /= mesh.dp.size\n"
    wrong = {"train_step": lambda source: source.replace(mean, "")}
    MESH.hand_in(course, "bob", wrong)
    MESH.hand_in(course, "eve")
    grades = MESH.grade(course)
    told = {student: MESH.told(course, student) for student in grades}
    assert grades == {"ada": 18, "eve": 0, "bob": 18 - 4 + 0.75}, told
    assert "Not yet" not in told["ada"] and "data:image/png" in MESH.feedback(course, "ada")
    assert "the gradients are those of one process" in told["ada"]
    assert "averaged, not added up" in told["bob"]
    assert told["eve"].count("still to be written") >= 6
