"""What the labs have stored: the outputs of their cells."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

LABS = Path(__file__).parents[1] / "labs"


def shown(lab: str, words: str) -> str:
    """What the cell whose code holds `words` printed or gave."""
    cells = nbformat.read(LABS / f"{lab}.ipynb", as_version=4).cells
    (cell,) = [c for c in cells if c.cell_type == "code" and words in c.source]
    return "".join(o.get("text", "") or o["data"].get("text/plain", "") for o in cell.outputs)


def table(lab: str, words: str) -> dict[str, list[float]]:
    """The rows of the DataFrame that a cell gave, by what stands before the first number."""
    number = r"-?[\d.]+|NaN"
    rows = [re.split(r"\s{2,}", line) for line in shown(lab, words).splitlines()]
    return {
        row[0]: [float(value) for value in row[1:]]
        for row in rows
        if len(row) > 2 and all(re.fullmatch(number, value) for value in row[1:])
    }
