"""The results of several runs over one quantity: the median as a line, each run as a dot.

    steps |  .
          |  o-.             both axes logarithmic
          |  ' o-___
          |________o___      x: batch

A run without a value (it never got there) counts as greater than all others; the subtitle says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

NARROW = 5  # the range in which ticks at 1, 2 and 5 times the powers of ten are one or two


def spread(
    values: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    title: str = "Several runs",
    xlabel: str = "batch",
    ylabel: str = "steps",
    missing: str = "did not get there",
    theme: str = "auto",
) -> Figure:
    """Draw `values`, the results of runs by name and x; NaN is a run without a value.

    `missing` says what became of such runs. Units belong in `xlabel` and `ylabel`. Raises
    ValueError where an x has no run, or where x or a value is not above 0.
    """
    figure, summary = Figure(), []
    for i, (name, runs) in enumerate(values.items()):
        at = np.array(sorted(runs), dtype=np.float64)
        found = [np.array(runs[x], dtype=np.float64) for x in at.tolist()]
        _check(name, at, found)
        figure.add_traces(_series(name, i, at, found, (xlabel, ylabel)))
        summary += [
            f"{name}, {x:,g}: {np.isnan(y).sum()} of {len(y)} runs {missing}."
            for x, y in zip(at, found, strict=True)
            if np.isnan(y).any()
        ]
    heading = text.heading(title, "<br>".join(text.wrap(line, text.LINE) for line in summary))
    places = sorted({x for runs in values.values() for x in runs})
    runs = [y for own in values.values() for each in own.values() for y in each if y == y]
    coarse = len(runs) > 0 and max(runs) >= NARROW * min(runs)  # else plotly's own ticks
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=320,
        below=60,
        legend=palette.LEGEND_LINES,
        xaxis={
            "title": text.cut(xlabel, 80),
            "type": "log",
            "tickvals": places,
            "ticktext": [f"{x:,g}" for x in places],
        },
        yaxis={
            "title": text.cut(ylabel, 60),
            "type": "log",
            "dtick": "D2" if coarse else None,
            "tickformat": ",~g",
        },
    )
    return figure


def _series(
    name: str, place: int, at: np.ndarray, found: list[np.ndarray], labels: tuple[str, str]
) -> list[go.Scatter]:
    """The runs as dots, and over them the line through their medians."""
    color, dash = palette.line(place)
    middle = np.array([np.median(np.nan_to_num(y, nan=np.inf)) for y in found])
    middle[np.isinf(middle)] = np.nan
    series = go.Scatter(
        name=text.cut(name, 40),
        x=at,
        y=middle,
        mode="lines+markers",
        line={"color": color, "width": 2.2, "dash": dash},
        marker={"symbol": place % 24, "size": 8},
        meta=[text.wrap(name), *(text.cut(label, 80) for label in labels)],
        hovertemplate="%{meta[0]}<br>%{meta[1]} %{x:,}: %{y:,.5~g} %{meta[2]}<extra></extra>",
    )
    if all(len(y) == 1 for y in found):
        return [series]
    dots = go.Scatter(
        x=np.repeat(at, [len(y) for y in found]),
        y=np.concatenate(found),
        mode="markers",
        marker={"symbol": place % 24, "size": 5, "color": color},
        opacity=0.45,
        showlegend=False,
        hovertemplate=series.hovertemplate,
        meta=series.meta,
    )
    return [dots, series]


def _check(name: str, at: np.ndarray, found: list[np.ndarray]) -> None:
    for x, y in zip(at, found, strict=True):
        if not len(y):
            raise ValueError(f"{name} has no run at {x:g}: give one value at least, NaN for none.")
        for what, numbers in (("x", np.array([x])), ("value", y[~np.isnan(y)])):
            wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
            if len(wrong):
                raise ValueError(
                    f"{what} {wrong[0]:g} of {name} cannot stand on a logarithmic axis: use "
                    "numbers above 0."
                )
