"""What all ranks sent along each axis of a mesh, inside nodes and between them.

    tp inside      tp |===================|          = inside a node
                   pp |===|                          / between nodes
                   dp |////|

A row for each axis, in the order of the placement: the axis whose ranks are neighbours comes last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.axes import axes
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, headings, lay_out, named_rows
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

TITLE = "What ranks send along each axis"
PARTS = ("inside nodes", "between nodes")
ROW, HIGHEST = 34, 460  # pixels: a row at most, all rows


@dataclass(frozen=True)
class AxisBytes:
    """The bytes that all ranks sent along an axis, (inside nodes, between nodes), and its row."""

    axis: str
    nbytes: tuple[int, int]
    y: int

    @property
    def name(self) -> str:
        return palette.axis(self.axis)[0]

    @property
    def style(self) -> palette.Style:
        return palette.axis(self.axis)[1]


def axis_bytes(
    traces: text.Traces,
    *,
    step: int | None = None,
    theme: str = "auto",
    title: str = TITLE,
) -> Figure:
    """Draw the bytes sent along each axis of a mesh, in all steps or in one, from the messages of
    a Trace or of several by name.

    The nodes are those of the machine that paced the run. Raises ValueError for a step that a Trace
    lacks, where no message went along an axis, and for an unknown theme.
    """
    rows, heads = laid_out(traces, step)
    last = max(row.y for row in rows)
    figure = Figure()
    for part, name in enumerate(PARTS):
        own = [row for row in rows if row.nbytes[part]]
        figure.add_trace(_bars(own, part))
        figure.add_trace(_key(name, part))
    headings(figure, heads)
    most = max(sum(row.nbytes) for row in rows)
    low = min([row.y for row in rows] + [y for y, _ in heads])
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=min(max(ROW * (last - low + 1), 90), HIGHEST),
        below=84,
        barmode="stack",
        legend=palette.LEGEND_BELOW,
        xaxis={"title": f"{_when(step)}, all ranks (MB)", "range": [0, 1.14 * most / 1e6]},
        yaxis=named_rows({row.y: row.name for row in rows}, last + 0.6, low - 0.6),
    )
    for row in rows:
        figure.add_annotation(
            x=sum(row.nbytes) / 1e6, y=row.y, text=text.nbytes(sum(row.nbytes)), showarrow=False,
            xanchor="left", xshift=4, font={"size": 11},
        )  # fmt: skip
    return figure


def laid_out(
    traces: text.Traces, step: int | None
) -> tuple[list[AxisBytes], list[tuple[int, str]]]:
    """The rows from the top, and the name over the rows of each Trace that has one. Raises
    ValueError as `axis_bytes` does."""
    rows: list[AxisBytes] = []
    heads: list[tuple[int, str]] = []
    y = 0
    for name, trace in text.by_name(traces).items():
        if name:
            heads.append((y, name))
            y += 1
        for axis, found in axes(trace, step=step).items():
            between = int(found.between.sum())
            rows.append(AxisBytes(axis, (int(found.sent.sum()) - between, between), y))
            y += 1
    if not any(sum(row.nbytes) for row in rows):
        raise ValueError("no message went along an axis of a mesh: give a run on comm.mesh(...).")
    return rows, heads


def look(style: palette.Style, part: int) -> palette.Style:
    """The look of a bar: what goes between nodes is hatched."""
    return palette.Style(style.color, "/" if part else "")


def _bars(rows: list[AxisBytes], part: int) -> go.Bar:
    markers = [look(row.style, part).marker() for row in rows]
    words = [f"<b>{row.name}</b><br>{text.nbytes(row.nbytes[part])} {PARTS[part]}" for row in rows]
    return go.Bar(
        name=PARTS[part],
        orientation="h",
        x=np.array([row.nbytes[part] for row in rows]) / 1e6,
        y=[row.y for row in rows],
        width=0.7,
        showlegend=False,
        marker={
            "color": [marker["color"] for marker in markers],
            "pattern": {"shape": "/" if part else "", "fgcolor": palette.BLACK, "size": 6},
            "line": {"width": 0},
        },
        **hover(words),
    )


def _key(name: str, part: int) -> go.Bar:
    """The legend's entry of a part, in a grey that no axis has."""
    marker = {"color": palette.OTHER.color, "pattern": {"shape": "/" if part else ""}}
    return go.Bar(x=[None], y=[None], name=name, marker=marker, hoverinfo="skip")


def _when(step: int | None) -> str:
    return "bytes sent" if step is None else f"bytes sent in step {step}"
