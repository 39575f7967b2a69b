"""The assignment in a course: nbgrader's generate, validate, autograde and feedback."""

from __future__ import annotations

import csv
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from dlviz.grading import all_reduce, attempt, guard, report

ROOT = Path(__file__).parents[2]
ASSIGNMENTS = ROOT / "labs" / "assignments"
NAME = "ring_all_reduce"
SOLVED = ("reduce_scatter", "all_gather", "explain")
AUTOMATIC = {
    "check_reduce_scatter": 3,
    "check_all_gather": 3,
    "check_sums": 3,
    "check_steps": 3,
    "check_bytes": 3,
    "check_no_hang": 3,
}


def notebook(folder: Path):
    return nbformat.read(folder / NAME / f"{NAME}.ipynb", as_version=4)


def managed(lab) -> dict[str, nbformat.NotebookNode]:
    """The cells that nbgrader knows, by their id."""
    known = [cell for cell in lab.cells if "nbgrader" in cell.metadata]
    return {cell.metadata.nbgrader.grade_id: cell for cell in known}


def nbgrader(course: Path, *words: str) -> str:
    """What the command said; the test fails where it did."""
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "JUPYTER_CONFIG_DIR": str(course / "jupyter"),
    }
    command = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(command, cwd=course, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course to which the assignment was released."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(ASSIGNMENTS, folder, dirs_exist_ok=True)
    nbgrader(folder, "generate_assignment", NAME)
    return folder


def solution_lines() -> list[str]:
    """The lines between BEGIN SOLUTION and END SOLUTION, of code and of prose."""
    lines, inside = [], False
    for cell in notebook(ASSIGNMENTS / "source").cells:
        for line in cell.source.splitlines():
            if "### " in line:
                inside = "BEGIN SOLUTION" in line
            elif inside and line.strip():
                lines.append(line.strip())
    return lines


def hand_in(course: Path, student: str, change=lambda source: source) -> None:
    """Submit the student's copy with the solution filled in, its reduce_scatter changed."""
    solved = managed(notebook(course / "source"))
    lab = notebook(course / "release")
    for name, cell in managed(lab).items():
        if name in SOLVED:
            kept = [line for line in solved[name].source.splitlines() if "### " not in line]
            cell.source = "\n".join(kept)
            if name == "reduce_scatter":
                cell.source = change(cell.source)
    folder = course / "submitted" / student / NAME
    folder.mkdir(parents=True)
    nbformat.write(lab, folder / f"{NAME}.ipynb")


def test_the_committed_notebook_holds_no_output():
    lab = notebook(ASSIGNMENTS / "source")
    code = [cell for cell in lab.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in lab.metadata


def test_the_checks_are_worth_18_points_and_the_question_2():
    graded = {
        name: cell.metadata.nbgrader.points
        for name, cell in managed(notebook(ASSIGNMENTS / "source")).items()
        if cell.metadata.nbgrader.grade
    }
    assert graded == {**AUTOMATIC, "explain": 2}
    table = re.findall(
        r"^\| \d\..*\|(.*)\|$", notebook(ASSIGNMENTS / "source").cells[0].source, re.M
    )
    assert sum(int(points) for points in table if points.strip()) == 20


def test_no_hint_and_no_message_of_a_check_holds_a_line_of_the_solution():
    package = "\n".join(map(inspect.getsource, (all_reduce, attempt, guard, report)))
    lines = solution_lines()
    assert len(lines) > 12
    assert [line for line in lines if line in package] == []
    assert not re.search(r"chunks\[\(", package), "a chunk's number is for the student to find"


@pytest.mark.slow
def test_the_students_copy_is_free_of_the_solution_and_of_hidden_tests(course):
    (path,) = (course / "release").rglob("*.ipynb")
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    assert [line for line in solution_lines() if line in text] == []
    raw = path.read_text()
    for word in ("SOLUTION", "HIDDEN", "ranks=[7]", "% n", "isend(chunks"):
        assert word not in raw
    assert text.count("# YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in text
    assert "def reduce_scatter(comm, chunks):" in text and "def all_gather(comm, chunks):" in text
    assert [file.name for file in (course / "release").rglob("*") if file.is_file()] == [path.name]


@pytest.mark.slow
def test_the_solution_validates(course):
    assert "passes all the tests" in nbgrader(course, "validate", f"source/{NAME}/{NAME}.ipynb")


@pytest.mark.slow
def test_right_wrong_and_empty_submissions_are_graded_and_get_their_feedback(course):
    hand_in(course, "ada")
    hand_in(course, "bob", lambda source: source.replace("mine += arriving", "pass"))
    folder = course / "submitted" / "eve" / NAME
    folder.mkdir(parents=True)
    shutil.copy(course / "release" / NAME / f"{NAME}.ipynb", folder)
    nbgrader(course, "autograde", NAME)
    nbgrader(course, "generate_feedback", NAME)
    nbgrader(course, "export")
    with open(course / "grades.csv") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert scores == {"ada": 18, "bob": 12, "eve": 0}  # of 20, and the question is still to grade

    def told(student: str) -> str:
        page = (course / "feedback" / student / NAME / f"{NAME}.html").read_text()
        return " ".join(re.sub(r"<[^>]+>", " ", page).split())

    assert (
        "Not yet." not in told("ada")
        and "data:image/png" in (course / "feedback" / "ada" / NAME / f"{NAME}.html").read_text()
    ), "the picture of the student's program"
    assert "messages arrive, but no cell has changed: what becomes of what arrives?" in told("bob")
    assert told("bob").count("Not yet.") == 2
    assert "still to be written" in told("eve") and told("eve").count("Not yet.") == 6
