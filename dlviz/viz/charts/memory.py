"""What each rank held over time: a strip for each rank, all to one scale, its peak marked.

    rank 0   __|~~~|__..4.|~~|___     the strip's height is the most that any rank held
    rank 1   ___|~|_____

Several Traces are drawn below each other to one scale, so that their heights compare.
A simulated pipeline counts microbatches (of a stage) whose activations are held, a real run bytes:
the axis says which. The strips show `trace.memory`; times are the device's, or the wall's where
nothing was paced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.clocks import clock_of, shared
from dlviz.analysis.memory import Held, counts_microbatches, held, highest, window
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, headings, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.hosts import mark_lines
from dlviz.viz.words.labels import hover

STRIP, HEAD = 0.8, 0.8  # height of a full strip (rows are 1 apart), and of a Trace's name
ROW, LEAST, HIGHEST = 46, 18, 430  # pixels: a row at most and at least, all rows
CHANGES = 4000  # of one rank: with more, the highest in each interval is drawn


@dataclass(frozen=True)
class Strip:
    """What one rank held, the `name` of its Trace (if any), and its row."""

    held: Held
    name: str
    y: float


def memory(
    traces: text.Traces,
    *,
    what: str | None = "activations",
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw how much of `what` each rank held over time, in steps, and the most it ever held.

    `traces` is a Trace, or several by name, drawn below each other to one scale. `what` is a name
    in `trace.memory`, or None for all of them together. Raises ValueError for a name that a Trace
    lacks, for Traces that mix microbatches with bytes or device time with wall time, and for an
    unknown theme.
    """
    plan = laid_out(traces, what)
    colors = palette.colors(theme)
    unit, size = text.unit(plan.high - plan.low)
    figure = Figure()
    for one in plan.strips:
        figure.add_traces(_strip(one, plan, what, theme, unit, size))
        _peak(figure, one, plan, theme, size)
    headings(figure, ((y, name) for name, y in plan.heads))
    if not plan.most:
        annotation = {"showarrow": False, "font": {"color": colors["faint"], "size": 12}}
        figure.add_annotation(text="no memory was recorded", **annotation)
    heading = text.heading(
        title or "Memory held by each rank", "<br>".join(map(text.clean, plan.lines))
    )
    room = (plan.high - plan.low) * 0.01
    lay_out(
        figure,
        heading,
        plan.details,
        theme,
        inner=max(plan.rows * min(max(HIGHEST / plan.rows, LEAST), ROW), 120),
        below=56,
        margin={"r": 96},
        xaxis={
            "title": f"{text.TIMES[plan.clock]} since the run's start ({unit})",
            "range": [(plan.low - room) / size, (plan.high + room) / size],
        },
        yaxis={
            "title": {"text": axis(plan.counts, what), "standoff": 12},
            "tickvals": [one.y for one in plan.strips],
            "ticktext": [f"rank {one.held.rank}" for one in plan.strips],
            "range": [plan.rows - 0.45, -0.55],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
        },
    )
    return figure


