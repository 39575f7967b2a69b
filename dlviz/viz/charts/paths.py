"""The race of update rules over a surface: where each was after every recorded step.

    w₂ |  o--.            a line for each rule, its head at the step of the slider;
       |      `--o        below them the surface, as lines of equal height
       +------------ w₁

It begins paused at step 0. The slider and *Play* go through the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out, slider
from dlviz.viz.words import text

GRID = 61  # points of the surface in each direction
LEVELS = 16  # lines of equal height
STOPS = 61  # of the slider
BEAT = 120  # ms from a stop to the next
INNER, BELOW = 400, 120  # pixels: the surface, the controls below it
STILL = {"mode": "immediate", "transition": {"duration": 0}}


def paths(
    steps: Mapping[str, Any],
    surface: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    x: tuple[float, float],
    y: tuple[float, float],
    theme: str = "auto",
    title: str = "Where each rule went",
) -> Figure:
    """Animate the points (steps + 1, 2) of each rule by name, over `surface(x, y)`.

    `x` and `y` are the ranges shown. The surface's lines lie at equal ratios of the height above
    its lowest point in view. The slider stops at some of many steps; the lines show all. Raises
    ValueError where there are no points, or not equally many for each rule.
    """
    found = {name: np.asarray(points, np.float64) for name, points in steps.items()}
    shapes = {points.shape for points in found.values()}
    if len(shapes) != 1 or not all(len(s) == 2 and s[0] and s[1] == 2 for s in shapes):
        raise ValueError(
            f"the points have the shapes {', '.join(map(str, shapes)) or 'of no rule'}: give each "
            "rule as many points (steps + 1, 2)."
        )
    last = shapes.pop()[0] - 1
    stops = np.unique(np.linspace(0, last, min(last + 1, STOPS)).round().astype(int)).tolist()
    heights = {name: _height(surface, points) for name, points in found.items()}
    figure = Figure([_lines(surface, x, y, palette.colors(theme)["faint"])])
    for i, (name, points) in enumerate(found.items()):
        figure.add_traces(_path(i, name, _until(0, points, heights[name])))
    moving = list(range(1, 1 + 2 * len(found)))
    figure.frames = [
        go.Frame(
            name=str(stop),
            data=[
                part
                for name, points in found.items()
                for part in _until(stop, points, heights[name])
            ],
            traces=moving,
        )
        for stop in stops
    ]
    summary = [_left(name, points, x, y) for name, points in found.items()]
    heading = text.heading(title, "<br>".join(text.clean(line) for line in summary if line))
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER,
        below=BELOW,
        legend=palette.LEGEND_LINES,
        xaxis={"title": "w₁", "range": list(x), "showgrid": False},
        yaxis={"title": "w₂", "range": list(y), "showgrid": False},
        sliders=[_slider(stops, theme)],
        updatemenus=[_buttons(theme)],
    )
    return figure


def _lines(
    surface: Callable[..., np.ndarray], x: tuple[float, float], y: tuple[float, float], color: str
) -> go.Contour:
    """Lines of equal height, at equal ratios."""
    across, up = np.linspace(*x, GRID), np.linspace(*y, GRID)
    height = surface(*np.meshgrid(across, up))  # (GRID, GRID), a row for each of `up`
    above = height - height.min()
    ratio = np.log10(np.maximum(above, above.max() * 1e-5))
    step = float(np.ptp(ratio)) / LEVELS
    return go.Contour(
        x=across,
        y=up,
        z=ratio.round(3),
        contours={
            "coloring": "lines",
            "start": float(ratio.min() + step),
            "end": float(ratio.max()),
            "size": step,
        },
        colorscale=[[0, color], [1, color]],
        line={"width": 0.6},
        hoverinfo="skip",
        showlegend=False,
        showscale=False,
    )


def _path(place: int, name: str, begin: tuple[dict[str, Any], ...]) -> list[go.Scatter]:
    """A rule's line, and its head."""
    color, dash = palette.line(place)
    line = go.Scatter(
        name=text.cut(name),
        legendgroup=str(place),
        mode="lines",
        line={"color": color, "width": 2, "dash": dash},
        hoverinfo="skip",
        **begin[0],
    )
    head = go.Scatter(
        meta=text.wrap(name),
        legendgroup=str(place),
        showlegend=False,
        mode="markers",
        marker={"color": color, "symbol": place % 24, "size": 11},
        hovertemplate="%{meta}, step %{customdata[0]}: loss %{customdata[1]:.3g}<extra></extra>",
        **begin[1],
    )
    return [line, head]


def _until(stop: int, points: np.ndarray, height: np.ndarray) -> tuple[dict[str, Any], ...]:
    """A rule's line up to a stop, and its head there."""
    x, y = (
        [float(f"{value:.4g}") if math.isfinite(value) else None for value in column]
        for column in points[: stop + 1].T.tolist()
    )
    return {"x": x, "y": y}, {"x": x[-1:], "y": y[-1:], "customdata": [[stop, height[stop]]]}


def _height(surface: Callable[..., np.ndarray], points: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(surface(points[:, 0], points[:, 1]))


def _left(name: str, points: np.ndarray, x: tuple[float, float], y: tuple[float, float]) -> str:
    """Whether the rule ends outside the picture, in words."""
    inside = [(low <= c) & (c <= high) for c, (low, high) in zip(points.T, (x, y), strict=True)]
    outside = ~(inside[0] & inside[1])
    if not outside[-1]:
        return ""
    stays = np.flatnonzero(~outside)
    return f"{name} leaves the picture for good at step {stays[-1] + 1 if len(stays) else 0}."


def _slider(stops: list[int], theme: str) -> dict[str, Any]:
    jump = {**STILL, "frame": {"duration": 0, "redraw": True}}
    return {
        **slider("0", 0, 56, INNER, theme),
        "x": 0.26,
        "len": 0.74,
        "currentvalue": {"prefix": "step ", "font": {"size": 12}},
        "steps": [
            {"label": str(stop), "method": "animate", "args": [[str(stop)], jump]} for stop in stops
        ],
    }


def _buttons(theme: str) -> dict[str, Any]:
    colors = palette.colors(theme)
    play = {**STILL, "frame": {"duration": BEAT, "redraw": True}, "fromcurrent": True}
    pause = {**STILL, "frame": {"duration": 0, "redraw": True}}
    return {
        "type": "buttons",
        "direction": "left",
        "showactive": False,
        "bgcolor": colors["cell"],
        "bordercolor": colors["faint"],
        "x": 0,
        "xanchor": "left",
        "y": -64 / INNER,
        "yanchor": "top",
        "pad": {"t": 0, "l": 0},
        "buttons": [
            {"label": "Play", "method": "animate", "args": [None, play]},
            {"label": "Pause", "method": "animate", "args": [[None], pause]},
        ],
    }
