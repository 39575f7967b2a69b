"""Servers and their workers, for paper: what `viz.staleness`, `viz.stability` and `viz.bars` draw,
as matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dlviz.viz import palette, paper
from dlviz.viz.charts import bars as upright
from dlviz.viz.charts import stability as mapped
from dlviz.viz.charts import staleness as aged
from dlviz.viz.words import text

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ROW, ROWS = 0.36, 4.6  # inches: a worker's row at most, all of them
MAP, SCALE = 3.4, 0.16  # inches: the map's height, the width of its scale
HEIGHT = 2.6  # inches of the bars' axes
DOT = 8.0  # points: the dot of a value that all gradients have


def staleness(
    traces: text.Traces,
    *,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """How stale the gradients of each worker were, `width` inches wide. Arguments and errors are
    those of `viz.staleness`."""
    groups = aged.groups_of(text.by_name(traces))
    rows = [row for group in groups for row in group.rows]
    last, ink = rows[-1].y, palette.colors(theme)["ink"]
    body = min(ROW * (last + 1), ROWS)
    names = [row.name for row in rows]
    sides = paper.beside(names), paper.MARGIN + 0.1
    figure, axes = paper.chart(title or aged.TITLE, [aged.SUBTITLE], [], body, sides, width, theme)
    axes.set_xlim(aged.LEFT, aged.highest(groups))
    axes.set_ylim(last + 0.7, -0.6)
    axes.grid(visible=False, axis="y")
    paper.ticks(axes)
    axes.set_yticks([row.y for row in rows], names, **paper.WORDS)
    for row in rows:
        above, below = (np.array([row.y + side * aged.BAR / 2]) for side in (-1, 1))
        look = paper.look(row.style)
        bar = paper.boxes(row.name, np.zeros(1), np.array([row.mean]), above, below, look)
        axes.add_collection(bar, autolim=False)
        for value, share in zip(row.values.tolist(), row.share.tolist(), strict=True):
            axes.add_line(
                Line2D([value], [row.y + aged.BELOW], marker="o", linestyle="", zorder=3,
                       markersize=max(DOT * share**0.5, 2.0), markerfacecolor=row.style.color,
                       markeredgecolor=ink, markeredgewidth=0.5)
            )  # fmt: skip
    for group in groups:
        low, high = aged.reach(group)
        at = group.predicted
        axes.add_line(Line2D([at, at], [low, high], color=ink, linewidth=1.1, linestyle="--"))
        paper.label(axes, at, low, f" n - 1 = {at}", ink, ha="left")
        if group.name:
            name = paper.written(group.name, 40)
            paper.label(axes, 0, low - 0.35, name, ink, paper.BODY, ha="left", weight="bold")
    axes.set_xlabel(aged.AXIS, loc="right", **paper.WORDS)
    return figure


def stability(
    radius: mapped.Radius,
    runs: pandas.DataFrame | None = None,
    *,
    eta: tuple[float, float] = mapped.ETA,
    alpha: tuple[float, float] = mapped.ALPHA,
    theme: str = "light",
    title: str = mapped.TITLE,
    width: float = 7.2,
) -> Figure:
    """The map of a method's spectral radius, with runs on it, `width` inches wide. Arguments and
    errors are those of `viz.stability`."""
    etas, alphas, found = mapped.sampled(radius, eta, alpha)
    entries = []
    for settled, own in mapped.by_outcome(runs):
        dots = Line2D(own.eta, own.alpha, linestyle="", marker="o" if settled else "X",
                      markersize=8, color=palette.WHITE, markeredgecolor=palette.BLACK,
                      zorder=4)  # fmt: skip
        entries.append((mapped.SIDES[settled][0], dots))
    sides = (0.6, 1.5)
    figure, axes = paper.chart(title, [mapped.SUBTITLE], entries, MAP, sides, width, theme)
    axes.grid(visible=False)
    low, high = mapped.LOW, mapped.HIGH
    levels = np.linspace(low, high, round((high - low) / mapped.STEP) + 1)
    scale = LinearSegmentedColormap.from_list("growth", list(palette.GROWTH))
    norm = BoundaryNorm(levels, scale.N)
    axes.contourf(etas, alphas, np.clip(found, low, high), levels, cmap=scale, norm=norm)
    axes.contour(etas, alphas, found, [1.0], colors=palette.BLACK, linewidths=2)
    for _, dots in entries:
        axes.add_line(dots)
    axes.set_xlim(*eta)
    axes.set_ylim(*alpha)
    paper.ticks(axes)
    axes.set_yticks(*paper.levels(*alpha), **paper.WORDS)
    _scale(figure, axes, ScalarMappable(norm, scale), theme)
    paper.titles(axes, "learning rate η", "pull α = ηρ", theme)
    return figure


def bars(
    values: upright.Values,
    *,
    title: str = upright.TITLE,
    xlabel: str = "",
    ylabel: str = "",
    theme: str = "light",
    width: float = 7.2,
) -> Figure:
    """Bars side by side, `width` inches wide. Arguments and errors are those of `viz.bars`."""
    values = upright.by_name(values)
    things = upright.things_of(values)
    columns = upright.columns_of(values, things)
    entries = [(name, Patch(**paper.look(style))) for name, (style, _) in columns.items()]
    shown = entries if len(entries) > 1 else []
    figure, axes = paper.chart(title, [], shown, HEIGHT, (0.66, 0.2), width, theme)
    axes.grid(visible=False, axis="x")
    wide = 0.8 / len(columns)
    top = max(float(np.nanmax(heights, initial=0.0)) for _, heights in columns.values()) or 1.0
    axes.set_xlim(-0.6, len(things) - 0.4)
    axes.set_ylim(0, 1.1 * top)
    axes.set_yticks(*paper.levels(0, 1.1 * top), **paper.WORDS)
    axes.set_xticks(range(len(things)), [paper.written(thing, 40) for thing in things],
                    **paper.WORDS)  # fmt: skip
    ink = palette.colors(theme)["ink"]
    for place, (name, (style, heights)) in enumerate(columns.items()):
        left = np.arange(len(things)) - 0.4 + place * wide
        there = np.isfinite(heights)
        box = paper.boxes(name, left[there], left[there] + wide, np.zeros(there.sum()),
                          heights[there], paper.look(style))  # fmt: skip
        axes.add_collection(box, autolim=False)
        words = upright.numbers(heights, values, things) or [""] * len(things)
        for x, height, word in zip(left, heights, words, strict=True):
            if word:
                paper.label(axes, x + wide / 2, height, word, ink, va="bottom")
    paper.titles(axes, xlabel, ylabel, theme)
    return figure


def _scale(figure: Figure, axes: Axes, of: ScalarMappable, theme: str) -> None:
    """What each tint stands for, right of the map."""
    colors = palette.colors(theme)
    box, (width, _) = axes.get_position(), figure.get_size_inches()
    side = figure.add_axes((box.x1 + 0.25 / width, box.y0, SCALE / width, 0.86 * box.height))
    bar = figure.colorbar(of, cax=side)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_ticks(mapped.PLACES, labels=mapped.NAMES)
    side.tick_params(color=colors["grid"], labelcolor=colors["ink"], labelsize=paper.LABEL,
                     labelfontfamily=paper.FAMILY)  # fmt: skip
    side.set_title("spectral radius\nof a round", fontsize=paper.LABEL, color=colors["ink"],
                   loc="left", pad=8, **paper.WORDS)  # fmt: skip
