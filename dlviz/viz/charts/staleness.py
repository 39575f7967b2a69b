"""How stale the gradients of a server's workers were: a row for each, its mean and its spread.

four alike      :
rank 1  |=======:     3.0      bar: the mean
         . o O o.              below it, how often each value: the more often, the larger
all     |=======:     3.0
                n - 1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.trace import Table
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, lay_out, named_rows
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

ROW, LEAST, HIGHEST = 38.0, 16.0, 440.0  # pixels: a row at most and at least, all of them
BAR, BELOW = 0.4, 0.42  # of a row: the height of a bar; how far below it the dots are
LEFT = -0.3  # where the axis begins: all of a dot at 0 shows
DOT = 15.0  # pixels: the dot of a value that all gradients have
TITLE = "How old the weights of a gradient are"
SUBTITLE = (
    "Bar and number: the mean; dots: how often each value. Line: prediction for the mean of all, "
    "the number of workers less one. Counted until the first worker has pushed its last gradient."
)
AXIS = "updates that a gradient did not see"
ALL = -1  # the rank of the row of all workers
STYLE = palette.style("phase")  # of that row


class ServedWorker(NamedTuple):
    """The applied gradients of a worker, or of all."""

    y: float
    name: str
    rank: int
    mean: float
    values: np.ndarray  # each staleness that occurred
    share: np.ndarray  # of the gradients

    @property
    def style(self) -> palette.Style:
        return STYLE if self.rank == ALL else palette.rank_style(self.rank)


class ServedRun(NamedTuple):
    """A run: its name, its rows, and the predicted mean staleness of all, n - 1."""

    name: str
    rows: list[ServedWorker]
    predicted: int


def staleness(traces: text.Traces, *, theme: str = "auto", title: str | None = None) -> Figure:
    """Draw `metrics.staleness` of one run with a server, or of several by name, each with its
    prediction: the gradients of n workers are n - 1 updates old in the mean, whoever is slow.

    Raises ValueError for a Trace whose updates do not say whose gradient they apply.
    """
    groups = groups_of(text.by_name(traces))
    rows = [row for group in groups for row in group.rows]
    last, figure = rows[-1].y, Figure()
    for row in rows:
        figure.add_trace(_bar(row))
        figure.add_trace(_dots(row, theme))
    for group in groups:
        _predict(figure, group, theme)
    inner = max(min(HIGHEST, ROW * (last + 1)), LEAST * (last + 1), 120.0)
    lay_out(
        figure,
        text.heading(title or TITLE, text.wrap(SUBTITLE, text.LINE)),
        [],
        theme,
        inner=inner,
        below=60,
        showlegend=False,
        barmode="overlay",
        xaxis={"title": AXIS, "range": [LEFT, highest(groups)]},
        yaxis=named_rows({row.y: text.clean(row.name) for row in rows}, last + 0.7, -0.6),
    )
    return figure


def groups_of(traces: Mapping[str, Trace]) -> list[ServedRun]:
    """The rows of each run, from the top; a named run has a row for its name."""
    groups, y = [], 0.0
    for name, trace in traces.items():
        found = applied(trace)
        y += bool(name)
        rows = []
        workers = np.unique(found["rank"]).tolist()
        for rank in (*workers, ALL):
            own = found.staleness[(found["rank"] == rank) | (rank == ALL)]
            values, count = np.unique(own, return_counts=True)
            label = "all" if rank == ALL else f"rank {rank}"
            mean = float(own.mean())
            rows.append(
                ServedWorker(y, f"{label}: {mean:.2f}", rank, mean, values, count / len(own))
            )
            y += 1
        groups.append(ServedRun(name, rows, len(workers) - 1))
    return groups


def applied(trace: Trace) -> Table:
    """Whose gradients were applied and how stale they were, while every worker had more to push (a
    slow one that ends alone is never stale). Raises ValueError where updates name no worker."""
    found = metrics.staleness(trace)
    if not isinstance(found, Table):
        raise ValueError(
            "no update of this Trace says whose gradient it applies: give the Trace of a run whose "
            "server applies each worker's gradient by itself."
        )
    last = min(np.flatnonzero(found["rank"] == rank)[-1] for rank in np.unique(found["rank"]))
    return found[: int(last) + 1]


def highest(groups: list[ServedRun]) -> float:
    """Where the axis ends."""
    most = [float(row.values.max()) for group in groups for row in group.rows]
    return 1.06 * max(*most, *(group.predicted for group in groups)) + 0.6


def reach(group: ServedRun) -> tuple[float, float]:
    """The range of rows over which a group's prediction is drawn."""
    return group.rows[0].y - 0.45, group.rows[-1].y + 0.5


def _bar(row: ServedWorker) -> go.Bar:
    words = f"<b>{row.name}</b> updates in the mean"
    across, down = (np.zeros(1), np.array([row.mean])), (np.array([row.y]), np.array([BAR]))
    return bar_series(row.style, row.name, row.name, across, down, None, [words])


def _dots(row: ServedWorker, theme: str) -> go.Scatter:
    colors = palette.colors(theme)
    return go.Scatter(
        x=row.values,
        y=np.full(len(row.values), row.y + BELOW),
        name=f"{row.name}, each",
        mode="markers",
        marker={
            "color": row.style.color,
            "size": np.maximum(DOT * np.sqrt(row.share), 3.0),
            "opacity": 1.0,
            "line": {"color": colors["ink"], "width": 0.8},
        },
        customdata=100 * row.share,
        hovertemplate="%{customdata:.3g} % did not see %{x} updates<extra></extra>",
    )


def _predict(figure: go.Figure, group: ServedRun, theme: str) -> None:
    """The line of the prediction over the rows of a run, and the run's name."""
    (low, high), at = reach(group), group.predicted
    line = {"color": palette.colors(theme)["ink"], "width": 1.8, "dash": "dash"}
    figure.add_shape(type="line", x0=at, x1=at, y0=low, y1=high, line=line)
    figure.add_annotation(text=f"n - 1 = {at}", x=at, y=low, xanchor="left", yanchor="middle",
                          xshift=5, showarrow=False, font={"size": 11})  # fmt: skip
    if group.name:
        figure.add_annotation(text=f"<b>{text.cut(group.name, 40)}</b>", x=0, y=low - 0.35,
                              xanchor="left", yanchor="middle", showarrow=False)  # fmt: skip
