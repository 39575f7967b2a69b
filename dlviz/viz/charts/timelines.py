"""The timelines of several pipelines below each other on one time axis, a thin row for each rank.

    GPipe: 33 s    0  |F0|F1|F2|//////|B0 |B1 |B2 |
                   1     |F0|F1|F2|B0 |B1 |B2 |////
    1F1B: 33 s     0  |F0|F1|//|B0 |F2|B1 |//|B2  |        a bar shows the number of its microbatch
                   1     |F0|B0 |F1|B1 |F2|B2 |////

Each begins with its first action. The rest of a rank's row, up to the last action of its pipeline,
is idle. `timeline` shows one run in full; this shows what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.clocks import clock_of, shared, span_times
from dlviz.analysis.prediction_error import actions_of, step_of
from dlviz.analysis.stages import chunks_of
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, lay_out, microbatch_labels
from dlviz.viz.gantt.pipeline import lighter_chunk, shades
from dlviz.viz.words import text
from dlviz.viz.words.hosts import mark_lines
from dlviz.viz.words.prediction_error import action, named

if TYPE_CHECKING:
    from dlviz.trace import Table

BAR, HEAD = 0.86, 1.5  # height of a bar (rows are 1 apart), and of a pipeline's name
ROW, LEAST, HIGHEST = 24, 6, 470  # pixels: a row at most and at least, all rows


@dataclass(frozen=True)
class Line:
    """The actions of one pipeline: its spans, their start and end since the first action began (s),
    the number of each one's stage among those of its rank, and the row of each rank."""

    name: str
    spans: Table
    start: np.ndarray
    end: np.ndarray
    chunk: np.ndarray
    rows: dict[int, float]
    ratio: float

    @property
    def makespan(self) -> float:
        return float(self.end.max())

    @property
    def title(self) -> str:
        return f"{self.name}: {text.seconds(self.makespan)}, bubble ratio {self.ratio:.3g}"

    @property
    def y(self) -> np.ndarray:
        return np.array([self.rows[rank] for rank in self.spans.rank.tolist()])


@dataclass(frozen=True)
class TimelinesPlan:
    """The lines from the top, the most chunks of a rank, the lowest row, the longest makespan (s),
    the subtitle, and the details behind the (i)."""

    lines: list[Line]
    chunks: int
    lowest: float
    high: float
    subtitle: list[str]
    details: list[str]


