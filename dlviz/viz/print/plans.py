"""The map of plans for paper: what `viz.plans` draws, as a matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from dlviz.viz import palette, paper
from dlviz.viz.charts import plans as mapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, ROWS = 0.42, 4.2  # inches: a row of cells at most, all of them


def plans(
    rows: Sequence[mapped.Row],
    *,
    theme: str = "light",
    title: str = mapped.TITLE,
    width: float = 7.2,
) -> Figure:
    """The best plan for each tp and pp, `width` inches wide. Arguments and errors are those of
    `viz.plans`."""
    found, colors = mapped.map_of(rows), palette.colors(theme)
    names = [str(stages) for stages in found.pp]
    body = min(ROW * max(len(names), 3), ROWS)
    sides = paper.beside(names) + 0.3, paper.MARGIN + 0.1
    lines = mapped.summary(found, rows)
    figure, axes = paper.chart(title, lines, [], body, sides, width, theme)
    axes.grid(visible=False)
    edges = [np.arange(len(ticks) + 1) - 0.5 for ticks in (found.tp, found.pp)]
    scale = LinearSegmentedColormap.from_list("seconds", palette.TRAFFIC)
    slowness = np.ma.masked_invalid(found.slowness)
    axes.pcolormesh(*edges, slowness, cmap=scale, vmin=0, vmax=1, edgecolors=colors["paper"])
    axes.set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
    for cell in found.cells:
        corner = cell.x - 0.5, cell.y - 0.5
        ink = colors["ink"]
        if cell.plan["fits"]:
            strong = found.slowness[cell.y, cell.x] > mapped.STRONG
            ink = palette.WHITE if strong else palette.BLACK
        else:
            look: dict[str, Any] = {"facecolor": colors["cell"], "edgecolor": colors["faint"]}
            axes.add_patch(Rectangle(corner, 1, 1, hatch="///", linewidth=0.5, alpha=0.4, **look))
        if len(found.tp) <= mapped.NUMBERED:
            number, dp = cell.words
            paper.label(axes, cell.x, cell.y, f"{number}\n{dp}", ink, paper.MARK, va="center")
    if found.best:
        corner = found.best.x - 0.5, found.best.y - 0.5
        frame = {"fill": False, "edgecolor": colors["ink"], "linewidth": 2}
        axes.add_patch(Rectangle(corner, 1, 1, zorder=3, **frame))
    axes.set_xticks(range(len(found.tp)), [str(ranks) for ranks in found.tp], **paper.WORDS)
    axes.set_yticks(range(len(found.pp)), names, **paper.WORDS)
    paper.titles(axes, mapped.ACROSS, mapped.DOWN, theme)
    return figure
