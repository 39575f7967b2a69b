"""The form in which ranks share a layer with the fewest bytes: a map over the rows of a batch and
the shape of the layer, with what real runs sent.

    C_in -> C_out |  partition \\
                  |  output     \\   data        tint: the form that sends least
                  |_____________/    parallel    lines: B = C_out and B = C_in
                  |  reduce    /                 mark: the form that sent least in real runs
                  |  output    /
                  +-------------------------- B

All layers of a map have the same number of weights, so that one axis holds every shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    import pandas

INNER = 400.0  # pixels of the axes
FINE = 4  # points of the map for each doubling
WEIGHTS, BATCH, WIDEST = 2**20, (16, 16_384), 64
TITLE = "Which form sends the fewest bytes?"
AXIS, SHAPES = "rows of X, B", "C_in → C_out"
FORMS = {form: palette.Style(hue) for form, (_, hue, _) in palette.FORMS.items()}
NAMES = {form: title for form, (title, _, _) in palette.FORMS.items()}
EDGES = {"B = C_out": ("solid", 1, 15 / 16), "B = C_in": ("dash", 0, 1 / 16)}
"""The lines where data parallelism and another form cost the same: their dashes, the side of a
shape that they follow, and how far up the map their name is written."""

Price = Callable[[str, int, int, int], float]


@dataclass(frozen=True)
class Sampled:
    """What each form sends at every pair of `batches` and `shapes` (inputs, outputs)."""

    batches: np.ndarray  # (batches,)
    shapes: list[tuple[int, int]]
    nbytes: dict[str, np.ndarray]  # form: (shapes, batches)

    @property
    def ratios(self) -> np.ndarray:
        """Outputs over inputs, the place of a shape on its axis."""
        return np.array([outputs / inputs for inputs, outputs in self.shapes])

    def excess(self, form: str) -> np.ndarray:
        """The logarithm of what the form sends over what the best other form sends: below 0 where
        it sends least."""
        others = [sent for name, sent in self.nbytes.items() if name != form]
        return np.log2(self.nbytes[form] / np.min(others, axis=0))


def cost_map(
    price: Price,
    runs: pandas.DataFrame | None = None,
    *,
    weights: int = WEIGHTS,
    batch: tuple[int, int] = BATCH,
    widest: int = WIDEST,
    theme: str = "auto",
    title: str = TITLE,
) -> Figure:
    """Draw which of palette.FORMS has the lowest `price(form, batch, inputs, outputs)`, in bytes,
    for `batch` rows (from, to) and layers of `weights` weights whose outputs are 1/`widest` to
    `widest` times their inputs.

    `runs` has the columns form, batch, inputs, outputs and nbytes: what a rank sent. Raises
    ValueError for invalid ranges, and for a run of another number of weights.
    """
    check_counts(weights=weights, widest=widest)
    found = sampled(price, weights, batch, widest)
    figure = Figure([_region(found, form) for form in FORMS])
    figure.add_trace(_answers(found))
    figure.add_traces([_edge(found, name) for name in EDGES])
    for form, own in measured(runs, weights).items():
        figure.add_trace(_points(form, own))
    lines = text.wrap(summary(weights), text.LINE) if runs is not None else ""
    low, high = (float(np.log10(found.ratios[i])) for i in (0, -1))
    lay_out(
        figure,
        text.heading(title, lines),
        [],
        theme,
        inner=INNER,
        below=96 if runs is not None else 60,
        legend=palette.LEGEND_BELOW,
        xaxis={"title": AXIS, "type": "log", "showgrid": False, **rows(batch)},
        yaxis={
            "title": SHAPES,
            "type": "log",
            "range": [low, high],
            "showgrid": False,
            "tickvals": [*shapes(found)],
            "ticktext": [*shapes(found).values()],
        },
    )
    for form, place in places(found).items():
        figure.add_annotation(_label(NAMES[form], place, {"font": {"size": 15}}))
    for name in EDGES:
        figure.add_annotation(_label(name, edge(found, name)[1], {"xanchor": "left", "xshift": 12}))
    return figure


def sampled(price: Price, weights: int, batch: tuple[int, int], widest: int) -> Sampled:
    """The map's numbers. Raises ValueError for invalid ranges."""
    least, most = batch
    if not 1 <= least < most:
        raise ValueError(f"batch={batch!r} is not a range from 1 up: give the least and the most.")
    if widest < 2 or weights < widest**2:
        raise ValueError(
            f"widest={widest!r} shapes no layers of {weights!r} weights: use 2 or more, and at "
            "least its square as weights."
        )
    steps = np.arange(np.ceil(FINE * log2(most / least)) + 1) / FINE
    batches = np.unique(np.minimum(np.round(least * 2**steps), most).astype(int))
    turns = np.linspace(-1, 1, 2 * round(FINE * log2(widest)) + 1) * log2(widest)
    inputs = np.round(np.sqrt(weights / 2**turns)).astype(int).tolist()
    pairs = list(zip(inputs, inputs[::-1], strict=True))
    nbytes = {
        form: np.array([[price(form, rows, *pair) for rows in batches.tolist()] for pair in pairs])
        for form in FORMS
    }
    return Sampled(batches, pairs, nbytes)


