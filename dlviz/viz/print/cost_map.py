"""The map of forms for paper: what `viz.cost_map` draws, as a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D

from dlviz.viz import palette, paper
from dlviz.viz.charts import cost_map as mapped
from dlviz.viz.print.costs import DASHES

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

HEIGHT = 3.0  # inches of the axes
MARKS = {"circle": "o", "square": "s", "diamond": "D"}


def cost_map(
    price: mapped.Price,
    runs: pandas.DataFrame | None = None,
    *,
    weights: int = mapped.WEIGHTS,
    batch: tuple[int, int] = mapped.BATCH,
    widest: int = mapped.WIDEST,
    theme: str = "light",
    title: str = mapped.TITLE,
    width: float = 7.2,
) -> Figure:
    """Which form sends least, over rows and shape, `width` inches wide. Arguments and errors are
    those of `viz.cost_map`."""
    found = mapped.sampled(price, weights, batch, widest)
    entries, marks = [], []
    for form, layers in mapped.measured(runs, weights).items():
        name, hue, symbol = palette.FORMS[form]
        x = [layer["batch"] for layer in layers]
        y = [layer["outputs"] / layer["inputs"] for layer in layers]
        dots = Line2D(x, y, linestyle="", marker=MARKS[symbol], color=hue, markersize=7,
                      markeredgecolor=palette.BLACK, zorder=4)  # fmt: skip
        entries.append((f"{name} sent least", dots))
        marks += [
            (*place, mapped.label_of(layer)) for *place, layer in zip(x, y, layers, strict=True)
        ]
    summary = [mapped.summary(weights)] if entries else []
    names = mapped.shapes(found)
    sides = (paper.beside([*names.values()]) + 0.2, 0.3)
    figure, axes = paper.chart(title, summary, entries, HEIGHT, sides, width, theme)
    axes.grid(visible=False)
    axes.set(xscale="log", yscale="log", xlim=batch, ylim=(found.ratios[0], found.ratios[-1]))
    axes.minorticks_off()
    for form, style in mapped.FORMS.items():
        least = palette.pale(style).color
        levels = [-np.inf, 0.0]
        axes.contourf(found.batches, found.ratios, found.excess(form), levels, colors=[least])
    for name, (dash, *_) in mapped.EDGES.items():
        across, (x, y) = mapped.edge(found, name)
        look = {"color": palette.BLACK, "linestyle": DASHES[dash], "linewidth": 1.1}
        axes.add_line(Line2D(across, found.ratios, **look))
        paper.label(axes, x, y, f"   {name}", palette.BLACK, ha="left")
    for form, place in mapped.places(found).items():
        paper.label(axes, *place, mapped.NAMES[form], palette.BLACK, paper.BODY + 2)
    for _, dots in entries:
        axes.add_line(dots)
    for x, y, words in marks:
        paper.label(axes, x, y, f"   {words}", palette.BLACK, ha="left")
    rows = mapped.rows(batch)
    axes.set_xticks(rows["tickvals"], rows["ticktext"], **paper.WORDS)
    axes.set_yticks([*names], [*names.values()], **paper.WORDS)
    paper.titles(axes, mapped.AXIS, mapped.SHAPES, theme)
    return figure
