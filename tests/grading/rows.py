"""Programs that students hand in, right and wrong, as rows of assignments/<name>/wrong.toml.

at.sums = [2]                   # for each check the sizes at which its hints are looked at
[[program]]
what = "off by one"             # in the lecturers' table, if there is something to `ask`
reduce_scatter = [["what the solution has there", "what stands in its place"]]
all_gather = "the whole cell"   # cells by their ids; those that are not named are the solution
at = [3]                        # other sizes, for all checks or by their names; [] are its own
loses = ["sums"]                # the checks that give less than all points; right without
hint.sums = "a pattern"         # what is said; of a check that it does not lose, too
hint = "a pattern"              # or one for all checks that it loses
ask = "which chunk arrives?"
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from courses import Assignment

from dlviz.grading.harness.check import Check

FOLDER = Path(__file__).parent / "assignments"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/wrong.toml"))
FILES = TemporaryDirectory(prefix="dlviz-handed-in-")
KEYS = {"what", "at", "loses", "hint", "ask"}


@dataclass(frozen=True, eq=False)
class HandedIn:
    """One program, by its row."""

    assignment: str
    what: str
    cells: dict[str, str | list[list[str]]]
    at: dict[str, list[Any]]
    loses: frozenset[str] = frozenset()
    hint: dict[str, str] = field(default_factory=dict)
    ask: str = ""

    def __str__(self) -> str:
        return f"{self.assignment}: {self.what}"

    def check(self, name: str) -> Check:
        """What its cell calls, with the sizes that stand there for all to see."""
        module = import_module(f"dlviz.grading.assignments.{self.assignment}.checks")
        call = Assignment(self.assignment).call(name)
        check = copy(getattr(module, ast.unparse(call.func).rpartition(".")[2]))
        for each in call.keywords:
            if each.arg == "sizes":
                check.sizes = getattr(module, ast.unparse(each.value).rpartition(".")[2])
        return check

    def checks(self) -> list[str]:
        """The checks that see its changes; of the solution itself all."""
        every, known = checks(self.assignment), Assignment(self.assignment)
        return [name for name in every if not self.cells or known.needed(name) & {*self.cells}]

    def programs(self, check: str) -> tuple[Any, ...]:
        """What the check's cell calls it on."""
        return tuple(self._names[name] for name in Assignment(self.assignment).called(check))

    @cached_property
    def _names(self) -> dict[str, Any]:
        """What its cells define; they stand in a file, so that messages show their lines."""
        source = Assignment(self.assignment).written(self.cells)
        file = Path(mkdtemp(dir=FILES.name)) / "cell.py"
        file.write_text(source, encoding="utf-8")
        names: dict[str, Any] = {"__name__": "handed_in"}
        exec(compile(source, str(file), "exec"), names)
        return names


def rows(assignment: str) -> list[HandedIn]:
    with open(FOLDER / assignment / "wrong.toml", "rb") as file:
        held = tomllib.load(file)
    return [_row(assignment, held["at"], each) for each in held["program"]]


def _row(assignment: str, at: dict[str, list[Any]], row: dict[str, Any]) -> HandedIn:
    own = row.get("at", {})
    sizes = at | (own if isinstance(own, dict) else dict.fromkeys(at, own))
    loses, hint = row.get("loses", []), row.get("hint", {})
    if isinstance(hint, str):
        hint = dict.fromkeys(loses, hint)
    return HandedIn(
        assignment,
        row["what"],
        {name: each for name, each in row.items() if name not in KEYS},
        {check: [tuple(n) if isinstance(n, list) else n for n in sizes[check]] for check in sizes},
        frozenset(loses),
        hint,
        row.get("ask", ""),
    )


def checks(assignment: str) -> list[str]:
    """The names of its checks, in the order of the notebook."""
    points = Assignment(assignment).points()
    return [name.removeprefix("check_") for name in points if name.startswith("check_")]


def misconceptions(assignment: str) -> str:
    """The lecturers' table: of each row that has something to ask what it loses."""
    all_of_them = checks(assignment)
    lines = ["| what they write | what they lose | what to ask |", "| --- | --- | --- |"]
    for row in rows(assignment):
        if row.ask:
            lines.append(f"| {row.what} | {_in_words(all_of_them, row.loses)} | {row.ask} |")
    return "\n".join(lines)


def _in_words(every: Sequence[str], lost: frozenset[str]) -> str:
    left = [name for name in every if name not in lost]
    if not left:
        return "everything"
    named = left if len(left) <= len(every) // 3 else [name for name in every if name in lost]
    return ("all but " if named == left else "") + ", ".join(f"`{name}`" for name in named)
