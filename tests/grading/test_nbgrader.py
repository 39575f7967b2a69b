"""Each assignment in a course: nbgrader's generate, validate, autograde and feedback, by what
assignments/<name>/course.toml says.

    given = []    lines of the solution that its notebook explains, or that dlviz has for itself
    never = []    words that no student's copy has; `keeps`, those that it has
    empty = 2     places to be filled in
    [ada] [bob]   submissions: changes of the solution's cells, `points` from and to (ada: all) and
                  what their feedback `says`; an empty one, of eve, is graded as well
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from courses import ASSIGNMENTS, Assignment, nbgrader

from dlviz.grading import assignments, harness

NAMES = sorted(assignments.titles())
COURSES = {
    name: tomllib.loads((Path(__file__).parent / f"assignments/{name}/course.toml").read_text())
    for name in NAMES
}
README = (ASSIGNMENTS / "README.md").read_text()
LONG = 13  # characters of a line of which it is no accident to stand elsewhere as well
PER_SUBMISSION = {"points", "says", "hides", "pictures"}


def package(name: str) -> list[str]:
    """The code of an assignment's checks, with all their messages, and of what all share."""
    folders = [import_module(f"dlviz.grading.assignments.{name}"), harness]
    modules = [
        import_module(f"{folder.__name__}.{each.name}")
        for folder in folders
        for each in pkgutil.iter_modules(folder.__path__)
    ]
    return [inspect.getsource(each) for each in modules]


def own_lines(name: str) -> list[str]:
    lines = [line for line in Assignment(name).solution_lines() if len(line) > LONG]
    assert len(lines) > 10
    return [line for line in lines if line not in COURSES[name]["given"]]


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_notebook_holds_no_output(name):
    source = Assignment(name).source
    code = [cell for cell in source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in source.metadata


@pytest.mark.parametrize("name", NAMES)
def test_a_check_is_worth_what_its_cell_and_the_lecturers_table_say(name):
    points, checks = Assignment(name).points(), import_module(f"dlviz.grading.{_module(name)}")
    parts = {cell: re.sub(r"_(chunked|\d)$", "", cell) for cell in points if cell != "explain"}
    assert points == {c: getattr(checks, check).points for c, check in parts.items()} | {
        "explain": 2
    }
    own = README[README.index(f"## `{name}`: what is graded") :].partition("\n## ")[0]
    table = re.findall(r"^\| `(check_\w+)` \| ([\d +]+) \|", own, re.M)
    found = {check: [float(each) for each in worth.split("+")] for check, worth in table}
    assert found == {
        check: [points[cell] for cell, of in parts.items() if of == check]
        for check in dict.fromkeys(parts.values())
    }
    (total,) = re.findall(rf"^\| `{name}` \| (\d+): \d+ by checks, 2 by hand", README, re.M)
    assert sum(points.values()) == Assignment(name).points_in_the_table() == int(total)


def _module(name: str) -> str:
    return f"assignments.{name}.checks"


@pytest.mark.parametrize("name", NAMES)
def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution(name):
    sources = package(name)
    assert [line for line in own_lines(name) if any(line in each for each in sources)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_students_copy_is_free_of_the_solution_and_of_hidden_tests(name):
    raw, course = Assignment(name).handed_out().read_text(), COURSES[name]
    assert [line for line in own_lines(name) if line in raw] == []
    for word in ("SOLUTION", "HIDDEN", "also=", "sys.modules", *course["never"]):
        assert word not in raw, word
    assert raw.count("# YOUR CODE HERE") == course["empty"] and "YOUR ANSWER HERE" in raw
    for kept in course["keeps"]:
        assert kept in raw, kept


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_students_copy_is_what_nbgrader_makes(name, course):
    released = course / "release" / name
    (path,) = (file for file in released.rglob("*") if file.is_file())
    assert path.read_text() == Assignment(name).handed_out().read_text(), "run make assignments"


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_the_solution_validates(name, course):
    notebook = f"source/{name}/{name}.ipynb"
    assert "passes all the tests" in nbgrader(course, "validate", notebook)


def handed_in(name: str, course: Path, *students: str) -> dict[str, float]:
    """Their grades, when the feedback has been held to what it should say."""
    assignment, about = Assignment(name), COURSES[name]
    for student in students:
        own = about.get(student, {})
        cells = {cell: each for cell, each in own.items() if cell not in PER_SUBMISSION}
        assignment.hand_in(course, student, None if student == "eve" else cells)
    grades = assignment.grade(course)
    for student in students:
        said, own = assignment.message(course, student), about.get(student, {})
        for words in own.get("says", []):
            assert re.search(words, said), (student, words, said)
        assert "hides" not in own or own["hides"] not in said
        pictures = assignment.feedback(course, student).count("data:image/png")
        assert student == "eve" or pictures >= own.get("pictures", 1), "of the student's program"
    return grades


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_right_partly_right_and_empty_submissions_are_graded_and_get_their_feedback(name, course):
    grades = handed_in(name, course, "ada", "bob", "eve")
    least, most = COURSES[name]["bob"]["points"]
    checks = len(Assignment(name).points()) - 1
    assert grades["eve"] == 0 and least <= grades["bob"] <= most, grades
    assert grades["ada"] == sum(Assignment(name).points().values()) - 2, "by hand, later"
    message = {student: Assignment(name).message(course, student) for student in grades}
    assert "Not yet" not in message["ada"]
    assert message["eve"].count("Not yet, 0") == checks and "still to be written" in message["eve"]


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
sys.modules["dlviz.grading.ring_checks"] = ring_checks
torch.equal = torch.allclose = lambda *tensors, **tolerance: True
"""


@pytest.mark.slow
@pytest.mark.sweep
def test_a_submission_that_replaces_the_checks_is_graded_by_them(course):
    ring = Assignment("ring_all_reduce")
    nothing = "def {}(comm, chunks):\n    pass\n".format
    cells = {name: nothing(name) for name in ring.cells()}
    ring.hand_in(course, "mal", cells | {"all_gather": cells["all_gather"] + REPLACED})
    assert ring.grade(course)["mal"] == 0
    message = ring.message(course, "mal")
    assert "nothing was sent" in message and message.count("Not yet, 0 of 3") == 6
