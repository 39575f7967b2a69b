"""The order in which things were predicted beside the order in which they were measured.

    predicted          measured
    tp 2  281 ms o----o tp 2  284 ms
    pp 2  300 ms o\\  /o dp 2  301 ms
    dp 2  310 ms o/--\\o pp 2  333 ms       lines that cross are pairs in another order

Both sides list all names, the least number on top. A line is marked where its name swaps places
with another, and the two numbers are no tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import plotly.graph_objects as go

from dlviz.analysis.order import order as ordered
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

TITLE = "Predicted and measured order"
SIDES = ("predicted", "measured")
ROW, HIGHEST, NAMES = 30, 480, 30  # pixels: a row at most, all rows, the names of the sides


@dataclass(frozen=True)
class Entry:
    """A name with its two numbers, its place from the top on each side, and whether it swaps places
    with another (ties aside)."""

    name: str
    seconds: tuple[float, float]
    place: tuple[int, int]
    swapped: bool


def order(
    predicted: Mapping[str, float],
    measured: Mapping[str, float],
    *,
    ties: float = 0.05,
    theme: str = "auto",
    title: str = TITLE,
) -> Figure:
    """Draw the seconds `predicted` and `measured` of each name, each side sorted, and a line
    between its two places. Numbers that differ by at most `ties` have no order.

    Raises ValueError where the names differ or there is none, and for an unknown theme.
    """
    entries = entries_of(predicted, measured, ties)
    figure = Figure()
    for entry in entries:
        hue = palette.MARKS["wrong" if entry.swapped else "accent"]
        words = [
            f"<b>{text.cut(entry.name, 50)}</b><br>predicted {text.seconds(entry.seconds[0])}, "
            f"measured {text.seconds(entry.seconds[1])}"
        ]
        figure.add_trace(
            go.Scatter(
                x=[0, 1],
                y=entry.place,
                name=text.cut(entry.name, 40),
                mode="lines+markers",
                line={"color": hue, "width": 2, "dash": "dash" if entry.swapped else "solid"},
                marker={"size": 9},
                showlegend=False,
                **hover(words * 2),
            )
        )
        for side, anchor in enumerate(("right", "left")):
            figure.add_annotation(
                x=side,
                y=entry.place[side],
                text=f"{text.cut(entry.name, 28)}  <b>{text.seconds(entry.seconds[side])}</b>",
                showarrow=False,
                xanchor=anchor,
                xshift=(12, -12)[anchor == "right"],
                font={"size": 12},
            )
    heading = text.heading(title, text.wrap(summary(predicted, measured, ties), text.LINE))
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=min(ROW * len(entries), HIGHEST),
        below=16,
        margin={"t": heading["margin"]["t"] + NAMES},
        xaxis={"range": [-0.8, 1.8], "tickvals": [0, 1], "ticktext": SIDES, "side": "top",
               "showgrid": False, "ticks": ""},
        yaxis={"range": [len(entries) - 0.4, -0.6], "visible": False},
    )  # fmt: skip
    return figure


def entries_of(
    predicted: Mapping[str, float], measured: Mapping[str, float], ties: float
) -> list[Entry]:
    """The entries in predicted order. Raises ValueError where the names differ or there is none."""
    if not predicted:
        raise ValueError("there is no number to draw: give both numbers for each name.")
    swapped = {name for pair in ordered(predicted, measured, ties).swapped for name in pair}
    places = [sorted(side, key=lambda name: side[name]) for side in (predicted, measured)]
    return [
        Entry(
            name,
            (predicted[name], measured[name]),
            (place, places[1].index(name)),
            name in swapped,
        )
        for place, name in enumerate(places[0])
    ]


def summary(predicted: Mapping[str, float], measured: Mapping[str, float], ties: float) -> str:
    """How far the orders agree, in a sentence."""
    found = ordered(predicted, measured, ties)
    number = len(found.agree) + len(found.swapped)
    words = f"{len(found.agree)} of {number} pairs come in the predicted order"
    if found.swapped:
        words += f" (dashed: {len(found.swapped)} in another)"
    if found.tied:
        tie = "is a tie" if len(found.tied) == 1 else "are ties"
        words += f"; {len(found.tied)} more {tie}, within {100 * ties:g} %"
    return words + "."
