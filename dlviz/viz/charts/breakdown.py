"""Where each rank's time went: one stacked bar per rank, from `dlviz.metrics.breakdown`.

    rank 0  |compute        |update|exposed communication |idle   |
    rank 1  |compute                     |update|exposed  |idle   |

Communication that hides behind compute is not in the bar: only what is exposed costs time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.clocks import clock_of
from dlviz.viz import palette
from dlviz.viz.charts.figure import ROWS, Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    from dlviz.trace import Trace

ROW, LEAST, HIGHEST = 44, 14, 440  # pixels: a rank at most and at least, all ranks
PARTS = {  # row of metrics.breakdown -> its label, and the kind whose colour it has
    "compute": ("compute", "forward"),
    "update": ("update", "update"),
    "communication": ("exposed communication", "collective"),
    "other": ("data, compression, locks", "data"),
    "idle": ("idle", "idle"),
}


@dataclass(frozen=True)
class Part:
    """What each rank spent on one thing: its name and look, seconds, and share of the whole."""

    label: str
    style: palette.Style
    seconds: np.ndarray
    share: np.ndarray

    @property
    def words(self) -> list[str]:
        """The label in each bar."""
        return [f"{share:.0%}" if share >= 0.01 else "" for share in self.share.tolist()]


def parts_of(trace: Trace, clock: str) -> list[Part]:
    """The Parts of each rank's makespan, in stacking order."""
    ranks = trace.ranks
    parts = {name: seconds[ranks] for name, seconds in metrics.breakdown(trace, clock).items()}
    whole = np.sum(list(parts.values()), axis=0)
    found = []
    for name, seconds in parts.items():
        label, kind = PARTS[name]
        if name == "other" and not seconds.any():
            continue
        share = np.divide(seconds, whole, out=np.zeros(len(whole)), where=whole > 0)
        found.append(Part(label, palette.style(kind), seconds, share))
    return found


def longest(parts: list[Part]) -> float:
    """The longest bar, in seconds."""
    return float(np.sum([part.seconds for part in parts], axis=0).max(initial=0.0))


def breakdown(
    trace: Trace, *, clock: str | None = None, theme: str = "auto", title: str | None = None
) -> Figure:
    """Draw the seconds of each rank's makespan by what it did, and each part's share of it.

    `clock` chooses the device's or the wall's columns (by default those the Trace has). Raises
    ValueError where the Trace has no such clock.
    """
    clock, ranks = clock_of(trace, clock), trace.ranks
    parts = parts_of(trace, clock)
    unit, size = text.unit(longest(parts))
    series = []
    for part in parts:
        label, style = part.label, part.style
        series.append(
            go.Bar(
                name=label,
                orientation="h",
                y=[f"rank {rank}" for rank in ranks],
                x=part.seconds / size,
                marker=style.marker(),
                text=part.words,
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": style.ink if style.solid else palette.colors(theme)["ink"]},
                **hover(
                    [
                        f"<b>rank {rank}: {label}</b><br>{text.seconds(spent)}, {share:.1%}"
                        for rank, spent, share in zip(
                            ranks, part.seconds.tolist(), part.share.tolist(), strict=True
                        )
                    ]
                ),
            )
        )
    heading = text.heading(title or "Where the time went", text.subtitle(trace, clock))
    figure = Figure(series)
    lay_out(
        figure,
        heading,
        text.details(trace, clock),
        theme,
        inner=max(min(max(len(ranks), 2) * ROW, HIGHEST), len(ranks) * LEAST),
        below=96,
        barmode="stack",
        bargap=0.25,
        uniformtext={"minsize": 9, "mode": "hide"},
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        xaxis={"title": f"{text.TIMES[clock]} ({unit})", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", **ROWS},
    )
    return figure