def timelines(
    traces: text.Traces,
    *,
    step: int | None = None,
    clock: str | None = None,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw the actions of each of `traces` (pipelines, in a list or by name), rank by rank, on one
    time axis.

    `step` is the step of a run that has several, by default the one of median length. `clock`
    chooses the device's or the wall's columns (by default those that the Traces have). Raises
    ValueError where there is no Trace, where one has no forward or backward or no such step or
    clock, where they have different clocks, and for an unknown theme.
    """
    plan = laid_out(traces, step, clock)
    unit, size = text.unit(plan.high)
    figure = Figure([*_idle(plan, size), *_bars(plan, unit, size)])
    for line in plan.lines:
        figure.add_annotation(
            text=f"<b>{text.clean(line.title)}</b>", x=0, xref="paper", xanchor="left",
            y=min(line.rows.values()) - 0.55, yanchor="bottom", showarrow=False, font={"size": 12},
        )  # fmt: skip
    row = min(max(HIGHEST / (plan.lowest + 1), LEAST), ROW)
    ranks = [(y, rank) for line in plan.lines for rank, y in line.rows.items()]
    lay_out(
        figure,
        text.heading(title or "Timelines", "<br>".join(map(text.clean, plan.subtitle))),
        plan.details,
        theme,
        inner=(plan.lowest + 1) * row,
        below=90,
        barmode="overlay",
        bargap=0,
        uniformtext={"minsize": 8, "mode": "hide"},
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        xaxis={
            "title": f"time since the first action began ({unit})",
            "range": [-0.005 * plan.high / size, 1.005 * plan.high / size],
        },
        yaxis={
            "title": "rank",
            "tickvals": [y for y, _ in ranks],
            "ticktext": [str(rank) for _, rank in ranks],
            "tickfont": {"size": min(10, row - 1), "color": palette.colors(theme)["faint"]},
            "range": [plan.lowest + 0.5, -0.5],
            "showgrid": False,
            "ticks": "",
            "fixedrange": True,
        },
    )
    return figure


def laid_out(traces: text.Traces, step: int | None, clock: str | None) -> TimelinesPlan:
    """Where the actions of all pipelines lie. Raises ValueError as `timelines` does."""
    traces = text.by_name(traces)
    read = shared(traces, lambda trace: clock_of(trace, clock), "clock")
    lines, known, y, most = [], [], 0.0, 1
    for name, trace in traces.items():
        chosen = step_of(trace, step, read, repr(name))
        actions = actions_of(trace, chosen, repr(name))
        start, end = span_times(actions, read)
        first = start.min()
        marks = np.concatenate([start, end])
        known += mark_lines(trace, np.tile(actions.spans.rank, 2), marks, name)
        chunk, chunks = chunks_of(actions)
        most = max(most, chunks)
        y += HEAD
        ranks = sorted({*actions.spans.rank.tolist()})
        rows = {rank: y + place for place, rank in enumerate(ranks)}
        y += len(ranks)
        ratio = metrics.bubble_ratio(actions, read)
        words = f"{name}{named(chosen, step)}"
        lines.append(Line(words, actions.spans, start - first, end - first, chunk, rows, ratio))
    merged = text.merged((trace, read) for trace in traces.values())
    return TimelinesPlan(
        lines,
        most,
        y - 1,
        max(line.makespan for line in lines),
        [*(line for trace, clock in merged for line in text.provenance(trace, clock)), *known],
        [line for trace, clock in merged for line in text.details(trace, clock)],
    )


def _idle(plan: TimelinesPlan, size: float) -> list[go.Bar]:
    """The whole time of each pipeline on each rank, hatched, behind the actions."""
    y = [y for line in plan.lines for y in line.rows.values()]
    spans = [line.makespan / size for line in plan.lines for _ in line.rows]
    bar = {"name": "idle", "orientation": "h", "base": 0, "x": spans, "y": y, "width": BAR}
    return [go.Bar(**bar, marker=palette.style("idle").marker(), hoverinfo="skip")]


def _bars(plan: TimelinesPlan, unit: str, size: float) -> list[go.Bar]:
    """The actions: a series per pipeline, kind and chunk. The legend has each kind once, and says
    what a lighter shade is."""
    series, listed = [], set()
    for line in plan.lines:
        texts = _hover_texts(line, unit, size)
        labels = microbatch_labels(line.spans, line.end - line.start, plan.high)
        for kind in palette.KINDS:
            rows = np.flatnonzero(line.spans.kind == kind)
            style = palette.style(kind)
            for _, shade, here, _ in shades(style, kind, rows, line.chunk, plan.chunks):
                bar = bar_series(
                    shade,
                    text.kind(kind),
                    kind,
                    (line.start[here] / size, (line.end - line.start)[here] / size),
                    (line.y[here], np.full(len(here), BAR)),
                    [labels[row] for row in here.tolist()],
                    [texts[row] for row in here.tolist()],
                )
                bar.showlegend = kind not in listed
                series.append(bar)
                listed.add(kind)
    if plan.chunks > 1:
        name, lighter = lighter_chunk(plan.chunks)
        key = {"x": [None], "y": [None], "orientation": "h", "hoverinfo": "skip"}
        series.append(go.Bar(name=name, marker=lighter.marker(), **key))
    return series


def _hover_texts(line: Line, unit: str, size: float) -> list[str]:
    """Each action in words, for hover."""
    times = zip(line.start.tolist(), (line.end - line.start).tolist(), strict=True)
    return [
        f"<b>{text.clean(line.name)}: {action(line.spans, row)}</b><br>"
        f"{text.seconds(length)} from {text.moment(start, unit, size)}"
        for row, (start, length) in enumerate(times)
    ]
