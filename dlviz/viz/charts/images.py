"""Pictures side by side, a row for each name.

on the phone   [ 3 ] [ 7 ] [ 1 ]       pixels from 0, white, to 1, black
read           [ 3 ] [ 7 ]
               label 3             what a picture's caption says
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out, named_rows
from dlviz.viz.words import text

BETWEEN = 3  # of a picture's pixels, from one picture to the next
PIXEL = 7.0  # screen pixels for one of a picture's, at most
SCALE = [[0.0, palette.WHITE], [1.0, palette.BLACK]]


def images(
    values: Mapping[str, Any],
    *,
    size: tuple[int, int] = (8, 8),
    captions: Mapping[str, Sequence[str]] | None = None,
    theme: str = "auto",
    title: str = "Pictures",
) -> Figure:
    """Draw the pictures of each name in a row: (n, ...) of any shape with height x width = `size`
    pixels each, from 0 to 1 (others are clipped). A name may have none. `captions` are written
    below the pictures of a name.

    Raises ValueError where there is no picture, for a picture of another size or with a pixel
    that is not finite, and for captions that do not fit.
    """
    rows = pictures_of(values, size)
    words = {name: captions_of(name, own, rows) for name, own in (captions or {}).items()}
    high, wide = (length + BETWEEN for length in size)
    figure = Figure([_pixels(rows, size), _frames(rows, size, theme)])
    for place, name in enumerate(rows):
        for across, said in enumerate(words.get(name, ())):
            figure.add_annotation(
                x=across * wide + (size[1] - 1) / 2,
                y=place * high + size[0] - 0.5,
                text=text.cut(said, 16),
                showarrow=False,
                yanchor="top",
                font={"size": 11},
            )
    many = max(len(own) for own in rows.values())
    one_scale = {"constrain": "domain", "showgrid": False}
    names = {place * high + (size[0] - 1) / 2: text.cut(n, 30) for place, n in enumerate(rows)}
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=PIXEL * high * len(rows),
        below=20,
        xaxis={
            "range": [-1, many * wide - BETWEEN],
            "showticklabels": False,
            "ticks": "",
            "fixedrange": True,
            "constraintoward": "left",
            **one_scale,
        },
        yaxis={
            **named_rows(names, len(rows) * high - 1, -1),
            "scaleanchor": "x",
            "constraintoward": "top",
            **one_scale,
        },
    )
    return figure


def pictures_of(values: Mapping[str, Any], size: tuple[int, int]) -> dict[str, np.ndarray]:
    """The pictures of each name, (n, height, width). Raises ValueError for invalid ones."""
    rows = {}
    for name, own in values.items():
        given = np.asarray(own, dtype=np.float64)
        if given.size != len(given) * size[0] * size[1]:
            raise ValueError(
                f"{name} has values of shape {given.shape}: give (n, ...) with {size[0]} x "
                f"{size[1]} pixels each, or another size."
            )
        rows[name] = given.reshape(len(given), *size)
        if not np.isfinite(rows[name]).all():
            raise ValueError(f"{name} has a pixel that is not finite: use numbers from 0 to 1.")
    if not any(len(own) for own in rows.values()):
        raise ValueError("there is no picture to draw: give one or more.")
    return rows


def captions_of(
    name: str, captions: Sequence[str], rows: Mapping[str, np.ndarray]
) -> Sequence[str]:
    """The captions. Raises ValueError unless there is one for each picture."""
    pictures = len(rows.get(name, ()))
    if len(captions) != pictures:
        raise ValueError(
            f"{len(captions)} captions do not fit the {pictures} pictures of {name}: give one for "
            "each."
        )
    return captions


def _pixels(rows: Mapping[str, np.ndarray], size: tuple[int, int]) -> go.Heatmap:
    """All pictures as one heat map, with gaps between them."""
    high, wide = (length + BETWEEN for length in size)
    many = max(len(own) for own in rows.values())
    whole = np.full((high * len(rows), wide * many), np.nan)
    for place, own in enumerate(rows.values()):
        for across, picture in enumerate(own):
            down, right = place * high, across * wide
            whole[down : down + size[0], right : right + size[1]] = picture
    return go.Heatmap(
        z=whole.round(3),
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        showscale=False,
        hoverongaps=False,
        hovertemplate="%{z:.2f}<extra></extra>",
    )


def _frames(rows: Mapping[str, np.ndarray], size: tuple[int, int], theme: str) -> go.Scatter:
    """A line around each picture, which shows its edges on a white page."""
    high, wide = (length + BETWEEN for length in size)
    x: list[float | None] = []
    y: list[float | None] = []
    for place, own in enumerate(rows.values()):
        for across in range(len(own)):
            left, top = across * wide - 0.5, place * high - 0.5
            right, bottom = left + size[1], top + size[0]
            x += [left, right, right, left, left, None]
            y += [top, top, bottom, bottom, top, None]
    line = {"color": palette.colors(theme)["faint"], "width": 1}
    return go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
