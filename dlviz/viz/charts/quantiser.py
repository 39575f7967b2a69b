"""A quantiser as a staircase with its noise: what a value is decoded to.

decoded |            __.   dots: the decoded values, the stronger the more often
        |      . . _/      line: their mean; on the diagonal where the code is unbiased
        | . . /            band: a standard deviation to either side
        +----------- value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

LINES = "Line: the mean; band: a standard deviation to either side; dots: the decoded values, the "
LINES += "stronger the more often. Thin grey line: unchanged."
FAINT, STRONG = 0.2, 0.9  # opacity of a decoded value that is rare, and that is the only one


def quantiser(
    values: Sequence[float] | np.ndarray,
    decoded: Any,
    *,
    title: str = "What a value is decoded to",
    xlabel: str = "value",
    ylabel: str = "decoded value",
    theme: str = "auto",
) -> Figure:
    """Draw what `values`, (k,), are decoded to: `decoded`, (draws, k), or several such by name; one
    draw, (k,), of a code without noise. Units belong in `xlabel` and `ylabel`.

    Raises ValueError for arrays that do not fit each other, and for a value that is not finite.
    """
    at, codes = checked(values, decoded)
    order = np.argsort(at, kind="stable")
    at = at[order]
    line = {"color": palette.colors(theme)["faint"], "width": 1}
    figure = Figure(go.Scatter(x=at, y=at, name="unchanged", mode="lines", line=line,
                               hoverinfo="skip", showlegend=False))  # fmt: skip
    for i, (name, draws) in enumerate(codes.items()):
        figure.add_traces(_series(name, i, at, draws[:, order], len(codes) > 1))
    lay_out(
        figure,
        text.heading(title, text.wrap(LINES, text.LINE)),
        [],
        theme,
        inner=400,
        below=60,
        legend=palette.LEGEND_LINES,
        xaxis={"title": text.cut(xlabel, 80)},
        yaxis={"title": text.cut(ylabel, 60)},
    )
    return figure


def checked(values: Any, decoded: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The values, (k,), and the draws of each name, (draws, k). Raises ValueError."""
    at = np.asarray(values, dtype=np.float64)
    codes = {
        name: np.atleast_2d(np.asarray(own, dtype=np.float64))
        for name, own in (decoded if isinstance(decoded, Mapping) else {"decoded": decoded}).items()
    }
    if at.ndim != 1 or not len(at):
        raise ValueError(f"values of shape {at.shape} are no row of numbers: give (k,).")
    for name, own in codes.items():
        if own.ndim != 2 or own.shape[1] != len(at) or not len(own):
            raise ValueError(
                f"{name} has the shape {own.shape} and there are {len(at)} values: give (draws, "
                f"{len(at)})."
            )
    for name, own in {"values": at, **codes}.items():
        if not np.isfinite(own).all():
            raise ValueError(f"{name} has {own[~np.isfinite(own)][0]}: give finite numbers.")
    return at, codes


def _series(
    name: str, place: int, at: np.ndarray, draws: np.ndarray, named: bool
) -> list[go.Scatter]:
    """The decoded values, the band and the mean of a code's `draws`, (draws, k)."""
    color, dash = palette.line(place)
    group = {"legendgroup": str(place), "name": text.cut(name, 40)}
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    found = [np.unique(own, return_counts=True) for own in draws.T]
    shares = np.concatenate([counts for _, counts in found]) / len(draws)
    dots = go.Scatter(
        x=np.repeat(at, [len(own) for own, _ in found]),
        y=np.concatenate([own for own, _ in found]),
        mode="markers",
        marker={"color": color, "size": 5, "opacity": FAINT + (STRONG - FAINT) * shares},
        customdata=shares,
        hovertemplate="%{x:.4g} is decoded to %{y:.4g} in %{customdata:.0%} of the draws"
        "<extra></extra>",
        showlegend=False,
        **group,
    )
    band = go.Scatter(
        x=np.concatenate([at, at[::-1]]),
        y=np.concatenate([mean + sd, (mean - sd)[::-1]]),
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=color + "55",
        hoverinfo="skip",
        showlegend=False,
        **group,
    )
    line = go.Scatter(
        x=at,
        y=mean,
        mode="lines",
        line={"color": color, "width": 2.2, "dash": dash},
        customdata=sd,
        hovertemplate="%{x:.4g}: mean %{y:.4g}, standard deviation %{customdata:.4g}"
        "<extra></extra>",
        showlegend=named,
        **group,
    )
    return [band, dots, line] if sd.any() else [dots, line]
