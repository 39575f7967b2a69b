"""Cost over size for paper: what `viz.costs` draws, as a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from dlviz.analysis.crossovers import crossovers
from dlviz.viz import palette, paper
from dlviz.viz.charts.costs import TENS, size_of, ticks, winners
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)),
          "longdashdot": (0, (8, 3, 1.5, 3))}  # fmt: skip
HEIGHT = 2.9  # inches of the axes


def costs(
    nbytes: Sequence[float],
    seconds: Mapping[str, Sequence[float] | np.ndarray],
    *,
    at: float | None = None,
    theme: str = "light",
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """The predicted `seconds` of each algorithm over `nbytes`, both logarithmic, with marks where
    the cheapest changes and at the size `at`; `width` inches wide."""
    colors = palette.colors(theme)
    seconds = {text.named(name): values for name, values in seconds.items()}
    crossed = crossovers(nbytes, seconds)
    entries = []
    for i, name in enumerate(seconds):
        color, dash = palette.line(i)
        entries.append((name, Line2D(nbytes, seconds[name], color=color, linestyle=DASHES[dash],
                                     linewidth=1.3)))  # fmt: skip
    heights = [float(np.interp(size, nbytes, seconds[after])) for size, _, after in crossed]
    places = [size for size, _, _ in crossed]
    look: dict[str, Any] = {
        "marker": "D",
        "color": colors["paper"],
        "markeredgecolor": colors["ink"],
    }
    diamonds = Line2D(places, heights, linestyle="", markersize=5, zorder=3, **look)
    lines = winners(crossed, {name: np.asarray(line) for name, line in seconds.items()})
    shown = [*entries, *([("another is cheapest", diamonds)] if crossed else [])]
    values = np.concatenate([np.asarray(line) for line in seconds.values()])
    y = ticks(values, TENS, text.seconds)
    sides = paper.beside(y["ticktext"]) + 0.05, 0.3
    figure, axes = paper.chart(title or "Cost over size", lines, shown, HEIGHT, sides, width, theme)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    x = ticks(np.asarray(nbytes), TENS, size_of)
    axes.set_xticks(x["tickvals"], x["ticktext"], **paper.WORDS)
    axes.set_yticks(y["tickvals"], y["ticktext"], **paper.WORDS)
    axes.set_xlim(nbytes[0], nbytes[-1])
    axes.set_ylim(values.min() / 1.3, values.max() * 1.3)
    for _, line in shown:
        axes.add_line(line)
    if at is not None:
        axes.axvline(at, color=colors["faint"], linewidth=0.8, linestyle=":")
    axes.set_xlabel("size", loc="right", **paper.WORDS)
    return figure
