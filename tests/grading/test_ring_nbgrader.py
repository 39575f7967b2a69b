"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import inspect
import re

import pytest
from courses import Assignment, nbgrader

from dlviz.grading.assignments.ring_all_reduce import checks as ring_checks
from dlviz.grading.assignments.ring_all_reduce import hints as ring_hints
from dlviz.grading.assignments.ring_all_reduce import run as attempt
from dlviz.grading.harness import check, feedback, guard
from dlviz.grading.harness import sandbox as alone

RING = Assignment("ring_all_reduce")
AUTOMATIC = {
    "check_reduce_scatter": 3,
    "check_all_gather": 3,
    "check_sums": 3,
    "check_rounds": 3,
    "check_bytes": 3,
    "check_no_hang": 3,
}


def test_the_committed_notebook_holds_no_output():
    code = [cell for cell in RING.source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in RING.source.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    assert RING.points() == {**AUTOMATIC, "explain": 2}
    assert RING.points_in_the_table() == 20
    given = {name: getattr(ring_checks, name).points for name in AUTOMATIC}
    assert given == AUTOMATIC, "what a check returns is what its cell is worth"


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    modules = (alone, attempt, check, feedback, guard, ring_checks, ring_hints)
    package = "\n".join(map(inspect.getsource, modules))
    lines = RING.solution_lines()
    assert len(lines) > 12
    assert [line for line in lines if line in package] == []
    assert not re.search(r"chunks\[\(", package), "a chunk's number is for the student to find"


@pytest.mark.slow
def test_the_students_copy_is_free_of_the_solution_and_of_hidden_tests(course):
    (path,) = (course / "release" / RING.name).rglob("*.ipynb")
    text = RING.released(course)
    assert [line for line in RING.solution_lines() if line in text] == []
    raw = path.read_text()
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", "% n", "isend(chunks"):
        assert word not in raw
    assert text.count("# YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in text
    assert "def reduce_scatter(comm, chunks):" in text and "def all_gather(comm, chunks):" in text
    assert [
        file.name for file in (course / "release" / RING.name).rglob("*") if file.is_file()
    ] == [path.name]
    assert raw == RING.handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_solution_validates(course):
    notebook = f"source/{RING.name}/{RING.name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


# Names of the student's own that the checks once had, and right all the same.
NAMED = """
def all_reduce(comm, chunks):
    reduce_scatter(comm, chunks)
    all_gather(comm, chunks)
ring_checks = [1, 2, 3]
"""
# Every check replaced in the kernel: in its module, by name, by code, and torch with it.
REPLACED = """
import gc, sys, types
import dlviz.grading.harness.check
def generous(self, *programs, **sizes):
    return self.points
dlviz.grading.harness.check.Check.__call__ = generous
for held in gc.get_objects():
    if isinstance(held, types.FunctionType) and held.__qualname__ == "Check.grade":
        held.__code__ = (lambda self, *programs, sizes=(): self).__code__
for name in [name for name in vars(ring_checks) if name.startswith("check_")]:
    setattr(ring_checks, name, lambda *programs, **sizes: 3)
sys.modules["dlviz.grading.assignments.ring_all_reduce.checks"] = ring_checks
torch.equal = torch.allclose = lambda *tensors, **tolerance: True
"""


SEVEN = {"reduce_scatter": lambda source: source.replace("n = comm.size", "n = comm.size % 7")}


@pytest.mark.slow
def test_a_submission_that_is_right_in_part_is_graded_and_gets_its_feedback(course):
    unwritten = "    raise NotImplementedError()"
    half = {"all_gather": lambda source: source.partition("    n =")[0] + unwritten}
    RING.hand_in(course, "zoe", SEVEN | half)
    assert RING.grade(course)["zoe"] == 2.5  # of 20, and the question is still to grade
    told = RING.told(course, "zoe")
    assert "data:image/png" in RING.feedback(course, "zoe"), "the picture of the student's program"
    assert told.count("Not yet, 2.5 of 3 points: right on 1, 2, 3, 4 and 5 ranks.") == 1
    assert "still to be written" in told and told.count("Not yet, 0 of 3") == 5


@pytest.mark.slow
@pytest.mark.sweep
def test_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(course):
    RING.hand_in(course, "bob", SEVEN)
    RING.hand_in(course, "eve")
    # of 20, and the question is still to grade
    grades = RING.grade(course)
    assert (grades["bob"], grades["eve"]) == (17, 0)

    told = {student: RING.told(course, student) for student in ("bob", "eve")}
    assert "data:image/png" in RING.feedback(course, "bob"), "the picture of the student's program"
    assert told["bob"].count("Not yet, 2.5 of 3 points: right on 1, 2, 3, 4 and 5 ranks.") == 2
    assert "24 messages; every rank returned; 4 of 4 ranks hold all chunks whole" in told["bob"]
    assert "still to be written" in told["eve"] and told["eve"].count("Not yet, 0 of 3") == 6


@pytest.mark.slow
@pytest.mark.sweep
def test_right_submissions_and_those_that_replace_the_checks_are_graded(course):
    RING.hand_in(course, "ada", {"all_gather": lambda source: source + NAMED})
    RING.hand_in(
        course,
        "mal",
        {
            "reduce_scatter": lambda source: source.partition("    n =")[0],
            "all_gather": lambda source: source.partition("    n =")[0] + REPLACED,
        },
    )
    grades = RING.grade(course)
    assert (grades["ada"], grades["mal"]) == (18, 0)
    told = {student: RING.told(course, student) for student in ("ada", "mal")}
    assert "Not yet" not in told["ada"]
    assert "nothing was sent" in told["mal"] and told["mal"].count("Not yet, 0 of 3") == 6
