"""Who took part in which round of a federated training: clients x rounds.

client 0 | # | # | # |       # its update is in the new weights
client 1 | # |   | # |         not asked
client 2 | - | - | ~ |       - late: the round was over    ~ its late update was taken in
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.cells import LEAST, ROW, down
from dlviz.viz.charts.figure import ROWS, Figure, lay_out
from dlviz.viz.palette import FATES
from dlviz.viz.words import text


def participation(
    rounds: Sequence[Any],
    clients: int,
    *,
    theme: str = "auto",
    title: str = "Who took part in which round",
) -> Figure:
    """Draw the records `rounds` that `federated.train` returns, of so many `clients`.

    Raises ValueError where there is no round, for an unknown client, and where times are modelled
    in some rounds and measured in others.
    """
    fates = fates_of(rounds, clients)
    figure = Figure()
    for fate, (name, symbol, color) in FATES.items():
        client, place = (fates == fate).nonzero()
        if not len(client) and fate != "answered":
            continue
        numbers = [rounds[at].number for at in place.tolist()]
        marker: dict[str, Any] = {"symbol": symbol, "color": color, "size": 11}
        marker["line"] = {"color": color, "width": 2.4 if symbol == "x-thin" else 0}
        figure.add_trace(
            go.Scatter(
                name=name,
                x=numbers,
                y=client,
                mode="markers",
                marker=marker,
                hovertemplate=f"client %{{y}}, round %{{x}}: {name}<extra></extra>",
                showlegend=True,
            )
        )
    below = summary(fates) + (" Times are modelled." if modelled(rounds) else "")
    heading = text.heading(title, below)
    first, last = rounds[0].number, rounds[-1].number
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=max(LEAST, ROW * clients),
        below=96,
        legend=palette.LEGEND_BELOW,
        xaxis={"title": "round", "range": [first - 0.6, last + 0.6], "showgrid": False},
        yaxis={**ROWS, **down([f"client {k}" for k in range(clients)])},
    )
    return figure


def fates_of(rounds: Sequence[Any], clients: int) -> np.ndarray:
    """What became of every client in every round: (clients, rounds) of the keys of FATES, "" where
    it was not asked. Raises ValueError where there is no round, and for an unknown client."""
    if not len(rounds):
        raise ValueError("rounds=[] has nothing to draw: give what federated.train returns.")
    check_counts(clients=clients)
    fates = np.full((clients, len(rounds)), "", dtype="U8")
    for place, each in enumerate(rounds):
        for fate in FATES:
            named: Iterable[int] | Mapping[int, str] = getattr(each, fate)
            for k in named:
                if not 0 <= k < clients:
                    raise ValueError(
                        f"round {each.number} names client {k}, of clients={clients}: give as many "
                        "as were trained."
                    )
                fates[k, place] = fate
    return fates


def modelled(rounds: Sequence[Any]) -> bool:
    """Whether times are modelled. Raises ValueError where only some rounds' are."""
    found = {each.modelled: each.number for each in rounds}
    if len(found) == 2:
        raise ValueError(
            f"round {found[True]} has modelled times and round {found[False]} measured ones: draw "
            "each kind on its own."
        )
    return True in found


def summary(fates: np.ndarray) -> str:
    """Which clients are never in the weights, in a sentence."""
    heard = ((fates == "answered") | (fates == "taken")).any(axis=1)
    silent = [str(k) for k in (~heard).nonzero()[0].tolist()]
    if not silent:
        return "Every client is in the weights at least once."
    names = ", ".join(silent)
    return text.cut(f"Never in the weights: client{'s' * (len(silent) > 1)} {names}.", text.LINE)
