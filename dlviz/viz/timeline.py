"""What every rank did and when: a row per rank and lane, a bar per span, an arrow per message.

    all ranks       |step 0                                    |
    rank 0          |forward   |backward        |wait    |update|
    rank 0 · comm         |collective   | |collective    |
    rank 1          |forward   |backward        ...

Where bars lie, `layout` says. One series per kind, not per span, keeps a figure of 16,384 spans
under a second.

Times are seconds in the Trace and s, ms or µs on the axis, whichever reads best.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.clocks import clock_of, message_times
from dlviz.viz import palette, text
from dlviz.viz.failure import Held, held
from dlviz.viz.figure import Figure, message_key
from dlviz.viz.labels import MANY, forms_of, hover, hovers_of, never_ended
from dlviz.viz.layout import TALLEST, Plan, arrow_heights, ends, past_rows, shown
from dlviz.viz.pipeline import Path, bubbles, chunks_of, critical_of, outlines, shades
from dlviz.viz.scene import ops

if TYPE_CHECKING:
    from dlviz.trace import Trace

LABELLED = 2000  # spans: with more of them a label is sent only where it fits at first sight
WIDE = 700  # pixels: how wide the plot is taken to be when labels are chosen
CHARACTER, ROUND = 6.5, 6  # pixels: of a label, and left and right of it
BELOW, EDGE = 100, 4  # pixels: the axis and the legend; over and under the rows
ARROWS = 150  # messages: with more of them the arrows wait for a click on the legend
MOST = 5000  # messages: with more of them there are none


def timeline(
    trace: Trace,
    *,
    step: int | None = None,
    clock: str | None = None,
    messages: bool | None = None,
    critical: bool = False,
    theme: str = "auto",
    title: str | None = None,
    max_spans: int = 20_000,
) -> Figure:
    """Draw the spans of every rank and lane over time, and an arrow for each message.

    `step` draws one step of the program, with the messages that its spans carry; `messages=None`
    leaves arrows that would cover labels to a click on the legend. `clock` chooses
    the device's or the wall's columns (by default those the Trace bears). Of more than `max_spans`
    spans the longest are drawn, and the subtitle says so. Hover on a wait says whom it waited for
    and what that one was doing, in whichever step. Of a pipeline each further stage of a rank is a
    lighter shade, and idle time a hatched bubble that says what ended it. `critical` outlines the
    critical path of what is drawn. Raises ValueError where the Trace has no such clock or step.
    """
    clock = clock_of(trace, clock)
    seen = shown(trace, clock, step, max_spans, messages is not False)
    plan, drawn, arrows = seen.plan, seen.drawn, seen.arrows
    path = critical_of(trace, step, clock) if critical else None
    lines = [text.subtitle(trace, clock), *seen.lines, *(path.lines if path else [])]
    if len(arrows) > MOST:
        lines.append(
            f"{len(arrows):,} messages are too many for arrows: draw a step, or some ranks."
        )
        arrows = arrows[:0]
    subtitle = "<br>".join(lines)
    bars = _bars(trace, plan, drawn, path)
    series: list[Any] = [*_bubbles(trace, plan, seen.spans), *bars]
    if path is not None:
        series += _outlines(path.among(drawn), plan, theme)
    series += _arrows(trace, plan, arrows, theme, _words(bars, plan) if messages is None else None)
    figure = Figure(series + _cycle(held(trace, plan), plan))
    _lay_out(figure, plan, text.heading(title or "Timeline", subtitle), theme)
    text.inform(figure, text.details(trace, clock))

    note = {"showarrow": False, "font": {"color": palette.colors(theme)["faint"], "size": 12}}
    for rank in sorted(set(trace.ranks) - set(trace.spans.rank.tolist())):
        place = {"x": 0.01, "xref": "paper", "xanchor": "left", "y": plan.y[rank, ""]}
        figure.add_annotation(text=f"rank {rank} recorded nothing", **place, **note)
    if not plan.rows:
        figure.add_annotation(text="nothing was recorded", **note)
    return figure


def _bars(trace: Trace, plan: Plan, drawn: np.ndarray, path: Path | None) -> list[go.Bar]:
    """One horizontal bar series for each kind, and each chunk of it, among the spans `drawn`."""
    drawn, begin, finish = plan.bars(drawn)
    length = finish - begin
    labels = _labels(trace, drawn, length / (plan.high - plan.low) * WIDE)
    hovers = hovers_of(trace, drawn, plan.clock, plan.unit, plan.size)
    on = {*path.rows.tolist()} if path else ()
    for span in drawn.tolist() if path else ():
        hovers[span] += f"<br>on the critical path: {'yes' if span in on else 'no'}"
    for span, first, last in plan.heads():
        when = [text.moment(at, plan.unit, plan.size) for at in (first, last)]
        hovers[span] = f"{hovers[span]}<br>on all ranks: from {when[0]} to {when[1]}"
    middle = ((plan.top + plan.bottom) / 2).astype(np.float32 if len(drawn) > LABELLED else float)
    fields, top, bottom = trace.spans.fields, plan.top, plan.bottom
    kinds = trace.spans.kind[drawn]
    known = [kind for kind in palette.KINDS if (kinds == kind).any()]
    chunk, chunks = chunks_of(trace)
    place = np.zeros(len(trace.spans), np.int64)
    place[drawn] = np.arange(len(drawn))
    series = []
    for kind in known + sorted(set(kinds.tolist()) - set(known)):
        rows = drawn[kinds == kind]
        for name, style, here, listed in shades(palette.style(kind), kind, rows, chunk, chunks):
            marker, at = style.marker(), place[here]
            open_ones = [never_ended(own) for own in fields[here].tolist()]
            if any(open_ones):  # they have no end, so no border either
                marker["line"]["width"] = [0 if own else 0.6 for own in open_ones]
            series.append(
                go.Bar(
                    name=text.cut(name),
                    legendgroup=text.cut(kind),
                    showlegend=listed and bool((length[at] > 0).any()),
                    orientation="h",
                    base=begin[at] / plan.size,
                    x=length[at] / plan.size,
                    y=middle[here],
                    width=_heights((bottom - top)[here]),
                    marker=marker,
                    text=labels[at],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont={"color": style.ink, "size": 11},
                    **hover([hovers[span] for span in here.tolist()]),
                )
            )
    return series


def _labels(trace: Trace, drawn: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """The label of each of the spans `drawn`, which are so wide: its longest form that fits, else
    its shortest, which plotly hides until there is room. Of many spans only what fits."""
    forms, labels = forms_of(trace), []
    for row, wide in zip(drawn.tolist(), pixels.tolist(), strict=True):
        fits = (form for form in forms[row] if len(form) * CHARACTER + ROUND <= wide)
        labels.append(text.clean(next(fits, "" if len(drawn) > LABELLED else forms[row][-1])))
    return np.array(labels, object)


def _heights(values: np.ndarray) -> Any:
    """The heights of bars; of many that are all alike one."""
    return values[0] if len(values) > MANY and np.ptp(values) < 1e-9 else values


def _bubbles(trace: Trace, plan: Plan, spans: np.ndarray) -> list[go.Bar]:
    """A pipeline's idle time as hatched bars, if it has any."""
    found = bubbles(trace, plan, spans, WIDE)
    if found is None or not len(found.start):
        return []
    lasted = found.end - found.start
    at = [*zip(found.rank.tolist(), found.lane.tolist(), strict=True)]
    edges = np.array([plan.rows[row] for row in at])
    told = [
        f"<b>idle</b><br>{text.clean(text.row(rank, lane))}: {text.seconds(length)}, from "
        f"{text.moment(start, plan.unit, plan.size)}<br>{text.wrap(why, 76)}"
        for rank, lane, length, start, why in zip(
            found.rank.tolist(), found.lane.tolist(), lasted.tolist(), found.start.tolist(),
            found.why, strict=True,
        )
    ]  # fmt: skip
    name = "idle time" if (trace.spans.kind[spans] == "idle").any() else "idle"
    return [
        go.Bar(
            name=name,
            legendgroup=name,
            orientation="h",
            base=found.start / plan.size,
            x=lasted / plan.size,
            y=edges.mean(axis=1),
            width=edges[:, 1] - edges[:, 0],
            marker=palette.style("idle").marker(),
            customdata=told,
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]


def _outlines(path: Path, plan: Plan, theme: str) -> list[go.Scatter]:
    """The critical path: a bold outline around its spans, and a line from each to the next."""
    if not len(path.rows):
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


def _cycle(waits: list[Held], plan: Plan) -> list[go.Scatter]:
    """Who waits for whom for ever: an arrow from row to row at the right edge."""
    if not waits:
        return []
    middles = [*plan.y.values()]
    y = np.array([(middles[own.tail], middles[own.head]) for own in waits])
    gap = np.full(len(waits), np.nan)
    at = plan.high - (plan.high - plan.low) * 0.02 * (1 + np.arange(len(waits)))
    return [
        go.Scatter(
            name="waits for ever",
            x=np.stack([at, at, gap], axis=1).ravel() / plan.size,
            y=np.stack([*y.T, gap], axis=1).ravel(),
            mode="lines+markers",
            line={"color": palette.VERMILION, "width": 2.5},
            marker={
                "color": palette.VERMILION,
                "opacity": 1,
                "symbol": "arrow",
                "size": np.tile([0, 12, 0], len(waits)),
                "angleref": "previous",
            },
            customdata=[told for own in waits for told in (own.told, own.told, "")],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]


def _lay_out(figure: go.Figure, plan: Plan, heading: dict[str, Any], theme: str) -> None:
    top = heading["margin"]["t"]
    scale = plan.scale(TALLEST - top - BELOW - 2 * EDGE)
    room = (plan.high - plan.low) * 0.01
    names = {at: text.clean(text.row(*at)) for at in plan.rows}
    ticks = dict(zip(plan.y.values(), names.values(), strict=True))
    if plan.shared:
        ticks = {-plan.above / 2: "all ranks", **ticks}
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": BELOW},
        height=top + BELOW + 2 * EDGE + (plan.above + plan.height) * scale,
        bargap=0,
        barmode="overlay",
        uniformtext={"minsize": 8, "mode": "hide"},
        legend=palette.LEGEND_BELOW,
        xaxis={
            "title": f"{text.TIMES[plan.clock]} since the run's start ({plan.unit})",
            "range": [(plan.low - room) / plan.size, (plan.high + room) / plan.size],
        },
        yaxis={
            "tickvals": [*ticks],
            "ticktext": [*ticks.values()],
            "range": [plan.height + EDGE / scale, -plan.above - EDGE / scale],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
            "fixedrange": True,
        },
    )


def _words(bars: list[go.Bar], plan: Plan) -> np.ndarray:
    """Where labels stand that fit into their bars: left, right and height, (labels, 3)."""
    pixel = (plan.high - plan.low) / plan.size / WIDE
    found = [np.zeros((0, 3))]
    for series in bars:
        base, long, y = (np.array(column, float) for column in (series.base, series.x, series.y))
        half = np.array([len(label) * CHARACTER / 2 * pixel for label in np.array(series.text)])
        fits = (half > 0) & (2 * half <= long)
        middle = base + long / 2
        found.append(np.stack([middle - half, middle + half, y], axis=1)[fits])
    return np.concatenate(found)


def _arrows(
    trace: Trace, plan: Plan, rows: np.ndarray, theme: str, words: np.ndarray | None
) -> list[go.Scatter]:
    """The messages `rows` as one line series, and as another those never received, which end in a
    cross. Those that `past_rows` had better leave out, given where the `words` are, wait for a
    click on the legend.

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
    of = ends(trace, plan)
    tail, head = arrow_heights(plan, *of)
    gap = np.full(len(sent), np.nan)
    x = np.stack([sent, (sent + landed) / 2, landed, gap], axis=1) / plan.size
    y = np.stack([tail, (tail + head) / 2, head, gap], axis=1)
    drawn = np.isin(np.arange(len(sent)), rows) & np.isfinite(tail + head)
    waits = np.zeros(len(sent), bool)  # for a click
    if words is not None:
        tails, heads = (np.stack([x[drawn, i], y[drawn, i]], axis=1) for i in (0, 2))
        waits[drawn] = past_rows(of[0][drawn], of[1][drawn], tails, heads, words)
    told = np.array([*_told(trace, plan)], object)
    series = []
    for name, chosen, symbol in (
        ("message", drawn & got & ~waits, "arrow"),
        ("message past other rows", drawn & got & waits, "arrow"),
        ("never received", drawn & ~got, "x"),
    ):
        count = int(chosen.sum())
        if not count:
            continue
        many = count > ARROWS or bool(waits[chosen].any() and symbol == "arrow")
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
                name=name,
                showlegend=False,
                mode="lines+markers",
                line={"color": colors["ink"], "width": 1.1},
                marker={
                    "color": colors["ink"],
                    "opacity": 1,
                    "symbol": symbol,
                    "size": np.tile([0, 0, 9, 0], count),
                    "angleref": "previous",
                },
                customdata=[line for one in told[chosen] for line in (one, one, one, "")],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
        listed = f"{name} ({count:,}: click)" if many else name
        options = {key: shared[key] for key in ("legendgroup", "visible")}
        series.append(message_key(listed, symbol, colors["ink"], **options))
    return series


def _told(trace: Trace, plan: Plan) -> Iterator[str]:
    """Each message in words, for hover."""
    sent, received = message_times(trace, plan.clock)
    axis = plan.unit, plan.size
    columns = trace.messages.rows(), ops(trace), sent.tolist(), received.tolist()
    for row, op, left, got in zip(*columns, strict=True):
        lines = [f"<b>message rank {row.src} → rank {row.dst}</b>"]
        if row.nbytes is not None:
            lines.append(text.nbytes(row.nbytes))
        if row.offset is not None:
            lines.append(f"{text.cells(row.offset, row.count)}, {text.clean(text.done(op))}")
        lines.append(f"sent at {text.moment(left, *axis)}")
        if plan.clock == "device" and row.arrived is not None:
            lines.append(f"arrived at {text.moment(row.arrived, *axis)}")
        never = not np.isfinite(got)
        lines.append("never received" if never else f"received at {text.moment(got, *axis)}")
        yield "<br>".join(lines)