def measured(runs: pandas.DataFrame | None, weights: int) -> dict[str, list[dict[str, Any]]]:
    """By form, the layers where it sent least: batch, inputs, outputs, and the bytes by form."""
    layers: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in () if runs is None else runs.itertuples():
        layer = int(row.batch), int(row.inputs), int(row.outputs)  # pyright: ignore
        if layer[1] * layer[2] != weights:
            raise ValueError(
                f"the run of {layer[1]} inputs and {layer[2]} outputs has {layer[1] * layer[2]:,} "
                f"weights: the map is of layers of {weights:,}."
            )
        layers.setdefault(layer, {})[str(row.form)] = float(row.nbytes)  # pyright: ignore
    found: dict[str, list[dict[str, Any]]] = {}
    for (rows, inputs, outputs), sent in layers.items():
        best = min(sent, key=lambda form: sent[form])
        layer = {"batch": rows, "inputs": inputs, "outputs": outputs, "nbytes": sent}
        found.setdefault(best, []).append(layer)
    return {form: found[form] for form in FORMS if form in found}


def summary(weights: int) -> str:
    """What the marks are, in a sentence."""
    return (
        f"Layers of {weights:,} weights. A mark is a layer that ran in every form, with the bytes "
        "that a rank sent in the form that sent least."
    )


def rows(batch: tuple[int, int]) -> dict[str, Any]:
    """The range and the ticks of the axis of rows, every second power of two."""
    places = [2**k for k in range(0, 40, 2) if batch[0] <= 2**k <= batch[1]]
    ends = [float(np.log10(end)) for end in batch]
    return {"range": ends, "tickvals": places, "ticktext": [f"{place:,}" for place in places]}


def shapes(found: Sampled) -> dict[float, str]:
    """The ticks of the axis of shapes by ratio: every second doubling of the outputs."""
    chosen = list(zip(found.ratios.tolist(), found.shapes, strict=True))[:: 2 * FINE]
    return {ratio: f"{inputs:,} → {outputs:,}" for ratio, (inputs, outputs) in chosen}


def places(found: Sampled) -> dict[str, tuple[float, float]]:
    """Where a form's name is written: left of the lines, on the row three quarters from the square
    layer to the widest, or on the square layer's row."""
    written = {}
    for form in FORMS:
        least = found.excess(form) < 0
        side = np.sign(np.round(np.log(found.ratios)[least.any(axis=1)].sum(), 6))
        row = round((len(least) - 1) * (1 + 0.75 * side) / 2)
        if least[row].any():
            across = np.quantile(found.batches[least[row]], 0.25 if side else 0.4)
            written[form] = float(across), float(found.ratios[row])
    return written


def edge(found: Sampled, name: str) -> tuple[np.ndarray, tuple[float, float]]:
    """Where B equals the outputs or the inputs of each shape, and where the name is written."""
    _, side, height = EDGES[name]
    across = np.array([shape[side] for shape in found.shapes])
    row = round((len(across) - 1) * height)
    return across, (float(across[row]), float(found.ratios[row]))


def label_of(layer: dict[str, Any]) -> str:
    """The label of a mark: the bytes of the form that sent least."""
    return text.nbytes(round(min(layer["nbytes"].values())))


def _region(found: Sampled, form: str) -> go.Contour:
    """The part of the map in which the form sends least."""
    return go.Contour(
        x=found.batches,
        y=found.ratios,
        z=found.excess(form).round(4),
        name=NAMES[form],
        contours={"type": "constraint", "operation": ">", "value": 0.0},  # plotly fills the rest
        fillcolor=palette.pale(FORMS[form]).color,
        line={"width": 0},
        showlegend=False,
        hoverinfo="skip",
    )


def _label(words: str, place: tuple[float, float], look: dict[str, Any]) -> dict[str, Any]:
    """Words on the map at (rows, ratio)."""
    x, y = np.log10(place).tolist()
    font = {"size": 12, "color": palette.BLACK, **look.pop("font", {})}
    return {"x": x, "y": y, "text": words, "showarrow": False, "font": font, **look}


def _answers(found: Sampled) -> go.Scatter:
    """The hover texts: what each form sends, at the points of every second doubling."""
    words, x, y = [], [], []
    for down in range(0, len(found.shapes), FINE):
        for across in range(0, len(found.batches), FINE):
            inputs, outputs = found.shapes[down]
            sent = {form: float(nbytes[down, across]) for form, nbytes in found.nbytes.items()}
            x.append(int(found.batches[across]))
            y.append(float(found.ratios[down]))
            words.append(_words(x[-1], inputs, outputs, sent))
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        showlegend=False,
        marker={"size": 22, "opacity": 0},
        **hover(words),
    )


def _edge(found: Sampled, name: str) -> go.Scatter:
    line = {"color": palette.BLACK, "width": 1.6, "dash": EDGES[name][0]}
    across, _ = edge(found, name)
    look = {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(x=across, y=found.ratios, name=name, **look)


def _points(form: str, layers: list[dict[str, Any]]) -> go.Scatter:
    title, hue, symbol = palette.FORMS[form]
    ring = {"color": palette.BLACK, "width": 1.6}
    return go.Scatter(
        x=[layer["batch"] for layer in layers],
        y=[layer["outputs"] / layer["inputs"] for layer in layers],
        name=f"{title} sent least",
        mode="markers+text",
        text=[label_of(layer) for layer in layers],
        textposition="middle right",
        textfont={"color": palette.BLACK, "size": 11},
        marker={"color": hue, "symbol": symbol, "size": 13, "line": ring},
        **hover([_words(*layer.values()) for layer in layers]),
    )


def _words(rows: int, inputs: int, outputs: int, sent: dict[str, float]) -> str:
    lines = [f"<b>B = {rows:,}, {inputs:,} → {outputs:,}</b>"]
    lines += [f"{NAMES[form]}: {text.nbytes(round(sent[form]))}" for form in FORMS if form in sent]
    return "<br>".join(lines)
