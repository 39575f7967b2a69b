"""Bars for paper: what `viz.breakdown`, `viz.compare` and `viz.timelines` draw, as matplotlib
figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Patch

from dlviz.analysis.clocks import clock_of
from dlviz.analysis.prediction_error import matched, prediction_error
from dlviz.viz import palette, paper
from dlviz.viz.charts.breakdown import longest, parts_of
from dlviz.viz.charts.compare import BAR, PAIR, heights, lines_of, names_of, rows_of
from dlviz.viz.charts.timelines import laid_out
from dlviz.viz.gantt.pipeline import lighter_chunk, shades
from dlviz.viz.words import text
from dlviz.viz.words.labels import complete
from dlviz.viz.words.prediction_error import causes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlviz.trace import Table, Trace

PART, PARTS = 0.32, 4.4  # inches: a rank's bar at most, all of them
ROW, ROWS = 0.2, 4.4  # inches: a row of actions at most, all of them
FITS = 1.15  # times the height of type: the least height of a bar with words


def breakdown(
    trace: Trace,
    *,
    clock: str | None = None,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The seconds of each rank's makespan by what it did, `width` inches wide. Arguments and errors
    are those of `viz.breakdown`."""
    clock = clock_of(trace, clock)
    parts, ranks = parts_of(trace, clock), trace.ranks
    unit, size = text.unit(longest(parts))
    high = min(PART, PARTS / max(len(ranks), 1))
    names = [f"rank {rank}" for rank in ranks]
    entries = [(part.label, Patch(**paper.look(part.style))) for part in parts]
    body = max(len(ranks), 2) * high
    lines = text.provenance(trace, clock, text.WHOLE)
    heading = title or "Where the time went"
    figure, axes = paper.chart(heading, lines, entries, body, _sides(names), width, theme)
    axes.set_xlim(0, 1.02 * max(longest(parts) / size, 1e-9))
    axes.set_ylim(max(len(ranks), 2) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    paper.ticks(axes)
    axes.set_yticks(range(len(names)), names, **paper.WORDS)
    left, y = np.zeros(len(ranks)), np.arange(len(ranks))
    for part in parts:
        right = left + part.seconds / size
        edges = y - 0.4, y + 0.4
        boxes = paper.boxes(part.label, left, right, *edges, paper.look(part.style))
        axes.add_collection(boxes, autolim=False)
        ink = part.style.ink if part.style.solid else palette.colors(theme)["ink"]
        _labels(axes, left, right, y, part.words, high, ink)
        left = right
    axes.set_xlabel(f"{text.TIMES[clock]} ({unit})", loc="right", **paper.WORDS)
    return figure


def compare(
    predicted: Trace,
    measured: Trace,
    *,
    step: int | None = None,
    clock: str | None = None,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The actions of `measured` below those of `predicted`, `width` inches wide. Arguments and
    errors are those of `viz.compare`."""
    sides = matched(predicted, measured, step, clock)
    lines, row = lines_of(sides, (predicted, measured), step), rows_of(sides)
    lines += causes(prediction_error(sides), sides)
    high = max(side.makespan for side in sides)
    unit, size = text.unit(high)
    names = names_of(row)
    inch = min(ROW, ROWS / (PAIR * len(row)))
    body = PAIR * len(row) * inch
    kinds = [kind for kind in palette.KINDS
             if any((side.spans.kind == kind).any() for side in sides)]  # fmt: skip
    entries = [(text.kind(kind), Patch(**paper.look(palette.style(kind)))) for kind in kinds]
    heading = title or "Predicted over measured"
    figure, axes = paper.chart(
        heading, lines, entries, body, _sides([*names.values()]), width, theme
    )
    axes.set_xlim(-0.01 * high / size, 1.01 * high / size)
    axes.set_ylim(max(row.values()) + 1.7, -0.7)
    axes.grid(visible=False, axis="y")
    paper.ticks(axes)
    axes.set_yticks([*names], [*names.values()], **paper.WORDS)
    for place, side in enumerate(sides):
        middle, tall = heights(side, row, place)
        for kind in kinds:
            rows = np.flatnonzero(side.spans.kind == kind)
            style = palette.style(kind) if place else palette.pale(palette.style(kind))
            _actions(axes, side.spans, side.start, side.end, middle, tall, rows, style, size, inch)
        ink, dash = palette.colors(theme)["ink"], ("--", "-")[place]
        axes.axvline(side.makespan / size, linewidth=1.1, color=ink, linestyle=dash)
    axes.set_xlabel(f"time since the first action began ({unit})", loc="right", **paper.WORDS)
    return figure


def timelines(
    traces: text.Traces,
    *,
    step: int | None = None,
    clock: str | None = None,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The actions of several pipelines below each other on one time axis, `width` inches wide.
    Arguments and errors are those of `viz.timelines`."""
    plan = laid_out(traces, step, clock)
    unit, size = text.unit(plan.high)
    inch = min(ROW, ROWS / (plan.lowest + 1))
    body = (plan.lowest + 1) * inch
    ranks = [(y, str(rank)) for line in plan.lines for rank, y in line.rows.items()]
    kinds = [kind for kind in palette.KINDS
             if any((line.spans.kind == kind).any() for line in plan.lines)]  # fmt: skip
    entries = [(text.kind(kind), Patch(**paper.look(palette.style(kind))))
               for kind in ("idle", *kinds)]  # fmt: skip
    if plan.chunks > 1:
        name, lighter = lighter_chunk(plan.chunks)
        entries.append((name, Patch(**paper.look(lighter))))
    names = [name for _, name in ranks]
    heading = title or "Timelines"
    figure, axes = paper.chart(
        heading, plan.subtitle, entries, body, _sides([*names, "rank"]), width, theme
    )
    axes.set_xlim(-0.005 * plan.high / size, 1.005 * plan.high / size)
    axes.set_ylim(plan.lowest + 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    paper.ticks(axes)
    axes.set_yticks([y for y, _ in ranks], names, **paper.WORDS)
    axes.tick_params(axis="y", labelsize=min(paper.BODY, 72 * inch / FITS))
    for line in plan.lines:
        y = np.array([*line.rows.values()])
        ends = np.zeros(len(y)), np.full(len(y), line.makespan / size)
        idle = paper.boxes("idle", *ends, y - BAR / 2, y + BAR / 2,
                           paper.look(palette.style("idle")))  # fmt: skip
        axes.add_collection(idle, autolim=False)
        tall = np.full(len(line.spans), BAR)
        for kind in kinds:
            rows = np.flatnonzero(line.spans.kind == kind)
            base = palette.style(kind)
            for _, style, here, _ in shades(base, kind, rows, line.chunk, plan.chunks):
                _actions(axes, line.spans, line.start, line.end, line.y, tall, here, style, size,
                         inch)  # fmt: skip
        across = {"ha": "left", "weight": "bold", "transform": axes.get_yaxis_transform()}
        ink = palette.colors(theme)["ink"]
        paper.label(axes, 0, min(line.rows.values()) - 1, line.title, ink, paper.BODY, **across)
    axes.set_xlabel(f"time since the first action began ({unit})", loc="right", **paper.WORDS)
    return figure


def _sides(names: list[str]) -> tuple[float, float]:
    """The room left and right of axes whose rows have these names."""
    return paper.beside(names), paper.MARGIN + 0.1


def _actions(
    axes: Axes,
    spans: Table,
    start: np.ndarray,
    end: np.ndarray,
    middle: np.ndarray,
    tall: np.ndarray,
    rows: np.ndarray,
    style: palette.Style,
    size: float,
    inch: float,
) -> None:
    """The actions `rows` as boxes, each with the number of its microbatch where that fits."""
    left, right, y = start[rows] / size, end[rows] / size, middle[rows]
    edges = y - tall[rows] / 2, y + tall[rows] / 2
    boxes = paper.boxes(str(spans.kind[rows[0]]) if len(rows) else "", left, right, *edges,
                        paper.look(style))  # fmt: skip
    axes.add_collection(boxes, autolim=False)
    words = [str(number) if number >= 0 else "" for number in spans.microbatch[rows].tolist()]
    _labels(axes, left, right, y, words, float(tall.min(initial=1.0)) * inch, style.ink)


def _labels(
    axes: Axes,
    left: np.ndarray,
    right: np.ndarray,
    y: np.ndarray,
    words: list[str],
    high: float,
    ink: str,
) -> None:
    """Words in the boxes, `high` inches high, that are large enough for them."""
    size = min(paper.LABEL, 72 * high / FITS)
    if size < paper.MARK:
        return
    low, far = axes.viewLim.intervalx
    inches = (right - left) * axes.bbox.width / paper.DPI / (far - low)
    fit = (paper.length(word, size) < room for word, room in zip(words, inches, strict=True))
    shown = complete(y.tolist(), words, fit)
    for x, at, label in zip(((left + right) / 2).tolist(), y.tolist(), shown, strict=True):
        if label:
            paper.label(axes, x, at, label, ink, size)
