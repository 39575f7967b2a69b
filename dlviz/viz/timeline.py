"""What every rank did and when: a row per rank and lane, a bar per span, an arrow per message.

    rank 0          |forward   |backward        |wait    |update|
    rank 0 · comm         |collective   | |collective    |
    rank 1          |forward   |backward        ...

A span that holds others is a strip along the top of its row; what runs inside it hangs below the
strip, so that no bar hides another and every one can be pointed at. One series per kind, not per
span, keeps a figure of 16,384 spans under a second.

Times are seconds in the Trace and s, ms or µs on the axis, whichever reads best.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette, text
from dlviz.viz.clocks import clock_of, message_times
from dlviz.viz.labels import MANY, hover, hovers_of, labels_of
from dlviz.viz.layout import BAR, Plan, ends, shown
from dlviz.viz.pipeline import Path, bubbles, chunks_of, critical_of, outlines, shades

if TYPE_CHECKING:
    from dlviz.trace import Trace

LABELLED = 2000  # spans: with more of them a label is sent only where it fits at first sight
WIDE = 900  # pixels: how wide a figure is taken to be when labels are chosen
ARROWS = 150  # messages: with more of them the arrows wait for a click on the legend
MOST = 5000  # messages: with more of them there are none


def timeline(
    trace: Trace,
    *,
    step: int | None = None,
    clock: str | None = None,
    messages: bool = True,
    critical: bool = False,
    theme: str = "light",
    title: str | None = None,
    max_spans: int = 20_000,
) -> go.Figure:
    """Draw the spans of every rank and lane over time, and an arrow for each message.

    `step` draws one step of the program, with the messages that its spans carry. `clock` chooses
    the device's or the wall's columns (by default those the Trace bears). Of more than `max_spans`
    spans the longest are drawn, and the subtitle says so. Hover on a wait says whom it waited for
    and what that one was doing, in whichever step. Of a pipeline each further stage of a rank is a
    lighter shade, and idle time a hatched bubble that says what ended it. `critical` outlines the
    critical path of what is drawn. Raises ValueError where the Trace has no such clock or step.
    """
    clock = clock_of(trace, clock)
    plan, drawn, arrows, cut = shown(trace, clock, step, max_spans, messages)
    path = critical_of(trace, step, clock) if critical else None
    lines = [text.subtitle(trace, clock), *cut, *([path.told] if path else [])]
    if len(arrows) > MOST:
        lines.append(
            f"{len(arrows):,} messages are too many for arrows: draw a step, or some ranks."
        )
        arrows = arrows[:0]
    subtitle = "<br>".join(lines)
    series: list[Any] = [*_bubbles(trace, plan, drawn), *_bars(trace, plan, drawn, path)]
    if path is not None:
        series += _outlines(path.rows[np.isin(path.rows, drawn)], plan, theme)
    figure = go.Figure(series + _arrows(trace, plan, arrows, theme))
    _lay_out(figure, plan, text.heading(title or "Timeline", subtitle), theme)
    text.inform(figure, text.details(trace, clock))

    note = {"showarrow": False, "font": {"color": palette.colors(theme)["faint"], "size": 12}}
    for rank in sorted(set(trace.ranks) - set(trace.spans.rank.tolist())):
        place = {"x": 0.01, "xref": "paper", "xanchor": "left", "y": plan.y[rank, ""]}
        figure.add_annotation(text=f"rank {rank} recorded nothing", **place, **note)
    if not plan.y:
        figure.add_annotation(text="nothing was recorded", **note)
    return figure


def _bars(trace: Trace, plan: Plan, drawn: np.ndarray, path: Path | None) -> list[go.Bar]:
    """One horizontal bar series for each kind, and each chunk of it, among the spans `drawn`."""
    labels = np.array([text.clean(label) for label in labels_of(trace)], object)
    hovers = hovers_of(trace, drawn, plan.clock, plan.unit, plan.size)
    on = {*path.rows.tolist()} if path else ()
    for span in drawn.tolist() if path else ():
        hovers[span] += f"<br>on the critical path: {'yes' if span in on else 'no'}"
    length = plan.end - plan.start
    middle = ((plan.top + plan.bottom) / 2).astype(np.float32 if len(drawn) > LABELLED else float)
    pixels = length / (plan.high - plan.low) * WIDE
    if len(drawn) > LABELLED:
        labels[pixels < 12 + 6.5 * np.array([len(label) for label in labels])] = ""
    kinds = trace.spans.kind[drawn]
    known = [kind for kind in palette.KINDS if (kinds == kind).any()]
    chunk, chunks = chunks_of(trace)
    series = []
    for kind in known + sorted(set(kinds.tolist()) - set(known)):
        rows = drawn[kinds == kind]
        for name, style, here, listed in shades(palette.style(kind), kind, rows, chunk, chunks):
            series.append(
                go.Bar(
                    name=text.cut(name),
                    legendgroup=text.cut(kind),
                    showlegend=listed,
                    orientation="h",
                    base=plan.start[here] / plan.size,
                    x=length[here] / plan.size,
                    y=middle[here],
                    width=_heights((plan.bottom - plan.top)[here]),
                    marker=style.marker(),
                    text=labels[here],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont={"color": style.ink, "size": 11},
                    **hover([hovers[span] for span in here.tolist()]),
                )
            )
    return series


def _heights(values: np.ndarray) -> Any:
    """The heights of bars; of many that are all alike one."""
    return values[0] if len(values) > MANY and np.ptp(values) < 1e-9 else values


def _bubbles(trace: Trace, plan: Plan, drawn: np.ndarray) -> list[go.Bar]:
    """A pipeline's idle time as hatched bars, if it has any."""
    found = bubbles(trace, plan, drawn, WIDE)
    if found is None or not len(found.start):
        return []
    lasted = found.end - found.start
    y = [plan.y[at] for at in zip(found.rank.tolist(), found.lane.tolist(), strict=True)]
    told = [
        f"<b>idle</b><br>{text.clean(text.row(rank, lane))}: {text.seconds(length)}, from "
        f"{text.moment(start, plan.unit, plan.size)}<br>{text.wrap(why, 76)}"
        for rank, lane, length, start, why in zip(
            found.rank.tolist(), found.lane.tolist(), lasted.tolist(), found.start.tolist(),
            found.why, strict=True,
        )
    ]  # fmt: skip
    name = "idle time" if (trace.spans.kind[drawn] == "idle").any() else "idle"
    return [
        go.Bar(
            name=name,
            legendgroup=name,
            orientation="h",
            base=found.start / plan.size,
            x=lasted / plan.size,
            y=y,
            width=BAR,
            opacity=0.55,
            marker=palette.style("idle").marker(),
            customdata=told,
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]


def _outlines(path: np.ndarray, plan: Plan, theme: str) -> list[go.Scatter]:
    """The critical path: a bold outline around its spans, and a line from each to the next."""
    if not len(path):
        return []
    boxes, lines = outlines(path, plan)
    parts = []
    for corners in (boxes, lines):
        gap = np.full((len(corners), 1, 2), np.nan)
        parts.append(np.concatenate([corners, gap], axis=1).reshape(-1, 2))
    x, y = np.concatenate(parts).T
    colors = palette.colors(theme)
    shared = {
        "x": x / plan.size,
        "y": y,
        "mode": "lines",
        "hoverinfo": "skip",
        "legendgroup": "critical path",
    }
    halo = {"color": colors["paper"], "width": 5}
    line = {"color": colors["ink"], "width": 2.6}
    return [
        go.Scatter(**shared, line=halo, opacity=0.8, showlegend=False),
        go.Scatter(**shared, line=line, name="critical path"),
    ]


def _lay_out(figure: go.Figure, plan: Plan, heading: dict[str, Any], theme: str) -> None:
    lowest = max(plan.y.values(), default=0.0)
    room = (plan.high - plan.low) * 0.01
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 100},
        height=heading["margin"]["t"] + 100 + (lowest + 1.2) * plan.pixels,
        bargap=0,
        barmode="overlay",
        uniformtext={"minsize": 9, "mode": "hide"},
        legend=palette.LEGEND_BELOW,
        xaxis={
            "title": f"{text.TIMES[plan.clock]} since the run's start ({plan.unit})",
            "range": [(plan.low - room) / plan.size, (plan.high + room) / plan.size],
        },
        yaxis={
            "tickvals": list(plan.y.values()),
            "ticktext": [text.clean(text.row(rank, lane)) for rank, lane in plan.y],
            "range": [lowest + 0.6, -0.6],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
            "fixedrange": True,
        },
    )


