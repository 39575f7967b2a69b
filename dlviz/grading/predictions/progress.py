"""Progress: labs, predictions and points on one page.

    progress()           of the folder of this notebook, as a table
    dlviz progress       the same in a terminal

It reads the notebooks' stored predictions and checks (prediction_file.py) in a folder and below,
and an assignment's points from its notebook. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

import pandas as pd

from dlviz.grading.predictions.class_page import ASSIGNMENTS, in_course_order, title
from dlviz.grading.predictions.predict import Prediction, restored
from dlviz.grading.predictions.prediction_file import CHECKS, PREDICTIONS, Records, records_in
from dlviz.grading.questions import lab_of

NAME = "predictions.json"


@dataclass(frozen=True)
class LabProgress:
    """One row per lab or assignment, the totals, and the files that could not be read."""

    table: pd.DataFrame
    sums: str
    unread: list[str]

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(), self.sums, *self.unread])

    def _repr_html_(self) -> str:
        lines = (f"<p>{escape(line)}</p>" for line in (self.sums, *self.unread))
        return self.table.to_html() + "".join(lines)


def progress(folder: str | Path = ".") -> LabProgress:
    """The progress in `folder` and below: for each lab and assignment the number of questions,
    predictions and results seen, the typical error factor, second attempts, and the points of
    its checks. Raises ValueError if there is no such folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name the one that holds the labs.")
    predictions: dict[str, list[Prediction]] = {}
    points: dict[str, Records] = {}
    unread = []
    for file in sorted(folder.rglob(NAME)):
        try:
            held = records_in(file)
        except (OSError, ValueError, RecursionError) as error:
            unread.append(f"{file} was left out: {error}.")
            continue
        points.setdefault(file.parent.name, {}).update(held[CHECKS])
        for made in (restored(*each) for each in held[PREDICTIONS].items()):
            if made is not None:
                predictions.setdefault(lab_of(made.question), []).append(made)
    rows = {
        _title(folder, lab): _row(len(asked), predictions.get(lab, []))
        | {"points": _points(folder, lab, points.get(lab, {})) if lab in ASSIGNMENTS else ""}
        for lab, asked in in_course_order().items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    seen, asked = table["results seen"].sum(), table["questions"].sum()
    got = sum(record["points"] for each in points.values() for record in each.values())
    return LabProgress(table, f"{seen} of {asked} results seen, {got:g} points.", unread)


def _row(asked: int, made: list[Prediction]) -> dict[str, object]:
    factors = [each.factor for each in made if each.counts]
    return {
        "questions": asked,
        "predicted": sum(each.value is not None for each in made),
        "results seen": sum(each.measured is not None for each in made),
        "typically off by": f"{median(factors):.2f}" if factors else "",
        "second attempts": sum(each.second is not None for each in made),
    }


def _points(folder: Path, name: str, checks: Records) -> str:
    got, most = (sum(each[of] for each in checks.values()) for of in ("points", "most"))
    for notebook in folder.rglob(f"{name}.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        most = max(most, _most(cell["metadata"].get("nbgrader", {}) for cell in cells))
    return f"{got:g} of {most:g}"


def _most(marks: Iterable[dict[str, object]]) -> float:
    """The points from checks, without those given by hand for written answers."""
    own = [each for each in marks if each.get("grade") and not each.get("solution")]
    return sum(float(str(each["points"])) for each in own)


def _title(folder: Path, lab: str) -> str:
    for notebook in sorted(folder.glob(f"{lab}_*.ipynb")) if lab not in ASSIGNMENTS else []:
        return notebook.stem.replace("_", " ")
    return title(lab)
