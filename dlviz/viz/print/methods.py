"""Methods compared, for paper: what `viz.spectrum`, `viz.losses` and `viz.disagreement` draw, as
matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from dlviz.analysis.descent import OVER
from dlviz.viz import palette, paper
from dlviz.viz.charts import disagreement as apart
from dlviz.viz.charts import losses as falling
from dlviz.viz.charts import spectrum as spread_out
from dlviz.viz.print.costs import DASHES
from dlviz.viz.words import text

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from dlviz.viz.charts.losses import Curves

HEIGHT, TALL = 2.9, 3.6  # inches of the axes; of the spectrum's
SIDES = (0.66, 0.3)  # inches left and right of them
BETWEEN = 0.2  # inches between two panels
CHARACTER, LINE, GAP = 0.066, 0.14, 0.08  # inches: a label's character, its height, gap to a point
MARKS = {
    "circle": "o", "square": "s", "diamond": "D", "x": "X", "triangle-up": "^", "star": "*",
    "triangle-down": "v", "pentagon": "p", "cross": "P", "hexagon": "h",
}  # fmt: skip


def spectrum(
    table: pandas.DataFrame,
    *,
    target: float,
    over: int = OVER,
    theme: str = "light",
    title: str = "How fast, and how far with each example",
    width: float = 7.2,
) -> Figure:
    """The speed of each method over its examples to target, `width` inches wide. Arguments and
    errors are those of `viz.spectrum`."""
    names, colors = spread_out.named(table), palette.colors(theme)
    size = np.array([width - sum(SIDES), TALL])
    plan = spread_out.laid_out(table, (float(size[0]), TALL), (CHARACTER, LINE, GAP))
    lines = [spread_out.summary(table, target, over)]
    figure, axes = paper.chart(title, lines, [], TALL + 0.16, SIDES, width, theme)
    left, low, wide, high = axes.get_position().bounds
    axes.set_position((left, low, wide, high - 0.16 / figure.get_figheight()))
    axes.grid(visible=False)
    axes.set_xlim(*plan.x)
    axes.set_ylim(*plan.y)
    for seconds, ends in plan.times:
        axes.add_line(Line2D(*ends.T, color=colors["grid"], linewidth=1.2))
        x, y = ends[1].tolist()
        across, down = ("center", "bottom") if y == plan.y[1] else ("right", "top")
        paper.label(axes, x, y, text.seconds(seconds), colors["faint"], ha=across, va=down)
    if plan.border < plan.x[1]:
        axes.axvline(plan.border, color=colors["faint"], linewidth=0.9, linestyle=":")
    scale = size / (plan.x[1] - plan.x[0], plan.y[1] - plan.y[0])
    looks = palette.methods(names)
    for name, across, point in zip(names, plan.ranges, plan.points, strict=True):
        level = np.full(2, point[1])
        axes.add_line(Line2D(across, level, color=looks[name].color, linewidth=0.9, zorder=2))
    for name, point, beside in zip(names, plan.points, plan.labels, strict=True):
        middle = point + beside / scale
        far = (np.abs(beside) - (CHARACTER * len(name) / 2, LINE / 2) > 1.5 * GAP).any()
        if far:
            axes.add_line(Line2D(*np.stack([point, middle]).T, color=colors["faint"], zorder=2,
                                 linewidth=0.6))  # fmt: skip
        axes.add_line(Line2D(*point[:, None], linestyle="", zorder=3, **_mark(looks[name], theme)))
        halo: dict[str, Any] = {"facecolor": colors["paper"], "edgecolor": "none", "pad": 0.6}
        x, y = middle.tolist()
        paper.label(axes, x, y, paper.written(name, 40), colors["ink"], bbox=halo)
    for (places, words), mark in (
        (spread_out.x_ticks(plan), axes.set_xticks),
        (spread_out.decades(*plan.y), axes.set_yticks),
    ):
        mark(np.log10(places), words, **paper.WORDS)
    paper.titles(axes, spread_out.ACROSS, spread_out.UPWARD, theme)
    return figure


def losses(
    curves: Curves,
    *,
    over: int = OVER,
    clock: str = "wall",
    theme: str = "light",
    title: str = "The loss, batch by batch and over time",
    width: float = 7.2,
) -> Figure:
    """The losses of several runs over batches and over time, `width` inches wide. Arguments and
    errors are those of `viz.losses`."""
    lines = falling.lines_of(curves, over, clock)
    entries = [(line.name, Line2D([], [], **_dashed(line.look))) for line in lines]
    words = [" ".join(falling.summary(lines, curves, over, clock))]
    figure, foot = paper.sheet(title, words, entries, HEIGHT + paper.AXIS, width, theme)
    wide = (width - sum(SIDES) - BETWEEN) / 2
    low, high = falling.loss_range(lines)
    places, marks = spread_out.decades(low, high)
    for panel, (at, label) in enumerate(
        (("batches", "batches"), ("seconds", f"{text.TIMES[clock]} (s)"))
    ):
        left = SIDES[0] + panel * (wide + BETWEEN)
        axes = paper.axes(figure, (left, foot + paper.AXIS, wide, HEIGHT), theme)
        axes.grid()
        for line in lines:
            axes.add_line(Line2D(getattr(line, at), line.loss, **_dashed(line.look)))
        last = max((float(getattr(line, at)[-1]) for line in lines if len(line.loss)), default=1.0)
        axes.set_xlim(0, 1.02 * last)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_ylim(10**low, 10**high)
        axes.set_yticks(places, [""] * len(marks) if panel else marks, **paper.WORDS)
        paper.ticks(axes)
        paper.titles(axes, label, "" if panel else "loss", theme)
    return figure


def disagreement(
    traces: text.Traces,
    *,
    clock: str = "wall",
    theme: str = "light",
    title: str = "How far apart the models of the ranks are",
    width: float = 7.2,
) -> Figure:
    """How far apart the replicas of several runs are, over time, `width` inches wide. Arguments and
    errors are those of `viz.disagreement`."""
    plan = apart.laid_out(traces, clock)
    drawn = [
        (name, Line2D(*plan.lines[name].T, **_dashed(look)))
        for name, look in palette.methods(plan.lines).items()
    ]
    lines = [apart.summary(traces, clock)]
    figure, axes = paper.chart(title, lines, drawn, HEIGHT, SIDES, width, theme)
    for _, line in drawn:
        axes.add_line(line)
    last = max((float(at[:, 0].max()) for at in plan.lines.values()), default=1.0)
    axes.set_xlim(0, 1.02 * last)
    axes.set_ylim(plan.low - 0.03 * (plan.high - plan.low), plan.high)
    axes.set_yticks(*apart.marks(plan), **paper.WORDS)
    paper.ticks(axes)
    paper.titles(axes, f"{text.TIMES[clock]} (s)", "distance from the mean / its length", theme)
    return figure


def _dashed(look: palette.MethodLook) -> dict[str, Any]:
    return {"color": look.color, "linestyle": DASHES[look.dash], "linewidth": 1.3}


def _mark(look: palette.MethodLook, theme: str) -> dict[str, Any]:
    ink = palette.colors(theme)["ink"]
    return {
        "marker": MARKS[look.symbol],
        "markersize": 8,
        "markerfacecolor": palette.colors(theme)["paper"] if look.turn else look.color,
        "markeredgecolor": look.color if look.turn else ink,
        "markeredgewidth": 1.4 if look.turn else 0.7,
    }
