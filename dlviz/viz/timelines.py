"""Several pipelines under each other on one time axis: what each rank computed, in compact rows.

    1F1B   rank 0  |0|1|2|3|  0  |4|  1  |      each Trace begins with its first action,
           rank 1    |0|1|2|0  |3| 1   |        a bar's number is its microbatch
    ZB-H1  rank 0  |0|1|2|3| 0|0|4| 1|1|

Only forwards, backwards and updates are bars; what a rank does not compute is its bubble, hatched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.metrics import COMPUTE, UPDATE
from dlviz.viz import palette, text
from dlviz.viz.clocks import clock_of, shared, span_times
from dlviz.viz.figure import Figure
from dlviz.viz.labels import hover, hovers_of
from dlviz.viz.pipeline import chunks_of, shades
from dlviz.viz.steps import spans_in

if TYPE_CHECKING:
    from dlviz.trace import Trace

ROW, HEAD, BAR = 22, 1.0, 0.9  # pixels of a row; rows of a Trace's name; of a row that a bar takes
TALL = 480  # pixels that all rows take at most


@dataclass(frozen=True)
class Part:
    """One of the Traces: which of its spans are drawn, when the first of them begins (s), how long
    they last (s), the row of its name, and how many ranks follow it."""

    name: str
    trace: Trace
    drawn: np.ndarray
    low: float
    length: float
    top: float


def timelines(
    traces: Mapping[str, Trace],
    *,
    step: int | None = None,
    clock: str | None = None,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw what the ranks of several Traces computed under each other, on one time scale.

    `traces` are Traces by name, each drawn from its first action on. `step` draws one step of each.
    `clock` chooses the device's or the wall's columns (by default those the Traces bear). Raises
    ValueError where there is no Trace, where one has no such clock or step or computes nothing, and
    where they bear different clocks.
    """
    if not traces:
        raise ValueError("traces={} holds no Trace: give one or more by name.")
    bears: str = shared(traces, lambda trace: clock_of(trace, clock), "clock")
    parts, rows = [], 0.0
    for name, trace in traces.items():
        parts.append(_part(name, trace, step, bears, rows))
        rows += HEAD + len(trace.ranks)
    unit, size = text.unit(max(part.length for part in parts))

    figure, listed = Figure(), set()
    for part in parts:
        figure.add_trace(_bubble(part, size, first=part is parts[0]))
    for part in parts:
        for series in _bars(part, bears, unit, size):
            series.showlegend = series.name not in listed
            listed.add(series.name)
            figure.add_trace(series)
        named = f"<b>{text.cut(part.name, 60)}</b>: {text.seconds(part.length)}"
        left = {"x": 0, "xref": "paper", "xanchor": "left", "showarrow": False}
        figure.add_annotation(text=named, y=part.top, font={"size": 12}, **left)
    read = text.merged((trace, bears) for trace in traces.values())
    lines = [line for one in read for line in text.provenance(*one)]
    below = "<br>".join(map(text.clean, lines))
    heading = text.heading(title or "Pipelines on one time scale", below)
    longest = max(part.length for part in parts) / size
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 84},
        height=heading["margin"]["t"] + 84 + min(rows * ROW, TALL),
        bargap=0,
        barmode="overlay",
        uniformtext={"minsize": 8, "mode": "hide"},
        legend=palette.LEGEND_BELOW,
        xaxis={
            "title": f"{text.TIMES[bears]} since the first action ({unit})",
            "range": [-0.01 * longest, 1.01 * longest],
        },
        yaxis={
            "tickvals": [part.top + 1 + i for part in parts for i in range(len(part.trace.ranks))],
            "ticktext": [f"rank {rank}" for part in parts for rank in part.trace.ranks],
            "range": [rows - 0.4, -0.6],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
            "fixedrange": True,
        },
    )
    text.inform(figure, [line for one in read for line in text.details(*one)])
    return figure


def _part(name: str, trace: Trace, step: int | None, clock: str, top: float) -> Part:
    drawn = spans_in(trace, step)
    drawn = drawn[np.isin(trace.spans.kind[drawn].astype(str), [*COMPUTE, *UPDATE])]
    start, end = span_times(trace, clock)
    if not len(drawn):
        raise ValueError(f"{name!r} has no forward, backward or update to draw: leave it out.")
    low = float(start[drawn].min())
    return Part(name, trace, drawn, low, float(end[drawn].max()) - low, top)


def _bubble(part: Part, size: float, first: bool) -> go.Bar:
    """Under each rank's bars the whole step, hatched: what they leave of it is the bubble."""
    ranks = len(part.trace.ranks)
    return go.Bar(
        name="idle",
        legendgroup="idle",
        showlegend=first,
        orientation="h",
        base=np.zeros(ranks),
        x=np.full(ranks, part.length / size),
        y=part.top + 1 + np.arange(ranks),
        width=BAR,
        marker=palette.style("idle").marker(),
        hoverinfo="skip",
    )


def _bars(part: Part, clock: str, unit: str, size: float) -> list[go.Bar]:
    """A series for each kind, and each chunk of it."""
    spans, (start, end) = part.trace.spans, span_times(part.trace, clock)
    place = {rank: part.top + 1 + i for i, rank in enumerate(part.trace.ranks)}
    hovers = hovers_of(part.trace, part.drawn, clock, unit, size)
    chunk, chunks = chunks_of(part.trace)
    kinds = spans.kind[part.drawn]
    found = []
    for kind in (kind for kind in palette.KINDS if (kinds == kind).any()):
        rows = part.drawn[kinds == kind]
        for name, style, here, _ in shades(palette.style(kind), kind, rows, chunk, chunks):
            numbers = spans.microbatch[here].tolist()
            found.append(
                go.Bar(
                    name=text.cut(name),
                    legendgroup=text.cut(kind),
                    orientation="h",
                    base=(start[here] - part.low) / size,
                    x=(end[here] - start[here]) / size,
                    y=[place[rank] for rank in spans.rank[here].tolist()],
                    width=BAR,
                    marker=style.marker(),
                    text=[str(number) if number >= 0 else "" for number in numbers],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont={"color": style.ink, "size": 11},
                    **hover([hovers[span] for span in here.tolist()]),
                )
            )
    return found
