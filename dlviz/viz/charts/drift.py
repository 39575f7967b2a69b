"""Where clients went in a round, from the weights that the server sent to all.

            o client 2
           /                  o  where a client's weights are after its local training
     *----x  mean             *  what all were sent       x  their mean
           \\
            o client 0

Weights have thousands of dimensions. Drawn are an update's true length and its true angle to the
mean update (analysis/plane.py); the angle between two clients is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.plane import beside_mean
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

INNER = 380.0  # pixels of the axes


def drift(
    updates: Mapping[str, Any],
    *,
    theme: str = "auto",
    title: str = "Where the clients went",
) -> Figure:
    """Draw the `updates` (clients, parameters) of each name at one scale, their mean to the right.

    Raises ValueError where there is no update, and where they differ in their parameters.
    """
    points = beside_mean(updates)
    figure = Figure()
    for i, (name, own) in enumerate(points.items()):
        color, _ = palette.line(i)
        dash = ("solid", "dot")[i % 2]
        figure.add_trace(_lines(own, name, color, dash))
        figure.add_trace(
            go.Scatter(
                name=f"{text.cut(name, 40)}: mean",
                x=[own[:, 0].mean()],
                y=[0],
                mode="markers",
                marker={"symbol": ("x", "cross")[i % 2], "size": 13, "color": color},
                hovertemplate=f"mean, {text.cut(name, 40)}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            name="what all were sent",
            x=[0],
            y=[0],
            mode="markers",
            marker={"symbol": "star", "size": 14, "color": palette.ORANGE},
            hovertemplate="the weights that all were sent<extra></extra>",
        )
    )
    heading = text.heading(title, "Lengths, and angles to the mean, are those in all dimensions.")
    axis = {"zeroline": False, "showgrid": True}
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER,
        below=96,
        legend=palette.LEGEND_BELOW,
        xaxis={"title": "distance along the mean update", **axis},
        yaxis={"title": "away from it", "scaleanchor": "x", **axis},
    )
    return figure


def _lines(own: np.ndarray, name: str, color: str, dash: str) -> go.Scatter:
    """From the start to each client and back, as one line with gaps."""
    ends = np.full((len(own), 3, 2), np.nan)
    ends[:, 0], ends[:, 1] = 0.0, own
    clients = np.repeat(np.arange(len(own)), 3)
    return go.Scatter(
        name=text.cut(name, 40),
        x=ends[..., 0].ravel(),
        y=ends[..., 1].ravel(),
        mode="lines+markers",
        line={"color": color, "width": 1.6, "dash": dash},
        marker={"size": 8, "color": color},
        customdata=clients,
        hovertemplate=f"{text.cut(name, 40)}, client %{{customdata}}<extra></extra>",
    )
