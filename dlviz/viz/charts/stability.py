"""A map of where a method settles, over two of its numbers, and what real runs did there.

    α |  x  grows            tint: the factor by which a round makes it grow in
      |_____                 the end, the spectral radius of a round
      |  o  \\____  x         line: where that is 1
      |  settles  \\
      +------------ η
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

if TYPE_CHECKING:
    import pandas

INNER = 400.0  # pixels of the axes
GRID = 61  # points of the map in each direction
LOW, HIGH, STEP = 0.5, 1.5, 0.1  # the radii with tints of their own
PLACES = [LOW, 0.75, 1.0, 1.25, HIGH]
NAMES = [f"{LOW:g} or less", "0.75", "1", "1.25", f"{HIGH:g} or more"]
ETA, ALPHA = (0.05, 2.0), (0.0, 1.5)
TITLE = "Where elastic averaging settles"
SUBTITLE = "Blue: a round shrinks the error, orange: a round makes it grow. Black line: radius 1."
SIDES = {True: ("a run that settled", "circle"), False: ("a run that blew up", "x")}
"""How a run is drawn: its label and its mark."""
Radius = Callable[[float, float], float]


def stability(
    radius: Radius,
    runs: pandas.DataFrame | None = None,
    *,
    eta: tuple[float, float] = ETA,
    alpha: tuple[float, float] = ALPHA,
    theme: str = "auto",
    title: str = TITLE,
) -> Figure:
    """Draw `radius(eta, alpha)`, the spectral radius of a round, over the ranges of both, and the
    `runs`: columns eta, alpha and settled (whether its loss went down).

    Raises ValueError for an invalid range.
    """
    etas, alphas, found = sampled(radius, eta, alpha)
    figure = Figure([_map(etas, alphas, found, theme), _bound(etas, alphas, found)])
    for settled, own in by_outcome(runs):
        figure.add_trace(_runs(own, settled))
    heading = text.heading(title, text.wrap(SUBTITLE, text.LINE))
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER,
        below=96 if runs is not None else 60,
        legend=palette.LEGEND_BELOW,
        xaxis={"title": "learning rate η", "range": list(eta), "showgrid": False},
        yaxis={"title": "pull α = ηρ", "range": list(alpha), "showgrid": False},
    )
    return figure


def sampled(
    radius: Radius, eta: tuple[float, float], alpha: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both ranges as points, and the radius at each pair (alphas, etas)."""
    for name, (low, high) in (("eta", eta), ("alpha", alpha)):
        if not 0 <= low < high < np.inf:
            raise ValueError(
                f"{name}=({low!r}, {high!r}) is not a range from 0 up: give low, high."
            )
    etas, alphas = np.linspace(*eta, GRID), np.linspace(*alpha, GRID)
    found = [[radius(x, y) for x in etas.tolist()] for y in alphas.tolist()]
    return etas, alphas, np.array(found, dtype=np.float64)


def by_outcome(runs: pandas.DataFrame | None) -> list[tuple[bool, Any]]:
    """The runs that settled, and those that blew up."""
    return [] if runs is None else [(each, runs[runs.settled == each]) for each in SIDES]


def _map(etas: np.ndarray, alphas: np.ndarray, found: np.ndarray, theme: str) -> go.Contour:
    return go.Contour(
        x=etas,
        y=alphas,
        z=np.clip(found, LOW, HIGH).round(4),
        contours={"coloring": "fill", "start": LOW, "end": HIGH, "size": STEP},
        line={"width": 0},
        colorscale=[[share, color] for share, color in palette.GROWTH],
        colorbar={
            "title": {"text": "spectral radius<br>of a round", "side": "top"},
            "tickvals": PLACES,
            "ticktext": NAMES,
            "thickness": 16,
            "outlinewidth": 0,
            "tickfont": {"color": palette.colors(theme)["ink"]},
        },
        customdata=found,
        hovertemplate="η %{x:.3g}, α %{y:.3g}: radius %{customdata:.4g}<extra></extra>",
    )


def _bound(etas: np.ndarray, alphas: np.ndarray, found: np.ndarray) -> go.Contour:
    """The line on which the radius is 1."""
    return go.Contour(
        x=etas,
        y=alphas,
        z=found,
        name="radius 1",
        contours={"type": "constraint", "operation": "=", "value": 1.0},
        line={"color": palette.BLACK, "width": 3},
        showlegend=False,
        hoverinfo="skip",
    )


def _runs(runs: pandas.DataFrame, settled: bool) -> go.Scatter:
    name, symbol = SIDES[settled]
    edge = {"color": palette.BLACK, "width": 1.6}
    return go.Scatter(
        x=runs.eta,
        y=runs.alpha,
        name=name,
        mode="markers",
        marker={"color": palette.WHITE, "symbol": symbol, "size": 13, "line": edge},
        hovertemplate=name + ": η %{x:.4g}, α %{y:.4g}<extra></extra>",
    )
