"""Traffic and curves for paper: what `viz.traffic` and `viz.curve` draw, as matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

from dlviz.viz import palette, paper
from dlviz.viz.charts.curve import MARKED, Values, lines_of, medians, powers, words_on
from dlviz.viz.charts.traffic import NUMBERED, STRONG, by_group, edges, in_order, sentences
from dlviz.viz.print.costs import DASHES
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

CELL, MAP = 0.5, 3.4  # inches: a cell at most, the side of a map at most
BETWEEN, ABOVE = 0.45, 0.5  # inches: two maps side by side; the names above a map
HEIGHT = 2.9  # inches of a curve's axes


def traffic(
    traces: text.Traces,
    *,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The bytes that each rank sent to each other, a map for each Trace in one scale of colours,
    `width` inches wide. Arguments and errors are those of `viz.traffic`."""
    named = text.by_name(traces)
    found = [by_group(trace) for trace in named.values()]
    most = max(int(sent.max(initial=0)) for sent, _ in found)
    columns = min(len(named), 2)
    rows = -(-len(named) // columns)
    left = paper.MARGIN + 0.5
    wide = (width - left - paper.MARGIN - (columns - 1) * BETWEEN) / columns
    side = min(wide, MAP / min(rows, 2), CELL * max(len(sent) for sent, _ in found))
    body = rows * (side + ABOVE)
    heading = title or "Who sent how much to whom"
    figure, foot = paper.sheet(heading, sentences(named, found), [], body, width, theme)
    for place, (name, trace) in enumerate(named.items()):
        row, column = divmod(place, columns)
        x, y = left + column * (side + BETWEEN), foot + body - (row + 1) * (side + ABOVE)
        axes = paper.axes(figure, (x, y, side, side), theme)
        _map(axes, trace, *found[place], most, side, theme)
        if name:
            ink = palette.colors(theme)["ink"]
            head = paper.cut(name, side, paper.BODY)
            paper.write(figure, x, y + side + 0.34, head, paper.BODY, ink, "bold")
    return figure


def _map(
    axes: Axes,
    trace: Trace,
    sent: np.ndarray,
    count: np.ndarray,
    most: int,
    side: float,
    theme: str,
) -> None:
    """One heat map, with a number in each cell where it fits."""
    colors, ranks = palette.colors(theme), in_order(trace)
    axes.set_facecolor(colors["cell"])
    shown = np.ma.masked_where(count == 0, sent)
    steps = np.arange(len(ranks) + 1) - 0.5
    scale = LinearSegmentedColormap.from_list("bytes", palette.TRAFFIC)
    axes.pcolormesh(steps, steps, shown, cmap=scale, vmin=0, vmax=max(most, 1),
                    edgecolors=colors["paper"], linewidth=1)  # fmt: skip
    axes.set_xlim(-0.5, len(ranks) - 0.5)
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    names = [str(rank) for rank in ranks]
    axes.set_xticks(range(len(ranks)), names, **paper.WORDS)
    axes.set_yticks(range(len(ranks)), names, **paper.WORDS)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("to rank", **paper.WORDS)
    axes.set_ylabel("from rank", color=colors["ink"], fontsize=paper.BODY, **paper.WORDS)
    for edge in edges(trace):
        for line in (axes.axhline, axes.axvline):
            line(edge, color=colors["ink"], linewidth=1.2)
    for i, j in np.argwhere(count > 0).tolist() if len(ranks) <= NUMBERED else ():
        words = text.nbytes(int(sent[i, j])).replace(" ", "\n")
        size = next((size for size in (paper.LABEL, paper.MARK, 4.0) if max(
            paper.length(word, size) for word in words.split("\n")) < 0.94 * side / len(ranks)),
            None)  # fmt: skip
        if size:
            ink = palette.WHITE if sent[i, j] > STRONG * most else palette.BLACK
            paper.label(axes, j, i, words, ink, size, va="center", linespacing=1.1)


def curve(
    values: Values,
    *,
    x: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    title: str = "Loss",
    xlabel: str = "step",
    ylabel: str = "loss",
    log: bool = False,
    log_x: bool = False,
    theme: str = "light",
    width: float = 7.2,
) -> Figure:
    """`values`, or each of several by name, against `x`, `width` inches wide. Arguments and errors
    are those of `viz.curve`."""
    values, ranges = medians(values)
    found, subtitle = lines_of(values, x, log, log_x)
    subtitle += [words_on(ranges)] if ranges else []
    drawn = []
    for place, (name, at, y) in enumerate(found):
        color, dash = palette.line(place)
        marker = {"marker": "o", "markersize": 3} if len(y) <= MARKED else {}
        look = {"color": color, "linestyle": DASHES[dash], "linewidth": 1.3}
        drawn.append((name, Line2D(at, y, **look, **marker)))
    entries = drawn if len(drawn) > 1 else []
    points = [(at[np.isfinite(y)], y[np.isfinite(y)]) for _, at, y in found]
    across, down = (np.concatenate([np.zeros(0), *(point[i] for point in points)]) for i in (0, 1))
    low, high = (float(down.min()), float(down.max())) if len(down) else (0.0, 1.0)
    figure, axes = paper.chart(title, subtitle, entries, HEIGHT, (0.62, 0.3), width, theme)
    _reach(axes, across, powers(found) if log_x else None)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
    else:
        room = 0.05 * (high - low) or 0.5
        axes.set_ylim(low - room, high + room)
        axes.set_yticks(*paper.levels(low - room, high + room), **paper.WORDS)
    for name, line in drawn:
        axes.add_line(line)
        if name in ranges:
            low_high = ranges[name].min(axis=0), ranges[name].max(axis=0)
            axes.fill_between(line.get_xdata(), *low_high, color=line.get_color(), alpha=0.15, lw=0)
    paper.titles(axes, xlabel, ylabel, theme)
    return figure


def _reach(axes: Axes, across: np.ndarray, marks: dict[str, list] | None) -> None:
    """The horizontal axis over the values `across`: linear, or logarithmic with these `marks`."""
    if marks is not None:
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(marks["tickvals"], marks["ticktext"], **paper.WORDS)
    if len(across):
        room = 0.02 * float(np.ptp(across)) or 0.5
        ends = across.min() - room, across.max() + room
        axes.set_xlim(*(ends if marks is None else (across.min() / 1.1, across.max() * 1.1)))
    if marks is None:
        paper.ticks(axes)
