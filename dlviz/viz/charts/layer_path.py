"""The cheapest path through the layers of a net, each under a cut of its own.

    N 8         ##   ##   #     a cell: a layer under a cut, the darker the longer beside the
    N 2, H 4    #    ##   ##    layer's quickest cut
    C 4, F 2    ##   o----o     a line: the path, and what the changes of cut on it take
                conv1 conv2 dense

It draws what `sim.net_costs` and `sim.cheapest_path` return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.cells import ROW, down, named
from dlviz.viz.charts.figure import ROWS, WIDE, Figure, heat_map, label_width, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

TIMES = 10.0  # as long as a layer's quickest cut: darkest
LEAST, HIGHEST = 150.0, 460.0  # pixels: all rows
SHOWN = 12  # changes of cut that a hover lists


def layer_path(
    seconds: Any,
    switches: Any,
    path: Sequence[int],
    *,
    layers: Sequence[str] | None = None,
    cuts: Sequence[str] | None = None,
    theme: str = "auto",
    title: str = "The cheapest path through the layers",
) -> Figure:
    """Draw the `path`, the place of each layer's cut, over the `seconds` (layers, cuts), which may
    be infinite; `switches` (layers - 1, cuts, cuts) are the seconds of a change from a cut of a
    layer to one of the next. `layers` and `cuts` name both.

    Raises ValueError for shapes that do not fit each other, and a path that is not one of them.
    """
    costs, between = np.asarray(seconds, np.float64), np.asarray(switches, np.float64)
    many, kinds = costs.shape if costs.ndim == 2 else (0, 0)
    if not costs.size or between.shape != (many - 1, kinds, kinds):
        raise ValueError(
            f"seconds of shape {costs.shape} and switches of {between.shape} do not fit: give "
            "(layers, cuts) and (layers - 1, cuts, cuts)."
        )
    if len(path) != many or not all(0 <= cut < kinds for cut in path):
        raise ValueError(f"path={list(path)} has to name one of {kinds} cuts for {many} layers.")
    names, kind_names = named(layers, many, "layers"), named(cuts, kinds, "cuts")
    on = np.array(path, np.int64)
    own, steps = costs[np.arange(many), on], between[np.arange(many - 1), on[:-1], on[1:]]
    figure = Figure(
        [_cells(costs, between, names, kind_names), *_line(on, steps, names, kind_names)]
    )
    widest = max(map(label_width, map(text.seconds, steps.tolist())), default=0)
    for place, step in enumerate(steps.tolist()):
        if widest < WIDE / many and step:
            figure.add_annotation(
                x=place + 0.5, y=(on[place] + on[place + 1]) / 2, text=text.seconds(step),
                showarrow=False, yshift=14, font={"size": 11},
                bgcolor=palette.colors(theme)["paper"], opacity=0.9,
            )  # fmt: skip
    whole, computed, changed = (
        text.seconds(float(each.sum())) for each in (np.append(own, steps), own, steps)
    )
    summary = f"{whole} a step: {computed} in layers, {changed} for changes of the cut"
    lay_out(
        figure,
        text.heading(title, summary),
        [],
        theme,
        inner=min(max(LEAST, ROW * kinds), HIGHEST),
        below=110,
        legend=palette.LEGEND_BELOW,
        xaxis={"tickvals": [*range(many)], "ticktext": names, "ticks": "", "showgrid": False},
        yaxis={**ROWS, **down(kind_names)},
    )
    return figure


def _cells(
    costs: np.ndarray, between: np.ndarray, layers: list[str], cuts: list[str]
) -> go.Heatmap:
    """The layers under the cuts; a cell is empty where a cut does not suit."""
    quickest = np.maximum(costs.min(axis=1, keepdims=True), np.finfo(float).tiny)
    times = costs / quickest
    shade = np.log10(np.where(np.isfinite(times), np.clip(times, 1, TIMES), np.nan))
    hovers = [
        [
            "<br>".join(_words(costs, between, times, (i, j), layers, cuts))
            for i in range(len(layers))
        ]
        for j in range(len(cuts))
    ]
    bar = {
        "title": {"text": "times the layer's quickest", "side": "right"},
        "tickvals": [0, np.log10(3), 1],
        "ticktext": ["1", "3", f"{TIMES:g} or more"],
        "thickness": 12,
        "outlinewidth": 0,
    }
    return heat_map(shade.T, 1.0, hovers, showscale=True, colorbar=bar, hoverongaps=True)


def _words(
    costs: np.ndarray,
    between: np.ndarray,
    times: np.ndarray,
    at: tuple[int, int],
    layers: list[str],
    cuts: list[str],
) -> list[str]:
    """A layer under a cut, and what the change to it takes from each cut before it."""
    layer, cut = at
    lines = [f"<b>{layers[layer]}, {cuts[cut]}</b>"]
    if not np.isfinite(costs[at]):
        return [*lines, "this cut does not suit the layer"]
    lines.append(f"{text.seconds(float(costs[at]))}, {times[at]:.3g} times its quickest cut")
    if layer:
        steps = between[layer - 1, :, cut]
        order = np.argsort(steps, kind="stable").tolist()
        lines += [f"from {cuts[i]}: {text.seconds(float(steps[i]))}" for i in order[:SHOWN]]
        if len(order) > SHOWN:
            lines.append(f"from {len(order) - SHOWN} others: more")
    return lines


def _line(
    on: np.ndarray, steps: np.ndarray, layers: list[str], cuts: list[str]
) -> list[go.Scatter]:
    """The path, and a mark on each change of the cut that takes time."""
    color = palette.MARKS["chosen"]
    at = np.flatnonzero(steps > 0)
    words = [
        f"<b>{layers[i]} to {layers[i + 1]}</b><br>{cuts[on[i]]} to {cuts[on[i + 1]]}: "
        f"{text.seconds(float(steps[i]))}"
        for i in at.tolist()
    ]
    halo = {"color": palette.MARKS["halo"], "width": 1.5}
    return [
        go.Scatter(
            x=np.arange(len(on)), y=on, name="the path", mode="lines+markers",
            line={"color": color, "width": 3}, marker={"color": color, "size": 11, "line": halo},
            hoverinfo="skip",
        ),
        go.Scatter(
            x=at + 0.5, y=(on[at] + on[at + 1]) / 2, name="a change of the cut that takes time",
            mode="markers", marker={"color": color, "size": 9, "symbol": "diamond", "line": halo},
            **hover(words),
        ),
    ]  # fmt: skip
