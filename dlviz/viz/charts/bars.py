"""Bars side by side: for each thing (a label, a setting) one bar per name.

error |    =
      |    =  .         = synchronous, 1 backup
      |  = =  = .       . synchronous
      +--0----1------ label
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.charts.losses import ROW, legend_rows
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

TITLE = "Side by side"
INNER = 320.0  # pixels of the axes
NUMBERED = 24  # bars: with more, none shows its number
PATTERNS = ("/", ".", "x")  # of a method's forms after the first, which are paler

Values = Mapping[str, Mapping[Hashable, float]] | Mapping[Hashable, float]


def bars(
    values: Values,
    *,
    title: str = TITLE,
    xlabel: str = "",
    ylabel: str = "",
    theme: str = "auto",
) -> Figure:
    """Draw `values`: for each name, a number per thing, or a number per thing alone. A missing
    number or a NaN has no bar. Units belong in `xlabel` and `ylabel`.

    Raises ValueError where there is no number, and for what is none.
    """
    values = by_name(values)
    things = things_of(values)
    figure = Figure()
    for name, (style, heights) in columns_of(values, things).items():
        words = [
            f"<b>{text.cut(name, 50)}</b><br>" * bool(name) + f"{text.cut(thing)}: {height:,.5g}"
            for thing, height in zip(things, heights.tolist(), strict=True)
        ]
        figure.add_trace(
            go.Bar(
                name=text.cut(name, 40),
                x=[text.cut(thing, 40) for thing in things],
                y=heights,
                marker=style.marker(),
                text=numbers(heights, values, things),
                textposition="outside",
                textfont={"size": 11},
                cliponaxis=False,
                **hover(words),
            )
        )
    several = len(values) > 1
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=INNER,
        below=(64 if xlabel else 44) + several * ROW * legend_rows([*values]),
        barmode="group",
        showlegend=several,
        legend=palette.LEGEND_BELOW,
        margin={"t": 58},
        xaxis={"title": text.cut(xlabel, 80), "type": "category", "showgrid": False},
        yaxis={"title": text.cut(ylabel, 60), "rangemode": "tozero", "tickformat": ",~g"},
    )
    return figure


def by_name(values: Any) -> dict[str, Mapping[Hashable, float]]:
    """The numbers per thing of each name; those without a name have the name "". Raises ValueError
    for what is no number per thing."""
    if isinstance(values, Mapping) and all(_is_number(own) for own in values.values()):
        values = {"": values} if values else {}
    for name, own in values.items() if isinstance(values, Mapping) else [("values", values)]:
        if not (isinstance(own, Mapping) and all(map(_is_number, own.values()))):
            raise ValueError(
                f"{name} is not a number per thing: give {{thing: number}}, or {{name: {{thing: "
                "number}} for bars of several names."
            )
    return dict(values)


def _is_number(value: Any) -> bool:
    """Whether it is one number, or none."""
    return value is None or isinstance(value, Real) or getattr(value, "ndim", None) == 0


def things_of(values: Mapping[str, Mapping[Hashable, float]]) -> list[Hashable]:
    """All things, in the order they first appear. Raises ValueError where there is none."""
    things = list(dict.fromkeys(thing for own in values.values() for thing in own))
    if not things:
        raise ValueError("there is no number to draw: give one or more for each name.")
    return things


def columns_of(
    values: Mapping[str, Mapping[Hashable, float]], things: list[Hashable]
) -> dict[str, tuple[palette.Style, np.ndarray]]:
    """The look of each name's bars and their heights, NaN where it has none."""
    own = {text.named(name): numbers for name, numbers in values.items()}
    return {
        name: (
            _style(look),
            np.array([own[name].get(thing, np.nan) for thing in things], dtype=np.float64),
        )
        for name, look in palette.methods(own).items()
    }


def _style(look: palette.MethodLook) -> palette.Style:
    plain = palette.Style(look.color)
    pattern = PATTERNS[(look.turn - 1) % len(PATTERNS)]
    return palette.Style(palette.pale(plain).color, pattern) if look.turn else plain


def numbers(heights: np.ndarray, values: Any, things: list[Hashable]) -> list[str] | None:
    """The numbers on the bars; None where there are too many bars."""
    if len(values) * len(things) > NUMBERED:
        return None
    return [
        "" if np.isnan(height) else f"{height:,.0f}" if abs(height) >= 100 else f"{height:.3g}"
        for height in heights.tolist()
    ]
