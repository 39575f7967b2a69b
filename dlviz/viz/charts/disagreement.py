"""How far apart the models of the ranks are, over time; a line for each method.

disagreement |      ____--- ensemble          logarithmic
             |  /|  /|  /|  local SGD
           0 |_/_|_/_|_/_|_ synchronous       no disagreement: on the lower border
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.charts.losses import ROW, clocks, legend_rows
from dlviz.viz.words import text

INNER = 330.0  # pixels of the axes
LOWEST = -7.0  # decades: a smaller difference is rounding, and counts as none


class ReplicasApart(NamedTuple):
    """The lines by name of method, (points, 2) of seconds and decades, on an axis from `low` to
    `high` decades; a 0 lies at its lower end."""

    lines: dict[str, np.ndarray]
    low: float
    high: float


def disagreement(
    traces: text.Traces,
    *,
    clock: str = "wall",
    theme: str = "auto",
    title: str = "How far apart the models of the ranks are",
) -> Figure:
    """Draw `metrics.disagreement` of each run by name. Raises ValueError as that does."""
    plan = laid_out(traces, clock)
    figure = Figure()
    for name, look in palette.methods(plan.lines).items():
        at, decades = plan.lines[name].T
        figure.add_trace(
            go.Scatter(
                name=text.cut(name, 40),
                x=at,
                y=decades,
                mode="lines",
                line={"color": look.color, "width": 1.7, "dash": look.dash},
                meta=text.wrap(name),
                customdata=np.where(decades > plan.low, 10**decades, 0.0),
                hovertemplate="%{meta}<br>after %{x:.3~f} s: %{customdata:.3~g}<extra></extra>",
            )
        )
    heading = text.heading(title, text.wrap(summary(traces, clock), text.LINE))
    places, names = marks(plan)
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER,
        below=64 + ROW * legend_rows([*plan.lines]),
        showlegend=True,
        legend={**palette.LEGEND_BELOW, **palette.LEGEND_LINES, "itemwidth": 44},
        xaxis={"title": f"{text.TIMES[clock]} (s)", "rangemode": "tozero"},
        yaxis={
            "title": "distance from the mean / its length",
            "tickvals": places,
            "ticktext": names,
            "range": [plan.low - 0.03 * (plan.high - plan.low), plan.high],
        },
    )
    return figure


def laid_out(traces: text.Traces, clock: str) -> ReplicasApart:
    """The lines; points without disagreement lie on the border below the smallest one."""
    named = text.by_name(traces)
    found = {name: metrics.disagreement(trace, clock) for name, trace in named.items()}
    with np.errstate(divide="ignore"):
        decades = {name: np.log10(table.disagreement) for name, table in found.items()}
    seen = np.concatenate([np.zeros(0), *decades.values()])
    seen = seen[np.isfinite(seen) & (seen > LOWEST)]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (-2.0, 0.0)
    low, high = float(np.floor(low)), high + 0.1
    lines = {
        name: np.stack([found[name].seconds, np.where(own <= LOWEST, low, own)], axis=1)
        for name, own in decades.items()
    }
    return ReplicasApart(lines, low, high)


def summary(traces: text.Traces, clock: str) -> str:
    words = "Root mean square distance of the models from their mean, over the length of the mean."
    return " ".join([words, *clocks([*text.by_name(traces).values()], clock)])


def marks(plan: ReplicasApart) -> tuple[list[float], list[str]]:
    """Ticks: powers of ten above the border, and 0 on it."""
    places = np.arange(plan.low + 1, np.floor(plan.high) + 1).tolist()
    return [plan.low, *places], ["0", *(f"{10**place:.10g}" for place in places)]
