"""A report to hand in: predictions, measurements and check results, in one file.

    report("Ada Lovelace")      writes dlviz-report-ada-lovelace.json, and shows its contents
    total(18)                   an assignment's points so far, of 18, and how to hand in

The file holds the predictions of all notebooks in the folder, and the checks that this notebook
has run. `dlviz report FOLDER` makes one page of a class's files (class_page.py).
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from types import EllipsisType
from typing import Any

from dlviz import __version__
from dlviz.grading.harness.feedback import number, wrapped
from dlviz.grading.predictions import prediction_file
from dlviz.grading.predictions.predict import Prediction, everything, record_of, shown
from dlviz.grading.questions import lab_of

FORMAT = "dlviz report 1"
ASK = 'No file was written yet: type your name, as in report("Ada Lovelace"), and run this again.'


HAND_IN = (
    "The answer of the last part is graded by hand. To hand in, save this notebook (Ctrl+S) and "
    'give its file to your course, which says where. dlviz.grading.report("your name") writes '
    "points and predictions into one more file, for a course that collects those."
)


class Points(float):
    """A check's points: nbgrader reads the text as a number, a notebook shows "2.25 of 3
    points"."""

    most: float

    def __new__(cls, points: float, most: float) -> Points:
        self = super().__new__(cls, points)
        self.most = most
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Points, (float(self), self.most)

    def __repr__(self) -> str:
        return f"{self:g}"

    def _repr_html_(self) -> str:
        return f"{self:g} of {self.most:g} point{'s' * (self.most != 1)}"


@dataclass(frozen=True)
class CheckResult:
    """The last result of an assignment's check."""

    what: str  # "1F1B: every rank comes to its end"
    points: float
    most: float
    when: datetime


@dataclass
class StudentReport:
    """What is handed in; `file` is None as long as it has no name."""

    name: str
    file: Path | None
    written: datetime
    predictions: list[Prediction]
    checks: list[CheckResult]

    def document(self) -> dict[str, Any]:
        """The file's contents, JSON values only."""
        return {
            "format": FORMAT,
            "name": self.name,
            "written": self.written.isoformat(),
            "dlviz": __version__,
            "predictions": [
                {
                    "lab": lab_of(each.question),
                    "question": each.question,
                    **_record(each),
                    "factor": each.factor if math.isfinite(each.factor) else None,
                }
                for each in self.predictions
            ],
            "checks": [{**vars(each), "when": each.when.isoformat()} for each in self.checks],
        }

    def __repr__(self) -> str:
        lines = [self._head()]
        lines += [f"lab {lab_of(e.question) or '-'}  {e!r}".strip() for e in self.predictions]
        lines += [f"{e.points:g} of {e.most:g}  {e.what}" for e in self.checks]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self._head())}</p>"]
        if self.predictions:
            head = ("lab", "question", "predicted", "measured", "factor", "second attempt")
            parts.append(_table(head, [_cells(each) for each in self.predictions]))
        if self.checks:
            rows = [(f"{e.points:g} of {e.most:g}", e.what) for e in self.checks]
            parts.append(_table(("points", "check"), rows))
        return "\n".join(parts)

    def _head(self) -> str:
        if self.file is None:
            return ASK
        return f"Report of {self.name}, to hand in: {self.file}"


@dataclass(frozen=True)
class Total:
    """The points of an assignment's checks, out of `of`, and how to hand it in."""

    of: float
    checks: list[CheckResult]

    def __repr__(self) -> str:
        lost = [f"{each.points:g} of {each.most:g}  {each.what}" for each in self._lost]
        return "\n".join([*wrapped(self._head), *lost, *wrapped(HAND_IN)])

    def _repr_html_(self) -> str:
        rows = [(f"{each.points:g} of {each.most:g}", each.what) for each in self._lost]
        table = _table(("points", "check"), rows) if rows else ""
        return f"<p><b>{escape(self._head)}</b></p>{table}<p>{escape(HAND_IN)}</p>"

    @property
    def _lost(self) -> list[CheckResult]:
        return [each for each in self.checks if each.points < each.most]

    @property
    def _head(self) -> str:
        points, tried = (sum(getattr(e, name) for e in self.checks) for name in ("points", "most"))
        head = f"{points:g} of {number(self.of, 'point')} by the checks."
        if tried < self.of:
            head += f" Checks worth {self.of - tried:g} have not run: Run, Run All Cells."
        return head


# An attribute of dlviz itself, since each graded cell reloads this module.
_checks: dict[str, CheckResult] = vars(sys.modules["dlviz"]).setdefault("_checks", {})


def record_check(what: str, points: float, most: float) -> None:
    """Record a check's result for the report; the last one counts."""
    said = _checks[what] = CheckResult(what, points, most, _now())
    record = {"points": points, "most": most, "when": said.when.isoformat()}
    prediction_file.write({what: record}, prediction_file.CHECKS)


def total(of: float) -> Total:
    """The points of this notebook's checks when they last ran, out of `of`."""
    return Total(of, list(_checks.values()))


def report(name: str | EllipsisType | None = None) -> StudentReport:
    """Write the file to hand in into the notebook's folder, and show its contents.

    Without a name it only shows them. Raises ValueError for a name without an alphabetic
    character, OSError if the file cannot be written.
    """
    made = StudentReport("", None, _now(), everything(), list(_checks.values()))
    if name is None or name is ...:
        return made
    short = re.sub(r"\W+", "-", str(name)).strip("-").lower()[:60]
    if not re.search(r"[^\W\d_]", short):
        raise ValueError(f"name={name!r} has no letter: write your name.")
    made.name, made.file = str(name).strip(), Path(f"dlviz-report-{short}.json")
    text = json.dumps(made.document(), indent=1, ensure_ascii=False, allow_nan=False)
    prediction_file.replace(made.file.absolute(), text + "\n")
    return made


def _record(each: Prediction) -> dict[str, Any]:
    record = record_of(each)
    return {"predicted": record.pop("value"), **record}


def _cells(each: Prediction) -> tuple[str, ...]:
    numbers = (each.value, each.measured, each.second)
    predicted, measured, second = ("" if n is None else shown(n, each.unit) for n in numbers)
    factor = f"{each.factor:.2f}" if math.isfinite(each.factor) else ""
    return lab_of(each.question), each.question, predicted, measured, factor, second


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        left = 'style="text-align: left"'
        shown = (f"<{tag} {left}>{escape(cell)}</{tag}>" for cell in cells)
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def _now() -> datetime:
    return datetime.now().astimezone().replace(microsecond=0)
