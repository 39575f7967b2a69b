"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.tensor_parallel_mlp import checks as tensor_checks
from dlviz.grading.assignments.tensor_parallel_mlp import hints as tensor_hints
from dlviz.grading.assignments.tensor_parallel_mlp import run as tensor_run
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

MLP = Assignment("tensor_parallel_mlp")
AUTOMATIC = {
    "check_f": 2,
    "check_g": 2,
    "check_parts": 3,
    "check_outputs": 3,
    "check_gradients": 4,
    "check_all_reduces": 2,
    "check_bytes": 2,
}


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in MLP.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in MLP.source.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert MLP.points() == {**AUTOMATIC, "explain": 2}
    assert MLP.points_in_the_table() == 20
    assert {name: getattr(tensor_checks, name).points for name in AUTOMATIC} == AUTOMATIC


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, check, tensor_checks, feedback, guard)
    package = "\n".join(map(inspect.getsource, modules))
    package += repr(tensor_run.KNOWN) + repr(tensor_hints.PARTS)
    lines = MLP.solution_lines()
    assert len(lines) > 20
    assert [line for line in lines if line in package and len(line) > 13] == []


def test_the_copy_that_is_handed_out_is_free_of_the_solution_and_of_hidden_tests():
    raw = MLP.handed_out().read_text()
    known = [line for line in MLP.solution_lines() if len(line) > 25]
    assert [line for line in known if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "view_as", "[own]"):
        assert word not in raw
    assert raw.count("# YOUR CODE HERE") == 6 and "YOUR ANSWER HERE" in raw
    for kept in (
        "class CopyToRanks(torch.autograd.Function):",
        "class SumOverRanks(torch.autograd.Function):",
        "super().__init__()",
    ):
        assert kept in raw


@pytest.mark.slow
def test_the_copy_that_is_handed_out_is_what_nbgrader_makes(course):
    (path,) = (course / "release" / MLP.name).rglob("*.ipynb")
    assert [file.name for file in (course / "release" / MLP.name).rglob("*") if file.is_file()] == [
        path.name
    ]
    assert path.read_text() == MLP.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{MLP.name}/{MLP.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


@pytest.mark.slow
@pytest.mark.sweep
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    MLP.hand_in(course, "ada", {})
    again = "all_reduce(ctx.comm, total)\n"
    wrong = {"functions": lambda source: source.replace(again, f"{again}        total *= 2\n")}
    MLP.hand_in(course, "bob", wrong)
    MLP.hand_in(course, "eve")
    grades = MLP.grade(course)
    assert grades["ada"] == 18 and grades["eve"] == 0 and grades["bob"] == 18 - 2 - 4
    told = {student: MLP.told(course, student) for student in grades}
    assert "Not yet" not in told["ada"] and "data:image/png" in MLP.feedback(course, "ada")
    assert "the gradients are those of one process" in told["ada"]
    assert "Not yet" in told["bob"] and told["eve"].count("still to be written") >= 7