def _arrows(trace: Trace, plan: Plan, rows: np.ndarray, theme: str) -> list[go.Scatter]:
    """The messages `rows` as one line series, and as another those never received, which end in a
    cross.

    A message has four points: its start, its middle (to hover on), its head and a gap. It goes
    from the span that sent it to the span that received it; one whose other end is not drawn is
    left out. Under each series lies a halo, so that lines show on bars of their own colour.
    """
    if not len(rows):
        return []
    colors = palette.colors(theme)
    sent, received = message_times(trace, plan.clock)
    got = np.isfinite(received)
    landed = np.where(got, received, sent)
    tail, head = ends(trace, plan.y)
    lean = np.sign(head - tail) * BAR / 2
    gap = np.full(len(sent), np.nan)
    x = np.stack([sent, (sent + landed) / 2, landed, gap], axis=1) / plan.size
    y = np.stack([tail + lean, (tail + head) / 2, head - lean, gap], axis=1)
    drawn = np.isin(np.arange(len(sent)), rows) & np.isfinite(tail + head)
    words = np.array([*_told(trace, plan)], object)
    series = []
    for name, chosen, symbol in (
        ("message", drawn & got, "arrow"),
        ("never received", drawn & ~got, "x"),
    ):
        count = int(chosen.sum())
        if not count:
            continue
        many = count > ARROWS
        shared = {
            "x": x[chosen].ravel(),
            "y": y[chosen].ravel(),
            "legendgroup": name,
            "visible": "legendonly" if many else True,
        }
        halo = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "opacity": 0.7}
        series.append(go.Scatter(**shared, **halo, line={"color": colors["paper"], "width": 3.2}))
        series.append(
            go.Scatter(
                **shared,
                name=f"{name} ({count:,}: click)" if many else name,
                mode="lines+markers",
                line={"color": colors["ink"], "width": 1.1},
                marker={
                    "color": colors["ink"],
                    "opacity": 1,
                    "symbol": symbol,
                    "size": np.tile([0, 0, 9, 0], count),
                    "angleref": "previous",
                },
                customdata=[told for word in words[chosen] for told in (word, word, word, "")],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    return series


def _told(trace: Trace, plan: Plan) -> Iterator[str]:
    """Each message in words, for hover."""
    sent, received = message_times(trace, plan.clock)
    axis = plan.unit, plan.size
    for row, left, got in zip(trace.messages.rows(), sent.tolist(), received.tolist(), strict=True):
        lines = [f"<b>message rank {row.src} → rank {row.dst}</b>"]
        if row.nbytes is not None:
            lines.append(text.nbytes(row.nbytes))
        if row.offset is not None:
            lines.append(f"{text.cells(row.offset, row.count)}, {text.clean(text.done(row.op))}")
        lines.append(f"sent at {text.moment(left, *axis)}")
        if plan.clock == "device" and row.arrived is not None:
            lines.append(f"arrived at {text.moment(row.arrived, *axis)}")
        never = not np.isfinite(got)
        lines.append("never received" if never else f"received at {text.moment(got, *axis)}")
        yield "<br>".join(lines)
