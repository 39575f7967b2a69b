"""The ranks of a mesh: each a node, and a line to its neighbour along each axis.

  1-----3      the first axis, the slowest, runs down, the second across, the third into the
 /|    /|      picture: ranks that lines of one look join are a group of that axis
0-----2 |
| 5---|-7
|/    |/
4-----6
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

INTO = 0.42, 0.32  # of the distance of two nodes: right and up for a step into the picture
NODE, APART, EDGE, BELOW = 30, 130, 30, 64  # pixels: a node, two nodes, around them, the legend


def mesh(axes: Mapping[str, int], *, theme: str = "auto", title: str = "Ranks of a mesh") -> Figure:
    """Draw the ranks of a mesh with these axes, by name and length, slowest first, as
    `comm.mesh(dp=2, pp=2, tp=2)` numbers them.

    Raises ValueError for none or more than three axes, for a length below 1, and for an unknown
    theme.
    """
    check_counts(**axes)
    if not 1 <= len(axes) <= 3:
        raise ValueError(f"a mesh of {len(axes)} axes: draw one, two or three.")
    lengths = [*axes.values(), 1, 1][:3]
    places = [_place(at, lengths) for at in product(*map(range, lengths))]
    grid = np.arange(len(places)).reshape(lengths)
    figure = Figure()
    for number, (name, length) in enumerate(axes.items()):
        if length > 1:
            figure.add_trace(_lines(name, number, np.moveaxis(grid, number, -1), places))
    colors = palette.colors(theme)
    x, y = np.transpose(places)
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="markers+text",
            text=[str(rank) for rank in range(len(places))],
            marker={"size": NODE, "color": colors["paper"],
                    "line": {"color": colors["faint"], "width": 1.5}},
            textfont={"size": 14, "color": colors["ink"]},
            showlegend=False,
            **hover([_words(rank, axes, grid) for rank in range(len(places))]),
        )
    )  # fmt: skip
    unit, wide, high = APART / EDGE, float(np.ptp(x)), float(np.ptp(y))
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=APART * high + 2 * EDGE,
        below=BELOW,
        legend={**palette.LEGEND_BELOW, **palette.LEGEND_LINES},
        xaxis={"range": [-1 / unit, wide + 1 / unit], "visible": False, "fixedrange": True},
        yaxis={"range": [y.min() - 1 / unit, y.max() + 1 / unit], "visible": False,
               "fixedrange": True, "scaleanchor": "x"},
    )  # fmt: skip
    return figure


def _place(at: tuple[int, ...], lengths: list[int]) -> tuple[float, float]:
    """Where a rank lies, in distances of two nodes that leave room for what lies behind them."""
    down, across, into = at
    behind = lengths[2] - 1
    x = across * max(1.0, INTO[0] * (behind + 1)) + INTO[0] * into
    y = -down * max(1.0, INTO[1] * (behind + 1)) + INTO[1] * into
    return x, y


def _lines(
    name: str, number: int, groups: np.ndarray, places: list[tuple[float, float]]
) -> go.Scatter:
    """A line through the ranks of each group of an axis: the last dim of `groups`."""
    words, style = palette.axis(name)
    across: list[float | None] = []
    up: list[float | None] = []
    for group in groups.reshape(-1, groups.shape[-1]).tolist():
        across += [places[rank][0] for rank in group] + [None]
        up += [places[rank][1] for rank in group] + [None]
    line = {"color": style.color, "width": 4, "dash": palette.DASHES[number]}
    return go.Scatter(x=across, y=up, mode="lines", name=words, line=line, hoverinfo="skip")


def _words(rank: int, axes: Mapping[str, int], grid: np.ndarray) -> str:
    """A rank's group along each axis."""
    at = np.argwhere(grid == rank)[0]
    lines = [f"<b>rank {rank}</b>"]
    for number, name in enumerate(axes):
        whole = [slice(None) if number == other else int(place) for other, place in enumerate(at)]
        lines.append(f"{name} ({', '.join(map(str, grid[tuple(whole)].tolist()))})")
    return "<br>".join(lines)
