"""Predicted against measured: a dot a case, and the line on which they are equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

ROOM = 0.06  # of the range, around the dots


def predicted(
    predicted: Sequence[float],
    measured: Sequence[float],
    *,
    names: Sequence[str] | None = None,
    title: str = "Measured over predicted",
    theme: str = "auto",
) -> Figure:
    """Draw seconds that were `predicted` against those that were `measured` of the same cases,
    which `names` name (by default 0, 1, 2, ...).

    The subtitle has the largest relative error and how many pairs are in the same order. Raises
    ValueError for columns of unequal length, for none, and for seconds that are not above 0.
    """
    x, y = (np.asarray(own, dtype=np.float64) for own in (predicted, measured))
    names = [str(i) for i in range(len(x))] if names is None else names
    if not len(x) == len(y) == len(names) or not len(x):
        raise ValueError(
            f"{len(x)} predicted, {len(y)} measured and {len(names)} names: give one of each for "
            "one case or more."
        )
    if not (np.isfinite([x, y]).all() and min(x.min(), y.min()) > 0):
        raise ValueError("predicted and measured have to be seconds above 0.")
    words = [
        f"<b>{text.cut(name, 40)}</b><br>predicted {text.seconds(p)}<br>measured "
        f"{text.seconds(m)} ({100 * (m / p - 1):+.1f} %)"
        for name, p, m in zip(names, x.tolist(), y.tolist(), strict=True)
    ]
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    room = ROOM * (high - low or high)
    ends = [low - room, high + room]
    equal = {"color": palette.LINES[-1], "dash": "dash", "width": 1.6}
    color = palette.line(0)[0]
    figure = Figure([
        go.Scatter(x=ends, y=ends, name="as predicted", mode="lines", line=equal, hoverinfo="skip"),
        go.Scatter(x=x, y=y, name="a case", mode="markers", showlegend=False,
                   marker={"color": color, "size": 9}, **hover(words)),
    ])  # fmt: skip
    lay_out(
        figure,
        text.heading(title, summary(x, y)),
        [],
        theme,
        inner=300,
        below=60,
        xaxis={"title": "predicted (s)", "range": ends},
        yaxis={"title": "measured (s)", "range": ends},
    )
    return figure


def summary(predicted: np.ndarray, measured: np.ndarray) -> str:
    """The largest relative error, and how many pairs of unequal predictions are in order."""
    gaps = measured / predicted - 1
    worst = float(gaps[np.argmax(np.abs(gaps))])
    first, second = np.triu_indices(len(predicted), 1)
    signs = np.sign(predicted[first] - predicted[second])
    same = signs == np.sign(measured[first] - measured[second])
    differ = signs != 0
    error = f"Largest error {100 * worst:+.1f} %."
    if not differ.any():
        return error
    return f"{error} {int(same[differ].sum())} of {int(differ.sum())} pairs are in the same order."
