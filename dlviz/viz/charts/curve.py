"""Numbers over steps: a falling loss, one line for each run, with its own colour and dashes.

Of several runs of one method the line is the median, in a band from the least to the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.costs import ticks
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

MARKED = 40  # points: a longer line has no marker on each


Values = Sequence[float] | Mapping[str, Sequence[float] | Sequence[Sequence[float]]]


def curve(
    values: Values,
    *,
    x: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    title: str = "Loss",
    xlabel: str = "step",
    ylabel: str = "loss",
    log: bool = False,
    log_x: bool = False,
    theme: str = "auto",
) -> Figure:
    """Draw `values`, or several by name, against `x` (by default 0, 1, 2, ...), one for all or by
    name. A name may have several runs, (runs, points): their median is drawn, and their range.

    A value that is not finite (or, with `log`, not above 0; or, with `log_x`, whose x is not above
    0) leaves a gap, and the subtitle counts these. Units belong in `xlabel` and `ylabel`. Raises
    ValueError where `x` and `values` differ in length.
    """
    values, ranges = medians(values)
    found, subtitle = lines_of(values, x, log, log_x)
    subtitle += [words_on(ranges)] if ranges else []
    figure = Figure()
    for i, (name, at, y) in enumerate(found):
        color, dash = palette.line(i)
        if name in ranges:
            figure.add_trace(_band(name, at, ranges[name], color))
        figure.add_trace(
            go.Scatter(
                name=text.cut(name, 40),
                x=at,
                y=y,
                mode="lines+markers" if len(y) <= MARKED else "lines",
                line={"color": color, "width": 2.2, "dash": dash},
                marker={"symbol": i % 24, "size": 6},
                showlegend=len(found) > 1,
                meta=[text.wrap(name), text.cut(xlabel, 80)],
                hovertemplate="%{meta[0]}<br>%{meta[1]} %{x}: %{y:.5g}<extra></extra>",
            )
        )
    heading = text.heading(title, " ".join(subtitle))
    axes: dict[str, Any] = {"xaxis": {"title": text.cut(xlabel, 80)}}
    axes["xaxis"] |= {"type": "log", **powers(found)} if log_x else {}
    axes["yaxis"] = {"title": text.cut(ylabel, 60), "type": "log" if log else "linear"}
    axes["yaxis"] |= {"tickformat": ".3~g"} if log else {}
    shared = len(found) > 1 and not isinstance(x, Mapping)
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=320 - heading["margin"]["t"],
        below=60,
        legend=palette.LEGEND_LINES,
        hovermode="x unified" if shared else "closest",
        **axes,
    )
    return figure


def medians(values: Values) -> tuple[Any, dict[str, np.ndarray]]:
    """`values` with the median of each name's runs in their place, and the runs, (runs, points)."""
    if not isinstance(values, Mapping):
        return values, {}
    runs = {name: np.asarray(own, np.float64) for name, own in values.items() if np.ndim(own) == 2}
    middle = {name: np.median(own, axis=0) for name, own in runs.items()}
    return {name: middle.get(name, own) for name, own in values.items()}, runs


def words_on(runs: Mapping[str, np.ndarray]) -> str:
    """What the bands are, a sentence."""
    counts = sorted({len(own) for own in runs.values()})
    many = " or ".join(map(str, counts))
    return f"Lines: the median of {many} runs; bands: from the least to the greatest."


def _band(name: str, at: np.ndarray, runs: np.ndarray, color: str) -> go.Scatter:
    """The range of the runs, (runs, points), as an area."""
    low, high = runs.min(axis=0), runs.max(axis=0)
    return go.Scatter(
        name=text.cut(name, 40),
        x=np.concatenate([at, at[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=color + "26",
        hoverinfo="skip",
        showlegend=False,
    )


def lines_of(
    values: Any,
    x: Sequence[float] | Mapping[str, Sequence[float]] | None,
    log: bool,
    log_x: bool,
) -> tuple[list[tuple[str, np.ndarray, np.ndarray]], list[str]]:
    """Each line's name, x and y, with NaN for a value that cannot be drawn, and a remark on such
    values. Raises ValueError where `x` has another length."""
    named = values if isinstance(values, Mapping) else {"": values}
    found, gaps = [], 0
    for name, numbers in named.items():
        y = np.array(numbers, dtype=np.float64)  # (points,)
        given = x.get(name, ()) if isinstance(x, Mapping) else x
        at = np.arange(len(y)) if given is None else np.asarray(given)
        if len(at) != len(y):
            raise ValueError(
                f"x has {len(at)} points and {name or 'values'} has {len(y)}: "
                "give one x for each value."
            )
        shown = np.isfinite(y) & ((y > 0) | (not log)) & ((at > 0) | (not log_x))
        gaps += int((~shown).sum())
        y[~shown] = np.nan
        found.append((name, at, y))
    many = "1 value is" if gaps == 1 else f"{gaps} values are"
    why = "not finite" + (" or not above 0" if log or log_x else "")
    return found, [f"{many} {why} and not drawn."] if gaps else []


def powers(found: list[tuple[str, np.ndarray, np.ndarray]]) -> dict[str, list]:
    """The ticks of a logarithmic axis below these lines: powers of 2, or of 10 where those are too
    many."""
    across = np.concatenate([np.zeros(0), *(at[np.isfinite(y)] for _, at, y in found)])
    return ticks(across, (2.0, 10.0), "{:g}".format)