def _strip(
    one: Strip, plan: MemoryPlan, what: str | None, theme: str, unit: str, size: float
) -> list[go.Scatter]:
    """The floor of a rank's strip, and what it held above it, in steps."""
    time, level = steps(one.held, plan.high)
    rank, style = f"rank {one.held.rank}", palette.style("forward")
    name = f"{text.clean(one.name)}, {rank}" if one.name else rank
    texts = [
        f"<b>{name}</b><br>{amount(plan.counts, int(n))} from {text.moment(at, unit, size)}"
        for at, n in zip(time.tolist(), level.tolist(), strict=True)
    ]
    floor = go.Scatter(
        x=[plan.low / size, plan.high / size],
        y=np.full(2, one.y + STRIP / 2),
        mode="lines",
        line={"color": palette.colors(theme)["grid"], "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    line = go.Scatter(
        x=time / size,
        y=height(level, one.y, plan.most),
        mode="lines",
        name=text.cut(what or "memory"),
        showlegend=False,
        line={"color": style.color, "width": 1.6},
        fill="tonexty",
        fillcolor=style.color + "99",
        **hover(texts),
    )
    return [floor, line]


def _peak(figure: Figure, one: Strip, plan: MemoryPlan, theme: str, size: float) -> None:
    """A dotted line at a rank's peak, and how much that is."""
    if one.held.peak:
        top = float(height(np.array([one.held.peak]), one.y, plan.most)[0])
        dash = {"color": palette.colors(theme)["faint"], "width": 1, "dash": "dot"}
        across = {"x0": plan.low / size, "x1": plan.high / size, "y0": top, "y1": top}
        figure.add_shape(type="line", line=dash, layer="below", **across)
    figure.add_annotation(
        x=1, xref="paper", xanchor="left", y=one.y, showarrow=False, xshift=6,
        text=text.clean(f"peak {short(plan.counts, one.held.peak)}"), font={"size": 11},
    )  # fmt: skip


@dataclass(frozen=True)
class MemoryPlan:
    """What a picture of memory shows and where: strips from the top, names over those of a named
    Trace, `rows` in all, times in seconds, and the subtitle."""

    strips: list[Strip]
    heads: list[tuple[str, float]]
    rows: float
    most: int
    counts: bool
    clock: str
    low: float
    high: float
    lines: list[str]
    details: list[str]


def laid_out(traces: text.Traces, what: str | None) -> MemoryPlan:
    """Where the strips of all ranks lie. Raises ValueError as `memory` does."""
    named = text.by_name(traces)
    clock, counted = shared(named, clock_of, "clock"), shared(named, counts_microbatches, "unit")
    strips, heads, known, y = [], [], [], 0.0
    for name, trace in named.items():
        if name:
            heads.append((name, y))
            y += HEAD
        own = held(trace, what)
        for one in own:
            strips.append(Strip(one, name, y))
            y += 1
        if own:
            times = np.concatenate([one.time for one in own])
            ranks = np.repeat([one.rank for one in own], [len(one.time) for one in own])
            known += mark_lines(trace, ranks, times, name)
    spans = [window(trace) for trace in named.values()]
    most = max((one.held.peak for one in strips), default=0)
    chunks = counted and any(trace.meta.get("chunks", 1) != 1 for trace in named.values())
    read = text.merged((trace, clock) for trace in named.values())
    lines = [line for trace, clock in read for line in text.provenance(trace, clock)]
    details = [line for trace, clock in read for line in text.details(trace, clock)]
    return MemoryPlan(
        strips,
        heads,
        max(y, 1.0),
        most,
        counted,
        clock,
        min(low for low, _ in spans),
        max(high for _, high in spans),
        [*lines, *known, scale(counted, most, chunks)],
        details,
    )


def steps(one: Held, until: float) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a rank's steps, from 0 at its first change until `until`."""
    time, level = highest(one, CHANGES)
    before = np.append(0, level)[: len(level)]
    corners = np.stack([before, level], axis=1).ravel()
    return np.append(np.repeat(time, 2), until), np.append(corners, np.append(0, level)[-1])


def height(level: np.ndarray, y: float, most: int) -> np.ndarray:
    """The height of a level in the strip of row `y`; rows count downwards."""
    return y + STRIP / 2 - STRIP * level / max(most, 1)


def amount(counts: bool, number: int) -> str:
    """A level in words: 3 microbatches, 1.5 MB."""
    if not counts:
        return text.nbytes(number)
    return "1 microbatch" if number == 1 else f"{number} microbatches"


def short(counts: bool, number: int) -> str:
    """A level in few characters."""
    return str(number) if counts else text.nbytes(number)


def axis(counts: bool, what: str | None) -> str:
    """The axis title: what is held, and its unit."""
    name = "activations in flight" if what == "activations" else what or "all that is held"
    return f"{text.cut(name, 30)} ({'microbatches' if counts else 'bytes'})"


def scale(counts: bool, most: int, chunks: bool) -> str:
    """What a strip's height means."""
    each = ", in each of a rank's stages by itself" if chunks else ""
    return f"A full strip is {amount(counts, most)}{each}; the dotted line is a rank's peak."
