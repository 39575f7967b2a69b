"""What a policy learns: each group's probability of each device, at a few moments side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlviz.viz.charts.cells import down
from dlviz.viz.charts.figure import ROWS, Figure, heat_map, lay_out
from dlviz.viz.words import text

ROW, LEAST = 20.0, 150.0  # pixels: a group, all of them at least
GAP = 0.03  # of the width


def probabilities(
    values: Any,
    *,
    moments: int = 4,
    theme: str = "auto",
    title: str = "The probability of each device",
) -> Figure:
    """Draw `values` (updates, groups, devices), as `dlviz.models.placer.learn` returns, at
    `moments` updates from the first to the last; the darker, the more probable.

    Raises ValueError for another shape, values that are not probabilities, and `moments` below 2.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 3 or not numbers.size:
        raise ValueError(f"values of shape {numbers.shape}: give (updates, groups, devices).")
    if not (np.all(numbers >= 0) and np.allclose(numbers.sum(axis=2), 1, atol=1e-3)):
        raise ValueError("values are not probabilities: those of a group are 0 to 1 and add to 1.")
    if moments < 2:
        raise ValueError(f"moments={moments!r} has to be 2 or more: the first and the last.")
    updates, groups, devices = numbers.shape
    shown = sorted({round(place * (updates - 1) / (moments - 1)) for place in range(moments)})
    wide = (1 - GAP * (len(shown) - 1)) / len(shown)
    figure, axes = Figure(), {}
    for place, update in enumerate(shown):
        own = numbers[update]
        words = [
            [f"update {update}<br>group {group}, device {device}: {100 * share:.3g} %"
             for device, share in enumerate(row)]
            for group, row in enumerate(own.tolist())
        ]  # fmt: skip
        axis = f"x{place + 1}" if place else "x"
        figure.add_trace(heat_map(own, 1.0, words, xaxis=axis, showscale=place == len(shown) - 1))
        left = place * (wide + GAP)
        axes[axis.replace("x", "xaxis")] = {
            "domain": [left, left + wide], "tickvals": [*range(devices)], "ticks": "",
            "title": f"after {update} update{'s' * (update != 1)}", "showgrid": False,
        }  # fmt: skip
    lay_out(
        figure,
        text.heading(title, "Across: devices; down: groups"),
        [],
        theme,
        inner=max(LEAST, ROW * groups),
        below=56,
        yaxis={"title": "group", **ROWS, **down([*map(str, range(groups))])},
        **axes,
    )
    return figure
