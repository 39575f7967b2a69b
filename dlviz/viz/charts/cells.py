"""A table as cells: the number at each row and column, the larger the darker.

client 0 | 72 |    | 71 |        label
client 1 |    | 70 |    |        an empty cell is a 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import ROWS, Figure, heat_map, lay_out
from dlviz.viz.words import text

ROW, LEAST = 26.0, 130.0  # pixels: a row, all of them at least
NUMBERED = 16  # columns: with more, cells show no number
STRONG = 0.5  # share of the largest number from which white text reads best


def cells(
    values: Any,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    theme: str = "auto",
    title: str = "Who has what",
) -> Figure:
    """Draw `values` (rows, columns), numbers from 0 up; a 0 is an empty cell. Rows and columns have
    names, by default 0, 1, 2, ...

    Raises ValueError for an invalid table, and for names that do not fit it.
    """
    numbers = table_of(values)
    down_names = named(rows, len(numbers), "rows")
    across_names = named(columns, numbers.shape[1], "columns")
    heading = text.heading(title, "")
    figure = Figure([_cells(numbers, down_names, across_names)])
    for (row, column), number in np.ndenumerate(numbers):
        if number and numbers.shape[1] <= NUMBERED:
            strong = number > STRONG * numbers.max()
            ink = palette.WHITE if strong else palette.BLACK
            figure.add_annotation(
                x=column,
                y=row,
                text=f"{number:,.5g}",
                showarrow=False,
                font={"size": 11, "color": ink},
            )
    across = {"tickvals": [*range(len(across_names))], "ticktext": across_names, "ticks": ""}
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=max(LEAST, ROW * len(numbers)),
        below=60,
        xaxis={"title": text.cut(xlabel, 80), **across, "showgrid": False},
        yaxis={"title": text.cut(ylabel, 60), **ROWS, **down(down_names)},
    )
    return figure


def down(names: list[str]) -> dict[str, Any]:
    """The axis of rows, the first on top."""
    middle = list(range(len(names)))
    return {"tickvals": middle, "ticktext": names, "range": [len(names) - 0.5, -0.5]}


def table_of(values: Any) -> np.ndarray:
    """`values` as an array. Raises ValueError unless they are a table of numbers from 0 up."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 2 or not numbers.size:
        raise ValueError(f"values of shape {numbers.shape} are not a table: give (rows, columns).")
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise ValueError(f"values{[*place]} is {numbers[place]:g}: use numbers from 0 up.")
    return numbers


def named(given: Sequence[str] | None, count: int, which: str) -> list[str]:
    """The names of `which`, cut to fit. Raises ValueError unless there are `count`."""
    if given is None:
        return [str(place) for place in range(count)]
    if len(given) != count:
        raise ValueError(f"{len(given)} names do not fit {count} {which}: give one for each.")
    return [text.cut(name, 30) for name in given]


def _cells(numbers: np.ndarray, rows: list[str], columns: list[str]) -> go.Heatmap:
    summary = [
        [f"{row}, {column}: {n:,.5g}" for column, n in zip(columns, own, strict=True)]
        for row, own in zip(rows, numbers.tolist(), strict=True)
    ]
    filled = np.where(numbers > 0, numbers, np.nan)
    return heat_map(filled, max(numbers.max(), 1), summary, hoverongaps=False)
