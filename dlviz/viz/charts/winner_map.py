"""Which of several things wins at each place of two axes: cells in their tints, names on them.

It is the common part of `compression_map`, `cut_map` and `memory_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_amounts, check_counts
from dlviz.viz import palette
from dlviz.viz.charts.cells import ROW
from dlviz.viz.charts.figure import WIDE, Figure, label_width, lay_out
from dlviz.viz.words import text

MOST = 2 * len(palette.LINES)  # things that have a colour of their own
SHOWN = 8  # names on the axis across, about
GAPS = 40  # columns: with more, cells have no gap

Axis = tuple[str, list[str]]  # its title, and the name of each place


def winner_map(
    best: np.ndarray,
    looks: Mapping[str, palette.Style],
    words: Callable[[int, int], list[str]],
    across: Axis,
    down: Axis,
    *,
    title: str,
    theme: str,
) -> Figure:
    """Draw `best`, the place of the winner among `looks`, (rows, columns). A hover has the `words`
    of a row and a column, the first bold."""
    names, styles = [*looks], [*looks.values()]
    figure = Figure(_cells(best, styles, words))
    for place in sorted({*best.ravel().tolist()}):  # the legend; a heat map has none
        style = styles[place]
        figure.add_trace(
            go.Scatter(
                x=[None],
                y=[None],
                name=text.cut(names[place], 40),
                mode="markers",
                marker={"symbol": "square", "size": 13, "color": style.color},
            )
        )
        _label(figure, names[place], best == place, style.ink)
    axes = []
    for (name, labels), shown in ((across, SHOWN), (down, 2 * SHOWN)):
        every = -(-len(labels) // shown)
        ticks = {"tickvals": [*range(0, len(labels), every)], "ticktext": labels[::every]}
        axes.append({"title": name, "showgrid": False, "ticks": "", **ticks})
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=max(240.0, min(ROW * len(best), 400.0)),
        below=96,
        legend=palette.LEGEND_BELOW,
        xaxis=axes[0],
        yaxis=axes[1],
    )
    return figure


def grids(
    values: Mapping[str, Any],
    what: str,
    down: Sequence[int],
    across: Sequence[float],
    things: str,
    columns: str,
    rows: tuple[str, str] = ("ranks", "numbers of ranks"),
) -> np.ndarray:
    """The `values` of each thing, (things, down, across); `rows`: the name of what runs down, and
    how several are called. Raises ValueError."""
    for each in down:
        check_counts(**{rows[0]: each})
    if not 1 <= len(values) <= MOST:
        raise ValueError(f"{len(values)} {things} have no colours of their own: give 1 to {MOST}.")
    shape = len(down), len(across)
    for name, own in values.items():
        if np.shape(own) != shape or not np.prod(shape):
            raise ValueError(
                f"the {what} of {name} have the shape {np.shape(own)}: give one for each of "
                f"{shape[0]} {rows[1]} and {shape[1]} {columns}, {shape}."
            )
        check_amounts(f"{name}: ", **{what: np.ravel(own)})
    return np.array([*values.values()], dtype=np.float64)


def winner_style(place: int) -> palette.Style:
    """Seven tints, then their whole colours."""
    style = palette.Style(palette.LINES[place % len(palette.LINES)])
    return palette.pale(style) if place < len(palette.LINES) else style


def _cells(
    best: np.ndarray, styles: list[palette.Style], words: Callable[[int, int], list[str]]
) -> go.Heatmap:
    steps = [edge / len(styles) for edge in range(len(styles) + 1)]
    scale = [
        [at, look.color] for i, look in enumerate(styles) for at in (steps[i], steps[i + 1])
    ]  # each colour from one step to the next
    rows, columns = best.shape
    hovers = [[_hover(*words(row, column)) for column in range(columns)] for row in range(rows)]
    gap = 1 if columns <= GAPS else 0
    return go.Heatmap(
        z=best,
        zmin=-0.5,
        zmax=len(styles) - 0.5,
        colorscale=scale,
        showscale=False,
        xgap=gap,
        ygap=gap,
        customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(place: str, *lines: str) -> str:
    return "<br>".join([f"<b>{place}</b>", *lines])


def _label(figure: go.Figure, name: str, where: np.ndarray, ink: str) -> None:
    """The name in the middle of the longest row of the cells `where`, if it fits there."""
    longest = (0, 0, 0)  # cells, row, first column
    for row in range(len(where)):
        edges = np.diff(np.concatenate([[0], where[row].astype(int), [0]]))
        runs = zip(np.flatnonzero(edges > 0), np.flatnonzero(edges < 0), strict=True)
        longest = max([longest, *((int(end - start), row, int(start)) for start, end in runs)])
    cells, row, first = longest
    words = text.cut(name, 40)
    if label_width(words) <= cells * WIDE / where.shape[1]:
        figure.add_annotation(
            x=first + (cells - 1) / 2, y=row, text=words, showarrow=False,
            font={"size": 12, "color": ink},
        )  # fmt: skip
