"""A placement: the graph of operators in the colours of its devices, beside its timeline.

    (0)-->(1)-->(3)       device 0 | 0 |  1  |  3  |
      \\->(2)--/          device 1     |2|            below: what its port sends and receives

A broken arrow is a message. What is bold is on the critical path. A click in the legend hides a
device in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.path import path_with_messages
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, label_width, lay_out, named_rows
from dlviz.viz.operator_graph import layout
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

ROW, LEAST, HIGHEST = 54, 190, 460  # pixels: a device, all of them
SPLIT = 0.44  # of the width: the graph
WIDE = 340  # pixels: the assumed width of the timeline
LANES = {"compute": (0.0, 0.52), "send": (0.36, 0.16), "recv": (0.54, 0.16)}  # middle, height
SIZE, SMALLEST = 26, 9  # pixels of a node


def placement(
    trace: Trace,
    parents: Sequence[Sequence[int]],
    *,
    theme: str = "auto",
    title: str = "Which device runs what",
) -> Figure:
    """Draw a placement as `dlviz.sim.play` plays it: `trace`, and the `parents` of each group.

    Raises ValueError unless the Trace has one forward span of each group.
    """
    on = devices_of(trace, len(parents))
    places, path = layout(parents), path_with_messages(trace)
    spans, bold = trace.spans, np.zeros(len(trace.spans), dtype=bool)
    bold[path] = True
    figure = Figure(_arrows(places, parents, on))
    figure.add_traces(_nodes(trace, places, parents, on, bold, theme))
    figure.add_traces(_bars(trace, bold))
    for row in path:
        middle, height = LANES[str(spans.lane[row])]
        y = int(spans.rank[row]) + middle
        figure.add_shape(
            type="rect", xref="x2", yref="y2", x0=spans.start[row], x1=spans.end[row],
            y0=y - height / 2, y1=y + height / 2, fillcolor="rgba(0, 0, 0, 0)",
            line={"width": 3, "color": palette.colors(theme)["ink"]},
        )  # fmt: skip
    many = trace.meta["ranks"]
    rows = [place[1] for place in places]
    room = (max(rows) - min(rows)) / 2 + 0.8
    end = max(spans.end.tolist(), default=0.0)
    summary = f"{text.seconds(end)} on {many} devices, {len(trace.messages)} messages"
    none = {"showgrid": False, "showticklabels": False, "ticks": "", "fixedrange": True}
    lay_out(
        figure,
        text.heading(title, f"{summary}. Broken arrow: a message; bold: the critical path."),
        [],
        theme,
        inner=min(max(LEAST, ROW * many, 34 * 2 * room), HIGHEST),
        below=76,
        barmode="overlay",
        legend=palette.LEGEND_BELOW,
        xaxis={**none, "domain": [0, SPLIT], "range": [-0.6, max(c for c, _ in places) + 0.6]},
        yaxis={**none, "range": [room, -room]},
        xaxis2={"domain": [SPLIT + 0.12, 1], "anchor": "y2", "title": "seconds"},
        yaxis2={
            **named_rows({device: f"device {device}" for device in range(many)}, many - 0.3),
            "anchor": "x2",
        },
    )
    return figure


def devices_of(trace: Trace, groups: int) -> list[int]:
    """The device of each group. Raises ValueError unless each was computed once."""
    spans = trace.spans
    at = np.flatnonzero((spans.lane == "compute") & (spans.kind == "forward"))
    found = dict(zip(spans.stage[at].tolist(), spans.rank[at].tolist(), strict=True))
    if sorted(found) != list(range(groups)) or len(at) != groups:
        raise ValueError(
            f"the Trace has forward spans of {len(at)} groups and parents are given for {groups}: "
            "give the parents of the graph that was played."
        )
    return [found[group] for group in range(groups)]


def _arrows(
    places: list[tuple[float, float]], parents: Sequence[Sequence[int]], on: list[int]
) -> list[go.Scatter]:
    """From parent to child: within a device, and between two."""
    found = []
    for between, name, dash in ((False, "on one device", "solid"), (True, "a message", "dash")):
        ends = [
            (places[parent], places[child])
            for child, own in enumerate(parents)
            for parent in own
            if (on[parent] != on[child]) is between
        ]
        found.append(
            go.Scatter(
                x=[x for (a, _), (b, _) in ends for x in (a, a + 0.78 * (b - a), b, None)],
                y=[y for (_, a), (_, b) in ends for y in (a, a + 0.78 * (b - a), b, None)],
                name=name,
                mode="lines+markers",
                line={"dash": dash, "width": 1.4, "color": palette.OTHER.color},
                marker={"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0, 0] * len(ends),
                        "color": palette.OTHER.color},
                hoverinfo="skip",
                showlegend=False,  # the subtitle says it
            )
        )  # fmt: skip
    return found


def _nodes(
    trace: Trace,
    places: list[tuple[float, float]],
    parents: Sequence[Sequence[int]],
    on: list[int],
    bold: np.ndarray,
    theme: str,
) -> list[go.Scatter]:
    """A series a device."""
    spans = trace.spans
    at = np.flatnonzero((spans.lane == "compute") & (spans.kind == "forward"))
    row_of = dict(zip(spans.stage[at].tolist(), at.tolist(), strict=True))
    size = max(SMALLEST, min(SIZE, 200 / (1 + max(column for column, _ in places))))
    ink, found = palette.colors(theme)["ink"], []
    for device in sorted(set(on)):
        own = [group for group, there in enumerate(on) if there == device]
        style = palette.rank_style(device)
        words = [
            f"<b>group {group}, device {device}</b><br>"
            f"{text.seconds(spans.end[row_of[group]] - spans.start[row_of[group]])}<br>"
            f"needs {', '.join(map(str, parents[group])) or 'nothing'}"
            for group in own
        ]
        found.append(
            go.Scatter(
                x=[places[group][0] for group in own],
                y=[places[group][1] for group in own],
                name=f"device {device}",
                legendgroup=f"device {device}",
                mode="markers+text",
                text=[str(group) for group in own],
                textfont={"color": style.ink, "size": 11},
                marker={
                    "color": style.color, "size": size, "opacity": 1,
                    "line": {
                        "color": [ink if bold[row_of[group]] else style.edge for group in own],
                        "width": [3 if bold[row_of[group]] else 1 for group in own],
                    },
                },
                **hover(words),
            )
        )  # fmt: skip
    return found


def _bars(trace: Trace, bold: np.ndarray) -> list[go.Bar]:
    """What each device computes, and what its port sends and receives, over time."""
    spans, found = trace.spans, []
    end = max(spans.end.tolist(), default=1.0) or 1.0
    for lane, (middle, height) in LANES.items():
        for device in range(trace.meta["ranks"]):
            at = np.flatnonzero((spans.lane == lane) & (spans.rank == device))
            if not len(at):
                continue
            computes = lane == "compute"
            lasted = spans.end[at] - spans.start[at]
            labels = [
                str(group) if computes and label_width(str(group)) <= wide / end * WIDE else ""
                for group, wide in zip(spans.stage[at].tolist(), lasted.tolist(), strict=True)
            ]
            words = [
                f"<b>{spans.name[row]}</b><br>{text.row(device, lane)}<br>"
                f"{text.seconds(spans.start[row])} to {text.seconds(spans.end[row])}"
                + ("<br>on the critical path" if bold[row] else "")
                for row in at.tolist()
            ]
            series = bar_series(
                palette.rank_style(device) if computes else palette.style(lane),
                {"compute": f"device {device}", "send": "sends", "recv": "receives"}[lane],
                f"device {device}" if computes else lane,
                (spans.start[at], lasted),
                (np.full(len(at), device + middle), np.full(len(at), height)),
                labels,
                words,
            )
            first = all(one.legendgroup != lane for one in found)
            found.append(series.update(xaxis="x2", yaxis="y2", showlegend=not computes and first))
    return found
