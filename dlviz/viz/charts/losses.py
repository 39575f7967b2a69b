"""A falling loss over batches, and beside it over time: the same runs, a line each.

    loss |\\                |\\
         | \\ synchronous   |  \\ synchronous
         |  \\__            | \\ \\___
         |   \\___ asynchr. |  \\____ asynchronous
         +------- batches  +------- s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.descent import OVER, running_mean
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.charts.spectrum import decades
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

Curves = Mapping[str, tuple["Trace", Sequence[float]]]
INNER = 330.0  # pixels of the axes
LEFT, RIGHT = (0.0, 0.475), (0.525, 1.0)  # the two panels' shares of the width
ROW = 20  # pixels of a row of the legend
LEGEND_WIDE, KEY, CHARACTER = 790, 74, 6.8  # pixels: of the legend, of a key in it, of a character


class FallingLoss(NamedTuple):
    """A method's mean loss over batches, and over seconds since the start."""

    name: str
    look: palette.MethodLook
    batches: np.ndarray
    seconds: np.ndarray
    loss: np.ndarray


def losses(
    curves: Curves,
    *,
    over: int = OVER,
    clock: str = "wall",
    theme: str = "auto",
    title: str = "The loss, batch by batch and over time",
) -> Figure:
    """Draw the losses of each run by name, (Trace, losses), as means of the last `over` batches.

    Raises ValueError as `metrics.descent` does, for losses without their Trace, and for an `over`
    that is not 1, 2, 3, ...
    """
    lines = lines_of(curves, over, clock)
    figure = Figure()
    for panel, at in (("", "batches"), ("2", "seconds")):
        for line in lines:
            figure.add_trace(_series(line, getattr(line, at), panel))
    words = text.wrap(" ".join(summary(lines, curves, over, clock)), text.LINE)
    heading = text.heading(title, words)
    below = 64 + ROW * legend_rows([line.name for line in lines])
    low, high = loss_range(lines)
    places, names = decades(low, high)
    shared = {"type": "log", "range": [low, high], "tickvals": places, "ticktext": names}
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER,
        below=below,
        legend={**palette.LEGEND_BELOW, **palette.LEGEND_LINES, "itemwidth": 44},
        xaxis={"domain": LEFT, "title": "batches", "rangemode": "tozero"},
        xaxis2={"domain": RIGHT, "title": f"{text.TIMES[clock]} (s)", "rangemode": "tozero",
                "anchor": "y2"},
        yaxis={"title": "loss", **shared},
        yaxis2={**shared, "matches": "y", "anchor": "x2", "showticklabels": False},
    )  # fmt: skip
    return figure


def lines_of(curves: Curves, over: int, clock: str) -> list[FallingLoss]:
    """Each run's line, from the first batch with `over` - 1 before it; NaN where the mean is not a
    finite number above 0."""
    for name, own in curves.items():
        if not (isinstance(own, list | tuple) and len(own) == 2 and hasattr(own[0], "spans")):
            raise ValueError(
                f"{name} has no Trace, whose times its losses are drawn over: give (run.trace, "
                "losses), or draw losses alone by viz.curve."
            )
    looks = palette.methods([text.named(name) for name in curves])
    found = []
    for (name, look), (trace, own) in zip(looks.items(), curves.values(), strict=True):
        table = metrics.descent(trace, own, clock)
        mean = running_mean(table.loss, over)
        mean[~(np.isfinite(mean) & (mean > 0))] = np.nan
        batches = np.arange(1, len(mean) + 1)[over - 1 :]
        found.append(FallingLoss(name, look, batches, table.seconds[over - 1 :], mean[over - 1 :]))
    return found


def loss_range(lines: list[FallingLoss]) -> tuple[float, float]:
    """The least and the largest of all losses, in decades."""
    seen = np.concatenate([np.zeros(0), *(line.loss for line in lines)])
    seen = np.log10(seen[np.isfinite(seen)])
    return (float(seen.min()) - 0.08, float(seen.max()) + 0.08) if len(seen) else (-1.0, 0.0)


def summary(lines: list[FallingLoss], curves: Curves, over: int, clock: str) -> list[str]:
    """What the lines are, how many points they lack, and what their clocks are."""
    words = ["Each loss is that of a batch at the weights its worker had."]
    if over > 1:
        words = [f"Mean loss of the last {over} batches, each at the weights its worker had."]
    for line in lines:
        if missing := int(np.isnan(line.loss).sum()):
            words.append(f"{line.name}: {missing} of {len(line.loss)} are not finite or 0.")
    return [*words, *clocks([trace for trace, _ in curves.values()], clock)]


def clocks(traces: Sequence[Trace], clock: str) -> list[str]:
    """Where the runs' times come from, and how late they were by the wall clock."""
    words = []
    for trace, _ in text.merged([(trace, clock) for trace in traces]):
        origin, late = text.ORIGINS[trace.meta["clock"]], trace.meta["lateness"]
        words.append(f"{origin[0].upper()}{origin[1:]}")
        if trace.meta["clock"] == "paced" and clock == "wall":
            words[-1] += ", read by the wall clock"
        words[-1] += f", up to {text.seconds(late['worst'])} late." if late else "."
    return words


def legend_rows(names: Sequence[str]) -> int:
    """How many rows plotly needs in a notebook's width for entries of one width."""
    entry = KEY + CHARACTER * max((len(text.short(name, 40)) for name in names), default=0)
    return -(-len(names) // max(int(LEGEND_WIDE / entry), 1))


def _series(line: FallingLoss, at: np.ndarray, panel: str) -> go.Scatter:
    what = "%{x:.3~f} s" if panel else "%{x:,} batches"
    mode: dict[str, Any] = {"mode": "lines", "line": {"color": line.look.color, "width": 2.2,
                            "dash": line.look.dash}}  # fmt: skip
    return go.Scatter(
        name=text.cut(line.name, 40),
        legendgroup=text.cut(line.name, 40),
        showlegend=not panel,
        x=at,
        y=line.loss,
        xaxis=f"x{panel}",
        yaxis=f"y{panel}",
        meta=text.wrap(line.name),
        hovertemplate="%{meta}<br>" + what + ": %{y:.4g}<extra></extra>",
        **mode,
    )
