"""The method that takes the least time, over the bandwidth of a link and the number of ranks.

ranks |  top 1 %  |        |        tint: the method that wins there
    8 |  ___      | 4 bits | dense  hover: the seconds of each
    2 |     |_____|        |
      +---------------------------- bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_amounts, check_counts
from dlviz.viz import palette
from dlviz.viz.charts.cells import ROW
from dlviz.viz.charts.figure import WIDE, Figure, label_width, lay_out
from dlviz.viz.words import text

MOST = 2 * len(palette.LINES)  # methods that have a colour of their own
SHOWN = 8  # names on the axis of bandwidths, about
GAPS = 40  # columns: with more, cells have no gap


def compression_map(
    seconds: Mapping[str, Any],
    *,
    bandwidth: Sequence[float],
    ranks: Sequence[int],
    theme: str = "auto",
    title: str = "Which method takes the least time?",
) -> Figure:
    """Draw the method with the least `seconds`, by name (ranks, bandwidths), of each number of
    `ranks` and each `bandwidth` in bytes a second, in the order in which these are given. Of equal
    ones the first wins; a method's colour is by its place, whether it wins or not.

    Raises ValueError for seconds that do not fit, and for more than 14 methods.
    """
    times = checked(seconds, bandwidth, ranks)
    names = [*seconds]
    best = times.argmin(axis=0)  # (ranks, bandwidths)
    looks = [_style(place) for place in range(len(names))]
    winners = sorted({*best.ravel().tolist()})
    links = [f"{text.nbytes(round(each))}/s" for each in bandwidth]
    figure = Figure(_cells(times, best, names, looks, [links, [*map(str, ranks)]]))
    for place in winners:  # the legend; a heat map has none
        figure.add_trace(
            go.Scatter(
                x=[None],
                y=[None],
                name=text.cut(names[place], 40),
                mode="markers",
                marker={"symbol": "square", "size": 13, "color": looks[place].color},
            )
        )
        _label(figure, names[place], best == place, looks[place].ink)
    every = -(-len(links) // SHOWN)
    across = {"tickvals": [*range(0, len(links), every)], "ticktext": links[::every]}
    down = {"tickvals": [*range(len(ranks))], "ticktext": [*map(str, ranks)]}
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=max(240.0, min(ROW * len(ranks), 400.0)),
        below=96,
        legend=palette.LEGEND_BELOW,
        xaxis={"title": "bandwidth of a link", "showgrid": False, "ticks": "", **across},
        yaxis={"title": "ranks", "showgrid": False, "ticks": "", **down},
    )
    return figure


def checked(
    seconds: Mapping[str, Any], bandwidth: Sequence[float], ranks: Sequence[int]
) -> np.ndarray:
    """The seconds, (methods, ranks, bandwidths). Raises ValueError."""
    check_amounts(bandwidth=bandwidth)
    for each in ranks:
        check_counts(ranks=each)
    if not 1 <= len(seconds) <= MOST:
        raise ValueError(f"{len(seconds)} methods have no colours of their own: give 1 to {MOST}.")
    shape = len(ranks), len(bandwidth)
    for name, own in seconds.items():
        if np.shape(own) != shape or not np.prod(shape):
            raise ValueError(
                f"the seconds of {name} have the shape {np.shape(own)}: give one for each of "
                f"{shape[0]} numbers of ranks and {shape[1]} bandwidths, {shape}."
            )
        check_amounts(f"{name}: ", seconds=np.ravel(own))
    return np.array([*seconds.values()], dtype=np.float64)


def _style(place: int) -> palette.Style:
    """Seven tints, then their whole colours."""
    style = palette.Style(palette.LINES[place % len(palette.LINES)])
    return palette.pale(style) if place < len(palette.LINES) else style


def _cells(
    times: np.ndarray,
    best: np.ndarray,
    names: list[str],
    looks: list[palette.Style],
    axes: list[list[str]],
) -> go.Heatmap:
    steps = [edge / len(looks) for edge in range(len(looks) + 1)]
    scale = [
        [at, look.color] for i, look in enumerate(looks) for at in (steps[i], steps[i + 1])
    ]  # each colour from one step to the next
    links, ranks = axes
    hovers = [
        [_hover(f"{n} ranks, {link}", names, times[:, row, column])
         for column, link in enumerate(links)]
        for row, n in enumerate(ranks)
    ]  # fmt: skip
    gap = 1 if len(links) <= GAPS else 0
    return go.Heatmap(
        z=best,
        zmin=-0.5,
        zmax=len(looks) - 0.5,
        colorscale=scale,
        showscale=False,
        xgap=gap,
        ygap=gap,
        customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(place: str, names: list[str], own: np.ndarray) -> str:
    """All methods, the quickest first."""
    order = np.argsort(own, kind="stable").tolist()
    lines = [f"{text.cut(names[i], 40)}: {text.seconds(float(own[i]))}" for i in order]
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
