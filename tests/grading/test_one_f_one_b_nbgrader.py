"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.one_f_one_b import checks as pipeline_checks
from dlviz.grading.assignments.one_f_one_b import hints as pipeline_hints
from dlviz.grading.assignments.one_f_one_b import rules as pipeline_rules
from dlviz.grading.assignments.one_f_one_b import run as pipeline_rows
from dlviz.grading.assignments.one_f_one_b import train as training
from dlviz.grading.harness import feedback

PIPELINE = Assignment("one_f_one_b")
PACKAGE = (pipeline_checks, pipeline_hints, pipeline_rows, pipeline_rules, training, feedback)
CHECKS = ("order", "in_flight", "no_deadlock", "bubble", "training")
AUTOMATIC = {
    f"check_{name}{part}": getattr(pipeline_checks, f"check_{name}").points
    for part in ("", "_chunked")
    for name in CHECKS
}


def test_the_committed_notebook_of_1f1b_holds_no_output():
    code = [cell for cell in PIPELINE.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in PIPELINE.source.metadata


def test_the_checks_of_both_schedules_are_worth_20_points_and_the_question_2():
    assert PIPELINE.points() == {**AUTOMATIC, "explain": 2} and sum(AUTOMATIC.values()) == 20
    assert PIPELINE.points_in_the_table() == 22


def test_no_hint_and_no_message_about_a_schedule_holds_a_line_of_the_solution():
    package = "\n".join(map(inspect.getsource, PACKAGE))
    lines = PIPELINE.solution_lines()
    assert len(lines) > 18
    assert [line for line in lines if line in package] == []


@pytest.mark.slow
def test_the_students_copy_of_1f1b_is_free_of_the_solution_and_of_hidden_tests(course):
    (path,) = (course / "release" / PIPELINE.name).rglob("*.ipynb")
    text = PIPELINE.released(course)
    assert [line for line in PIPELINE.solution_lines() if line in text] == []
    raw = path.read_text()
    for word in (
        "SOLUTION",
        "HIDDEN",
        "also=",
        "sys.modules",
        "warmup",
        "groups =",
        "chunk * ranks",
    ):
        assert word not in raw
    assert text.count("# YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in text
    assert "def one_f_one_b(rank, ranks, microbatches):" in text
    assert "def interleaved(rank, ranks, microbatches, chunks):" in text
    assert [
        file.name for file in (course / "release" / PIPELINE.name).rglob("*") if file.is_file()
    ] == [path.name]
    assert raw == PIPELINE.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_of_both_schedules_validates(course):
    notebook = f"source/{PIPELINE.name}/{PIPELINE.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


# A name of the student's own that the checks once had, and right all the same.
NAMED = """
schedules = [list(one_f_one_b(rank, 4, 8)) for rank in range(4)]
"""


@pytest.mark.slow
@pytest.mark.sweep
def test_right_wrong_and_empty_schedules_are_graded_and_get_their_feedback(course):
    PIPELINE.hand_in(course, "ada", {"interleaved": lambda source: source + NAMED})
    longer = {"one_f_one_b": lambda source: source.replace("ranks - 1 - rank", "ranks - rank")}
    PIPELINE.hand_in(course, "bob", longer)
    PIPELINE.hand_in(course, "eve")
    # of 22, and the question is still to grade
    assert PIPELINE.grade(course) == {"ada": 20, "bob": 17, "eve": 0}

    told = {student: PIPELINE.told(course, student) for student in ("ada", "bob", "eve")}
    assert "Not yet" not in told["ada"]
    assert PIPELINE.feedback(course, "ada").count("data:image/png") == 3, "the three timelines"
    assert "128 actions; bubble ratio 0.1875; in flight at most 11, 9, 7, 5" in told["ada"]
    assert "so its warm-up has 4: is that one for each rank after it" in told["bob"]
    assert told["bob"].count("Not yet,") == 1
    assert "measured 5" not in told["bob"], "what is wrong is not put beside a prediction"
    assert "still to be written" in told["eve"] and told["eve"].count("Not yet,") == 10
