"""The bubble chart and the memory of each rank for paper: what `viz.bubble` and `viz.memory`
draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from dlviz.viz import palette, paper
from dlviz.viz.charts.bubble import MARKS, MEASURES, SIZES, grouped, in_measure, origins, size_of
from dlviz.viz.charts.memory import STRIP, axis, height, laid_out, short, steps
from dlviz.viz.print.costs import DASHES
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

HEIGHT = 2.9  # inches of the bubble chart's axes
ROW, ROWS, LOWEST = 0.36, 4.4, 2.2  # inches: a rank's strip, all at most and at least
POINTS = 0.6  # of a mark's size in pixels


def bubble(
    traces: Trace | Iterable[Trace] | Mapping[str, Trace | Iterable[Trace]],
    *,
    against: str = "microbatches",
    measure: str = "ratio",
    clock: str | None = None,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The bubble of each of `traces` against a size, `width` inches wide: marks, and the closed
    form as a line. Arguments and errors are those of `viz.bubble`."""
    groups, lines, _ = grouped(traces, against, measure, clock)
    ink = palette.colors(theme)["ink"]
    drawn, entries = [], []
    for place, group in enumerate(groups):
        color, dash = palette.line(place)
        look: dict[str, Any] = {"color": color, "linestyle": DASHES[dash], "linewidth": 1.3}
        line = Line2D(group.x, in_measure(group.ratio, measure), zorder=2, **look)
        formula = bool(np.isfinite(group.ratio).any())
        drawn += [line] * formula
        handle = line if formula else None
        for origin in origins([group]):
            points = [point for point in group.points if point.origin == origin]
            pixels = 9 if MARKS[origin][2] else size_of(place)
            marks = Line2D(
                [getattr(point, against) for point in points],
                [getattr(point, measure) for point in points],
                markersize=POINTS * pixels,
                zorder=3,
                **_mark(origin, color, ink),
            )
            drawn.append(marks)
            handle = handle or marks
        entries.append((group.label, handle))
    for origin in origins(groups):
        entries.append((origin, Line2D([], [], markersize=5, **_mark(origin, ink, ink))))

    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in drawn])
    top = 1.08 * max(float(np.nanmax(values)), 1e-3)
    places, names = paper.levels(0, top)
    sides = paper.beside(names) + 0.2, 0.3
    figure, axes = paper.chart(title or "The bubble", lines, entries, HEIGHT, sides, width, theme)
    low, high = min(group.x[0] for group in groups), max(group.x[-1] for group in groups)
    room = 0.03 * (high - low)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(-0.02 * top, top)
    paper.ticks(axes, whole=True)
    axes.set_yticks(places, names, **paper.WORDS)
    for line in drawn:
        axes.add_line(line)
    axes.set_xlabel(f"{against} ({SIZES[against]})", loc="right", **paper.WORDS)
    _beside(figure, axes, MEASURES[measure], ink)
    return figure


def memory(
    traces: text.Traces,
    *,
    what: str | None = "activations",
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """How much of `what` each rank held over time and the most it ever held, `width` inches wide.
    Arguments and errors are those of `viz.memory`."""
    plan = laid_out(traces, what)
    colors, style = palette.colors(theme), palette.style("forward")
    unit, size = text.unit(plan.high - plan.low)
    body = max(min(plan.rows * ROW, ROWS), LOWEST)
    heading = title or "Memory held by each rank"
    names = [f"rank {one.held.rank}" for one in plan.strips]
    peaks = [f"peak {short(plan.counts, one.held.peak)}" for one in plan.strips]
    left, right = sides = paper.beside(names) + 0.2, paper.beside(peaks)
    figure, axes = paper.chart(heading, plan.lines, [], body, sides, width, theme)
    axes.set_xlim(plan.low / size, plan.high / size)
    axes.set_ylim(plan.rows - 0.45, -0.55)
    paper.ticks(axes)
    axes.set_yticks([one.y for one in plan.strips], names, **paper.WORDS)
    axes.grid(visible=False, axis="y")
    across = {"ha": "left", "transform": axes.get_yaxis_transform()}
    for one, peak in zip(plan.strips, peaks, strict=True):
        time, level = steps(one.held, plan.high)
        line, floor = height(level, one.y, plan.most), one.y + STRIP / 2
        axes.fill_between(time / size, line, floor, color=style.color, alpha=0.6, linewidth=0)
        axes.plot(time / size, line, color=style.color, linewidth=0.8)
        axes.axhline(floor, color=colors["grid"], linewidth=0.6, zorder=0)
        if one.held.peak:
            top = float(height(np.array([one.held.peak]), one.y, plan.most)[0])
            axes.axhline(top, color=colors["faint"], linewidth=0.6, linestyle=":")
        paper.label(axes, 1.01, one.y, peak, colors["ink"], **across)
    for name, y in plan.heads:
        head = paper.cut(name, width - left - right, paper.BODY)
        paper.label(axes, 0, y, head, colors["ink"], paper.BODY, weight="bold", **across)
    if not plan.most:
        paper.label(axes, 0.5, 0.5, "no memory was recorded", colors["faint"],
                    transform=axes.transAxes)  # fmt: skip
    times = f"{text.TIMES[plan.clock]} since the run's start ({unit})"
    axes.set_xlabel(times, loc="right", **paper.WORDS)
    _beside(figure, axes, axis(plan.counts, what), colors["ink"])
    return figure


def _mark(origin: str, color: str, ink: str) -> dict[str, Any]:
    """How a mark of `origin` looks."""
    _, marker, filled = MARKS[origin]
    edge = {"markeredgecolor": ink if filled else color, "markeredgewidth": 0.7 if filled else 1.2}
    return {"linestyle": "", "marker": marker, "markerfacecolor": color if filled else "none",
            "color": color, **edge}  # fmt: skip


def _beside(figure: Figure, axes: Axes, words: str, ink: str) -> None:
    """The title of the axis on the left, upright along it."""
    box, (wide, high) = axes.get_position(), figure.get_size_inches()
    title = paper.cut(words, high * box.height, paper.BODY)
    x = (paper.MARGIN + 0.05 - wide * box.x0) / (wide * box.width)
    place = {"rotation": 90, "transform": axes.transAxes, "va": "center", "ha": "center"}
    paper.label(axes, x, 0.5, title, ink, paper.BODY, **place)
