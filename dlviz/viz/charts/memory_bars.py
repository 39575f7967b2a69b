"""What ranks hold, a bar for each rank or stage, kinds stacked, with marks of what a formula says.

MB | -=-           =  a measured kind
   |  =   -=-      -  the formula
   |  =    =
   +--0----1------ stage of ZeRO
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_amounts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

INNER = 320.0  # pixels of the axes
WIDEST = 700  # pixels for all bars
BAR = 0.7  # of the room of a bar
NUMBERED = 10  # bars: with more, none shows its number

Bar = Hashable | tuple[Hashable, Hashable]


def memory_bars(
    held: Mapping[Bar, Mapping[str, float]],
    *,
    formula: Mapping[Bar, float] | None = None,
    xlabel: str = "",
    theme: str = "auto",
    title: str = "What a rank holds",
) -> Figure:
    """Draw the bytes `held` by each bar (a stage of ZeRO, say) of each kind, kinds stacked, and a
    mark at what its `formula` says, in bytes. A bar named by a pair, ("stage 1", "rank 0"), stands
    in the group of the first. A hover has the difference from the formula.

    Raises ValueError where there is no bar, for bytes that are not numbers from 0, for a formula of
    no bar, and where some names are pairs and others are not.
    """
    formula = formula or {}
    names, totals = _checked(held, formula)
    unit, size = text.byte_unit(max([*totals, *formula.values()]))
    x = _places(names)
    figure = Figure()
    for kind, style in palette.uses(dict.fromkeys(k for own in held.values() for k in own)).items():
        nbytes = [float(held[name].get(kind, 0)) for name in names]
        words = [
            f"<b>{text.cut(kind)}</b><br>{_called(name)}: {text.nbytes(round(own))} of "
            f"{text.nbytes(round(total))}"
            for name, own, total in zip(names, nbytes, totals, strict=True)
        ]
        look = {"marker": style.marker(), "width": BAR, **hover(words)}
        figure.add_trace(go.Bar(name=text.cut(kind), x=x, y=np.array(nbytes) / size, **look))
    if len(names) <= NUMBERED:
        texts = [text.nbytes(round(total)) for total in totals]
        look = {"mode": "text", "textposition": "top center", "textfont": {"size": 11}}
        places = {"x": x, "y": np.array(totals) / size, "text": texts, "cliponaxis": False}
        figure.add_trace(go.Scatter(**places, **look, hoverinfo="skip", showlegend=False))
    if formula:
        figure.add_trace(_marks(names, totals, formula, size, theme))
    pairs = isinstance(x[0], list)
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=INNER,
        below=108 + 18 * pairs,
        barmode="stack",
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        margin={"t": 58},
        xaxis={
            "title": text.cut(xlabel, 80),
            "type": "multicategory" if pairs else "category",
            "showgrid": False,
        },
        yaxis={"title": f"held ({unit})", "rangemode": "tozero"},
    )
    return figure


def _checked(
    held: Mapping[Any, Mapping[str, float]], formula: Mapping[Any, float]
) -> tuple[list[Any], list[float]]:
    """The bars' names, and what each holds in all. Raises ValueError as `memory_bars` does."""
    names = [*held]
    if not names:
        raise ValueError("there is no bar to draw: give {name: {kind: bytes}}.")
    if len({isinstance(name, tuple) for name in names}) > 1:
        raise ValueError("some names are pairs and others are not: give all bars a group, or none.")
    for name in formula.keys() - held.keys():
        raise ValueError(f"the formula of {name!r} has no bar: give what it holds.")
    for name in names:
        check_amounts(f"{_called(name)}: ", **held[name], formula=formula.get(name, 0))
    return names, [float(sum(held[name].values())) for name in names]


def _marks(
    names: list[Any], totals: list[float], formula: Mapping[Any, float], size: float, theme: str
) -> go.Scatter:
    """A line across each bar that has a formula."""
    known = [(name, total) for name, total in zip(names, totals, strict=True) if name in formula]
    words = [
        f"<b>{_called(name)}</b><br>formula {text.nbytes(round(formula[name]))}<br>"
        f"held {text.nbytes(round(total))}{_gap(total, formula[name])}"
        for name, total in known
    ]
    ink = palette.colors(theme)["ink"]
    wide = max(12.0, min(120.0, 0.6 * WIDEST / len(names)))
    return go.Scatter(
        name="formula",
        x=_places([name for name, _ in known]),
        y=np.array([formula[name] for name, _ in known]) / size,
        mode="markers",
        marker={"symbol": "line-ew", "size": wide, "line": {"color": ink, "width": 3}},
        **hover(words),
    )


def _gap(held: float, formula: float) -> str:
    return f" ({100 * (held / formula - 1):+.1f} %)" if formula else ""


def _places(names: list[Any]) -> list[Any]:
    """The bars on plotly's axis: their names, or groups and names."""
    if names and isinstance(names[0], tuple):
        return [[text.cut(part, 40) for part in column] for column in zip(*names, strict=True)]
    return [text.cut(name, 40) for name in names]


def _called(name: Any) -> str:
    return text.cut(", ".join(map(str, name)) if isinstance(name, tuple) else name, 50)
