"""Layer storage: a bar per layer of what the formula counts, and below it what autograd saves.

    layer 1   |weights|outputs|∇weights|∇outputs|
              |saved|
    layer 2   |outputs|∇outputs|

It draws the table of `models.layer_storage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, lay_out, named_rows
from dlviz.viz.words import text

if TYPE_CHECKING:
    import pandas

ROW, LEAST, HIGHEST = 54, 20, 430  # pixels: a layer at most and at least, all layers
PARTS = {  # column -> its label, and the look of the pass that makes it
    "weights": ("weights", palette.style("update")),
    "outputs": ("outputs", palette.style("forward")),
    "weight_gradients": ("gradients of weights", palette.style("backward_weight")),
    "output_gradients": ("gradients of outputs", palette.style("backward_input")),
}
SAVED = ("saved by autograd", palette.pale(palette.style("forward")))


def storage(
    table: pandas.DataFrame, *, theme: str = "auto", title: str = "What each layer stores in a step"
) -> Figure:
    """Draw the bytes of each row of `table`, a layer, as `dlviz.models.layer_storage` counts them.

    Raises ValueError for a table without layers.
    """
    layers = len(table)
    if not layers:
        raise ValueError("the table has no layer: give what models.layer_storage returns.")
    names = [f"{text.short(name, 20)} {text.short(kind, 16)}" for name, kind in table.kind.items()]
    unit, size = text.byte_unit(_longest(table))
    figure = Figure(_bars(table, names, size))
    total, saved = int(table[list(PARTS)].to_numpy().sum()), int(table.kept.sum())
    heading = text.heading(
        title,
        f"|w| + |f(o)| + |∇w| + |∇o| = {text.nbytes(total)} in all; "
        f"autograd saves {text.nbytes(saved)} of the forward.",
    )
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=max(min(HIGHEST, layers * ROW), layers * LEAST, 120),
        below=96,
        barmode="overlay",
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        xaxis={"title": f"size ({unit})", "rangemode": "tozero"},
        yaxis=named_rows(dict(enumerate(map(text.clean, names))), layers - 0.5),
    )
    return figure


def _bars(table: pandas.DataFrame, names: list[str], size: float) -> list[go.Bar]:
    """The parts of each layer end to end, in units of `size` bytes, and below them what autograd
    saves."""
    at, begin = np.arange(len(table)), np.zeros(len(table))
    series = []
    for column, (label, style) in {**PARTS, "kept": SAVED}.items():
        nbytes = table[column].to_numpy()
        base, middle, height = (
            (begin, at - 0.14, 0.46) if column in PARTS else (0 * begin, at + 0.25, 0.22)
        )
        hovers = [
            f"<b>{text.clean(name)}</b><br>{label}: {text.nbytes(many)} ({many:,} bytes)"
            for name, many in zip(names, nbytes.tolist(), strict=True)
        ]
        across, down = (base / size, nbytes / size), (middle, np.full(len(table), height))
        series.append(bar_series(style, label, column, across, down, None, hovers))
        begin = begin + nbytes * (column in PARTS)
    return series


def _longest(table: pandas.DataFrame) -> int:
    return int(table[list(PARTS)].sum(axis=1).max())
