"""How full each rank's vector gets in a sparse all-reduce, step by step, until it turns dense.

100 % |            [#]---[#]    [#]: held as a dense vector, zeros and all
      | . . . . . *. . . . .    dots: above it a dense vector is fewer bytes
      |     o---/               *: the rank turns dense, with this many entries
      | o--/                    o: held as pairs of index and value
      +--------------------
        0   1     2      3      steps done
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.density import density as measured
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace

INNER = 320.0  # pixels of the axes
MARKS = {  # what a rank holds -> its words, its mark and the size of that
    "pairs": ("pairs of index and value", "circle", 7),
    "turns dense": ("turns dense", "star", 15),
    "dense": ("a dense vector", "square", 9),
}


def density(
    trace: Trace, *, theme: str = "auto", title: str = "How full a sparse all-reduce gets"
) -> Figure:
    """Draw `analysis.density` of a run with one sparse all-reduce: a line for each rank. Raises
    ValueError as that does."""
    table, figure = measured(trace), Figure()
    ink = palette.colors(theme)["ink"]
    for rank in np.unique(table["rank"]).tolist():
        figure.add_traces(_series(table[table["rank"] == rank], rank))
    for kind in dict.fromkeys(table.held.tolist()):
        name, symbol, size = MARKS[kind]
        marker = {"symbol": symbol, "size": size, "color": ink}
        figure.add_trace(go.Scatter(x=[None], y=[None], name=name, mode="markers", marker=marker))
    limit = 100 * float(table.most.max())
    figure.add_hline(
        limit,
        line={"color": ink, "width": 1.2, "dash": "dot"},
        annotation={"text": "above: a dense vector is fewer bytes", "font": {"size": 11}},
        annotation_position="top left",
    )
    lay_out(
        figure,
        text.heading(title, text.wrap(summary(table), text.LINE)),
        text.details(trace, "device"),
        theme,
        inner=INNER,
        below=60,
        showlegend=True,
        legend={**palette.LEGEND_LINES, "tracegroupgap": 0},
        xaxis={"title": "steps done", "dtick": 1, "range": [-0.1, float(table.round.max()) + 0.1]},
        yaxis={"title": "entries / elements (%)", "range": [-3, 106]},
    )
    return figure


def summary(table: Table) -> str:
    """Who turns dense when, in a sentence."""
    turned = table[table.held == "turns dense"]
    if not len(turned):
        return "No rank's vector turns dense."
    words = []
    for done in np.unique(turned["round"]).tolist():
        own = turned[turned["round"] == done]
        everyone = len(own) == len(np.unique(table["rank"]))
        who = "all ranks" if everyone else text.ranks(own["rank"].tolist())
        low, high = (f"{100 * share:.3g}" for share in (own.density.min(), own.density.max()))
        full = low if low == high else f"{low} to {high}"
        when = "before the first step" if done == 0 else f"in step {done}"
        words.append(f"{who} turned dense {when}, {full} % full")
    return (sentence := "; ".join(words))[0].upper() + sentence[1:] + "."


def _series(own: Table, rank: int) -> list[go.Scatter]:
    """A rank's line, and a mark at each of its points."""
    color, dash = palette.line(rank)
    looks = [MARKS[kind] for kind in own.held]
    at = {"x": own["round"], "y": 100 * own.density, "name": f"rank {rank}", "legendgroup": rank}
    mark = {
        "symbol": [symbol for _, symbol, _ in looks],
        "size": [size for *_, size in looks],
        "color": color,
    }
    hover = "rank %{meta} after %{x} steps: %{y:.3~g} %, %{customdata}<extra></extra>"
    return [
        go.Scatter(**at, mode="lines", line={"color": color, "width": 2, "dash": dash},
                   hoverinfo="skip"),
        go.Scatter(**at, mode="markers", marker=mark, showlegend=False, meta=rank,
                   customdata=[words for words, *_ in looks], hovertemplate=hover),
    ]  # fmt: skip
