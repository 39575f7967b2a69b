"""An assignment in a course: what it holds, nbgrader on it, and what students hand in."""

from __future__ import annotations

import ast
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
ASSIGNMENTS = ROOT / "assignments"
STUDENTS = ROOT / "labs" / "assignments"
Changes = Mapping[str, str | Sequence[Sequence[str]]]  # of cells, by their ids


@dataclass(frozen=True)
class Assignment:
    """By the name of its folder under source/; of the name "*" are all."""

    name: str

    @property
    def source(self) -> nbformat.NotebookNode:
        return self.notebook(ASSIGNMENTS / "source")

    def notebook(self, folder: Path) -> nbformat.NotebookNode:
        return nbformat.read(folder / self.name / f"{self.name}.ipynb", as_version=4)

    def points(self) -> dict[str, float]:
        """Of each graded cell, by its id."""
        return {
            name: cell.metadata.nbgrader.points
            for name, cell in managed(self.source).items()
            if cell.metadata.nbgrader.grade
        }

    def points_in_the_table(self) -> int:
        """The sum of what the table of parts says."""
        table = re.findall(r"^\| \d\..*\|(.*)\|$", self.source.cells[0].source, re.M)
        return sum(int(points) for points in table if points.strip())

    def solution_lines(self) -> list[str]:
        """The lines between BEGIN SOLUTION and END SOLUTION, of code and of prose."""
        lines, inside = [], False
        for cell in self.source.cells:
            for line in cell.source.splitlines():
                if "### " in line:
                    inside = "BEGIN SOLUTION" in line
                elif inside and line.strip():
                    lines.append(line.strip())
        return lines

    def cells(self) -> dict[str, str]:
        """The solution's cells of code, by their ids."""
        return {
            name: "\n".join(line for line in cell.source.splitlines() if "### " not in line)
            for name, cell in managed(self.source).items()
            if cell.cell_type == "code" and "BEGIN SOLUTION" in cell.source
        }

    def changed(self, changes: Changes) -> dict[str, str]:
        """The solution's cells, of which some are replaced, or have something else in the place of
        what stands there once, or where nothing is named, more at the end."""
        cells = self.cells()
        for name, change in changes.items():
            if isinstance(change, str):
                cells[name] = change
                continue
            for old, new in change:
                assert not old or cells[name].count(old) == 1, f"{old!r} does not stand there once"
                cells[name] = cells[name].replace(old, new) if old else cells[name] + new
        return cells

    def written(self, changes: Changes) -> str:
        """What the notebook imports and these cells."""
        cells = self.changed(changes).values()
        return "\n\n\n".join([managed(self.source)["imports"].source, *cells])

    def call(self, check: str) -> ast.Call:
        """What the cell of a check calls."""
        (call,) = (
            each
            for each in ast.walk(ast.parse(managed(self.source)[f"check_{check}"].source))
            if isinstance(each, ast.Call)
            and re.fullmatch(r"\w+\.check_\w+", ast.unparse(each.func))
        )
        return call

    def called(self, check: str) -> list[str]:
        """The names that the cell of a check calls it on."""
        return [ast.unparse(each) for each in self.call(check).args]

    def needed(self, check: str) -> set[str]:
        """The ids of the cells that define what the check's cell calls, or these cells name."""
        cells, found, ahead = self.cells(), set(), self.called(check)
        for name in ahead:  # it grows meanwhile
            for each in {*cells} - found:
                if re.search(rf"^(def|class) {name}\b", cells[each], re.M):
                    found.add(each)
                    ahead += re.findall(r"\w+", cells[each])
        return found

    def solution(self, name: str) -> Any:
        """A function or a class as the source notebook has it."""
        names = {"__name__": "handed_in"}
        exec(self.written({}), names)
        return names[name]

    def handed_out(self) -> Path:
        """The students' copy in the repository."""
        return STUDENTS / self.name / f"{self.name}.ipynb"

    def release(self, course: Path) -> Path:
        """Make a course, and the students' copy in it."""
        made = shutil.ignore_patterns("release", "gradebook.db*")  # by `make assignments`
        shutil.copytree(ASSIGNMENTS, course, dirs_exist_ok=True, ignore=made)
        assert "WARNING" not in nbgrader(course, "generate_assignment", self.name)
        return course

    def hand_in(self, course: Path, student: str, changes: Changes | None = None) -> None:
        """Submit the students' copy with the solution filled in, some cells changed; of None
        nothing is filled in."""
        lab = self.notebook(course / "release")
        cells = {} if changes is None else self.changed(changes)
        for name, cell in managed(lab).items():
            cell.source = cells.get(name, cell.source)
        folder = course / "submitted" / student / self.name
        folder.mkdir(parents=True)
        nbformat.write(lab, folder / f"{self.name}.ipynb")

    def grade(self, course: Path) -> dict[str, float]:
        """The score of each student who has handed it in, before anything is graded by hand."""
        nbgrader(course, "autograde", self.name)
        nbgrader(course, "generate_feedback", self.name)
        nbgrader(course, "export")
        with open(course / "grades.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["assignment"] == self.name]
        here = {folder.parent.name for folder in (course / "submitted").glob(f"*/{self.name}")}
        return {row["student_id"]: float(row["score"]) for row in rows if row["student_id"] in here}

    def feedback(self, course: Path, student: str) -> str:
        return (course / "feedback" / student / self.name / f"{self.name}.html").read_text()

    def message(self, course: Path, student: str) -> str:
        """The words of the feedback."""
        return " ".join(re.sub(r"<[^>]+>", " ", self.feedback(course, student)).split())


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
