"""What every rank did and when: a row per rank and lane, a bar per span, an arrow per message.

    all ranks       |step 0                                    |
    rank 0          |forward   |backward        |wait    |update|
    rank 0 · comm         |collective   | |collective    |
    rank 1          |forward   |backward        ...

For a script, and a notebook without widgets: `widgets.Timeline` shows more. `gantt` decides what is
drawn and where. One series per kind, not per span, keeps a figure of 16,384 spans under a second.
Times are seconds in the Trace and s, ms or µs on the axis, whichever reads best.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.clocks import clock_of, message_times
from dlviz.viz import palette
from dlviz.viz.charts.figure import (
    ROUND,
    WIDE,
    Figure,
    bar_series,
    label_width,
    lay_out,
    message_key,
    named_rows,
)
from dlviz.viz.gantt.arrows import ARROWS, Arrows, arrows_of
from dlviz.viz.gantt.bars import Bars, bars_of, rows_of, silent
from dlviz.viz.gantt.failure import StuckWait, stuck_waits
from dlviz.viz.gantt.layout import TALLEST, Plan
from dlviz.viz.gantt.lost_ranks import Loss, losses
from dlviz.viz.gantt.pipeline import CriticalPath, bubbles, critical_of, outlines
from dlviz.viz.gantt.visible import shown
from dlviz.viz.scene import ops
from dlviz.viz.words import text
from dlviz.viz.words.hosts import message_words, whereabouts
from dlviz.viz.words.labels import complete, forms_of, hover, hovers_of, short_forms

if TYPE_CHECKING:
    from dlviz.trace import Trace

LABELLED = 2000  # bars: with more, a label is sent only where it fits without zooming
BELOW, EDGE = 100, 4  # pixels: the axis and the legend; over and under the rows
ROOM, LINE = TALLEST - BELOW - 100, 18  # pixels: of the rows, about; a line with a host's name
MOST = 5000  # messages: with more, none is drawn


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

    `step` draws one step of the program, with the messages that its spans carry. `messages=None`
    leaves out arrows that would cover labels; more than 150 show after a click on the legend.
    `clock` chooses the device's or the wall's columns (by default those the Trace has). At most the
    longest `max_spans` spans are drawn; the subtitle says if some are left out. A receive begins as
    a wait until its message is moved, a backend's collective until all have entered. Hover on a
    wait says whom it waited for and what that rank was doing, in whichever step. In a pipeline,
    each further stage of a rank is a lighter shade, and idle time a hatched bubble that says what
    ended it. `critical` outlines the critical path of what is drawn. Ranks of a host, or of a rack,
    stand together under its name; a message between hosts that seems to arrive before it was sent,
    within the bound of their clocks, arrives immediately. Raises ValueError where the Trace has no
    such clock or step.
    """
    clock = clock_of(trace, clock)
    seen = shown(trace, clock, step, max_spans, messages is not False)
    plan, drawn = seen.plan.headed(ROOM, LINE), seen.drawn
    path = critical_of(trace, step, clock) if critical else None
    lines = [text.subtitle(trace, clock), *seen.lines, *seen.hosts]
    lines += path.lines if path else []
    bars = _bars(trace, plan, drawn, path)
    words = partial(_words, bars, plan) if messages is None else None
    arrows, omitted = arrows_of(trace, plan, seen.arrows).fitting(MOST, "draw a step", words)
    lines += [*omitted, *([", ".join(short_forms(trace)) + "."] if short_forms(trace) else [])]
    series: list[Any] = [*_bubbles(trace, plan, seen.spans), *bars]
    if path is not None:
        series += _outlines(path.among(drawn), plan, theme)
    series += _strip_names(trace, plan)
    series += _arrows(trace, plan, arrows, theme)
    series += _lost(losses(trace, plan, step), plan)
    figure = Figure(series + _cycle(stuck_waits(trace, plan), plan))
    heading = text.heading(title or "Timeline", "<br>".join(lines))
    layout = _layout(plan, heading["margin"]["t"])
    lay_out(figure, heading, text.details(trace, clock), theme, below=BELOW, **layout)

    annotation = {"showarrow": False, "font": {"color": palette.colors(theme)["faint"], "size": 12}}
    for rank, label in silent(trace).items():
        y = plan.y[rank, ""]
        figure.add_annotation(text=label, x=0.01, xref="paper", xanchor="left", y=y, **annotation)
    for own in plan.lines:
        figure.add_hline(own.y, line={"color": palette.colors(theme)["grid"], "width": 1.5})
    if not plan.rows:
        figure.add_annotation(text="nothing was recorded", **annotation)
    return figure


def _bars(trace: Trace, plan: Plan, drawn: np.ndarray, path: CriticalPath | None) -> list[go.Bar]:
    """One horizontal bar series for each look of the spans `drawn`."""
    heads = np.array([span for span, _, _ in plan.heads()], np.int64)  # never left out
    hovers = hovers_of(trace, np.union1d(drawn, heads), plan.clock, plan.unit, plan.size)
    on = {*path.rows.tolist()} if path else ()
    for span in hovers if path else ():
        hovers[span] += f"<br>on the critical path: {'yes' if span in on else 'no'}"
    for span, first, last in plan.heads():
        when = [text.moment(at, plan.unit, plan.size) for at in (first, last)]
        hovers[span] = f"{hovers[span]}<br>on all ranks: from {when[0]} to {when[1]}"
    many = len(drawn) > LABELLED
    exact = np.float32 if many else float
    every, series = bars_of(trace, plan, drawn), []
    for own, words in zip(every, _labels(forms_of(trace), every, plan, many), strict=True):
        top, bottom = plan.top[own.rows], plan.bottom[own.rows]
        bar = bar_series(
            own.style,
            own.name,
            own.kind,
            (own.begin / plan.size, (own.finish - own.begin) / plan.size),
            (((top + bottom) / 2).astype(exact), bottom - top),
            words,
            [hovers[span] for span in own.rows.tolist()],
        )
        bar.showlegend = own.listed
        if own.open.any():  # a bar without an end has no border either
            bar.update(marker_line_width=np.where(own.open, 0, 0.6))
        series.append(bar)
    return series


def _labels(
    forms: list[tuple[str, ...]], every: list[Bars], plan: Plan, many: bool
) -> list[list[str]]:
    """The longest form of each label that fits its bar, else the shortest, which plotly hides until
    there is room; with `many` spans, only what fits."""
    series, words, fit = [], [], []
    for own in every:
        labelled = own.labelled & (plan.top[own.rows] >= 0)
        pixels = np.where(labelled, (own.finish - own.begin) / (plan.high - plan.low) * WIDE, 0)
        for row, wide, has_label in zip(
            own.rows.tolist(), pixels.tolist(), labelled.tolist(), strict=True
        ):
            word = next((form for form in forms[row] if label_width(form) <= wide), forms[row][-1])
            series.append((plan.top[row], own.kind))
            words.append(text.clean(word) if has_label else "")
            fit.append(label_width(word) <= wide or not (many or word.isdigit()))
    found = iter(complete(series, words, fit))
    return [[next(found) for _ in own.rows] for own in every]


def _strip_names(trace: Trace, plan: Plan) -> list[go.Scatter]:
    """The names of what is shown once for all ranks, where they fit without zooming: plotly hides
    the label of a bar that low."""
    forms, pixel = forms_of(trace), (plan.high - plan.low) / WIDE
    x, y, names = [], [], []
    for span, first, last in plan.heads():
        wide = (last - first) / pixel
        name = next((form for form in forms[span] if label_width(form) <= wide), "")
        if name:
            x.append((first + last) / 2 / plan.size)
            y.append((plan.top[span] + plan.bottom[span]) / 2)
            names.append(text.clean(name))
    font = {"size": 10, "color": palette.style("phase").ink}
    look: dict[str, Any] = {"hoverinfo": "skip", "showlegend": False, "textfont": font}
    return [go.Scatter(x=x, y=y, text=names, mode="text", **look)] if names else []


def _bubbles(trace: Trace, plan: Plan, spans: np.ndarray) -> list[go.Bar]:
    """A pipeline's idle time as hatched bars, if it has any."""
    found = bubbles(trace, plan, spans, WIDE)
    if found is None or not len(found.start):
        return []
    at = [*zip(found.rank.tolist(), found.lane.tolist(), strict=True)]
    edges = np.array([plan.rows[row] for row in at])
    where = whereabouts(trace)
    texts = [
        f"<b>idle</b><br>{text.clean(text.row(rank, lane) + where.get(rank, ''))}: "
        f"{text.seconds(length)}, from {text.moment(start, plan.unit, plan.size)}<br>"
        f"{text.wrap(why, 76)}"
        for (rank, lane), length, start, why in zip(
            at, (found.end - found.start).tolist(), found.start.tolist(), found.why, strict=True
        )
    ]
    name = "idle time" if (trace.spans.kind[spans] == "idle").any() else "idle"
    times = found.start / plan.size, (found.end - found.start) / plan.size
    down = edges.mean(axis=1), edges[:, 1] - edges[:, 0]
    return [bar_series(palette.style("idle"), name, name, times, down, None, texts)]


def _outlines(path: CriticalPath, plan: Plan, theme: str) -> list[go.Scatter]:
    """The critical path: a bold outline around its spans, and a line from each to the next."""
    if not len(path.rows):
        return []
    parts = []
    for corners in outlines(path, plan):
        gap = np.full((len(corners), 1, 2), np.nan)
        parts.append(np.concatenate([corners, gap], axis=1).reshape(-1, 2))
    x, y = np.concatenate(parts).T
    colors = palette.colors(theme)
    line = {"x": x / plan.size, "y": y, "mode": "lines", "hoverinfo": "skip"}
    line["legendgroup"] = "critical path"
    halo = {"line": {"color": colors["paper"], "width": 5}, "opacity": 0.8, "showlegend": False}
    bold = {"line": {"color": colors["ink"], "width": 2.6}, "name": "critical path"}
    return [go.Scatter(**line, **halo), go.Scatter(**line, **bold)]


def _arrows(trace: Trace, plan: Plan, arrows: Arrows, theme: str) -> list[go.Scatter]:
    """The messages as one line series, and those never received as another, with crosses.

    A message has four points: its start, its middle (to hover on), its head and a gap. Under each
    series lies a halo, so that lines show on bars of their own colour.
    """
    colors, texts = palette.colors(theme), [*_hover_texts(trace, plan)] if len(arrows) else []
    series = []
    for name, chosen, symbol in (
        ("message", arrows.got, "arrow"),
        ("never received", ~arrows.got, "x"),
    ):
        some = arrows.only(chosen)
        if not len(some):
            continue
        many = len(some) > ARROWS
        gap = np.full_like(some.tails, np.nan)
        points = [some.tails, (some.tails + some.heads) / 2, some.heads, gap]
        x, y = np.stack(points, axis=1).reshape(-1, 2).T
        group = {"legendgroup": name, "visible": "legendonly" if many else True}
        line = {"x": x / plan.size, "y": y, **group}
        halo = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "opacity": 0.7}
        series.append(go.Scatter(**line, **halo, line={"color": colors["paper"], "width": 3.2}))
        marker = {"size": np.tile([0, 0, 9, 0], len(some)), "color": colors["ink"], "opacity": 1}
        series.append(
            go.Scatter(
                **line,
                name=name,
                showlegend=False,
                mode="lines+markers",
                line={"color": colors["ink"], "width": 1.1},
                marker={**marker, "symbol": symbol, "angleref": "previous"},
                **hover([words for row in some.rows for words in (*[texts[row]] * 3, "")]),
            )
        )
        listed = f"{name} ({len(some):,}: click)" if many else name
        series.append(message_key(listed, symbol, colors["ink"], **group))
    return series


def _hover_texts(trace: Trace, plan: Plan) -> Iterator[str]:
    """Each message in words, for hover."""
    sent, received = message_times(trace, plan.clock)
    axis = plan.unit, plan.size
    known = message_words(trace, plan.clock)
    columns = trace.messages.rows(), ops(trace), sent.tolist(), received.tolist(), known
    for row, op, left, got, sure in zip(*columns, strict=True):
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
        yield "<br>".join([*lines, *filter(None, [sure])])


def _cycle(waits: list[StuckWait], plan: Plan) -> list[go.Scatter]:
    """Who waits for whom for ever: an arrow from row to row at the right edge."""
    if not waits:
        return []
    middles = [*plan.y.values()]
    y = np.array([(middles[own.tail], middles[own.head]) for own in waits])
    gap = np.full(len(waits), np.nan)
    at = plan.high - (plan.high - plan.low) * 0.02 * (1 + np.arange(len(waits)))
    head = {"symbol": "arrow", "size": np.tile([0, 12, 0], len(waits)), "angleref": "previous"}
    return [
        go.Scatter(
            name="waits for ever",
            x=np.stack([at, at, gap], axis=1).ravel() / plan.size,
            y=np.stack([*y.T, gap], axis=1).ravel(),
            mode="lines+markers",
            line={"color": palette.VERMILION, "width": 2.5},
            marker={"color": palette.VERMILION, "opacity": 1, **head},
            **hover([words for own in waits for words in (own.sentence, own.sentence, "")]),
        )
    ]


def _lost(found: list[Loss], plan: Plan) -> list[go.Scatter]:
    """When ranks were lost: a line across the rows of each, and a cross."""
    if not found:
        return []
    y = np.array([(own.top, (own.top + own.bottom) / 2, own.bottom, np.nan) for own in found])
    marker = {"symbol": "x", "size": np.tile([0, 10, 0, 0], len(found)), "opacity": 1}
    return [
        go.Scatter(
            name="rank lost",
            x=np.repeat([own.at for own in found], 4) / plan.size,
            y=y.ravel(),
            mode="lines+markers",
            line={"color": palette.VERMILION, "width": 2.5},
            marker={"color": palette.VERMILION, **marker},
            **hover([words for own in found for words in (*[own.sentence] * 3, "")]),
        )
    ]


def _words(bars: list[go.Bar], plan: Plan) -> np.ndarray:
    """The labels that fit into their bars: left and right (s) and height, (labels, 3)."""
    pixel = (plan.high - plan.low) / WIDE
    found = [np.zeros((0, 3))]
    for series in bars:
        base, long = (np.array(column, float) * plan.size for column in (series.base, series.x))
        wide = [label_width(label) - ROUND for label in np.array(series.text)]
        half = np.array(wide) / 2 * pixel
        fits = (half > 0) & (2 * half <= long)
        middle = base + long / 2
        y = np.array(series.y, float)
        found.append(np.stack([middle - half, middle + half, y], axis=1)[fits])
    return np.concatenate(found)


def _layout(plan: Plan, top: float) -> dict[str, Any]:
    """Height and axes of a figure whose heading is `top` pixels high."""
    scale = plan.scale(TALLEST - top - BELOW - 2 * EDGE)
    room = (plan.high - plan.low) * 0.01
    over = {own.y for own in plan.lines}
    names = {
        y: f"<b>{text.clean(name)}</b>" if y in over else text.clean(name)
        for y, name in rows_of(plan).items()
    }
    return {
        "inner": 2 * EDGE + (plan.above + plan.height) * scale,
        "bargap": 0,
        "barmode": "overlay",
        "uniformtext": {"minsize": 8, "mode": "hide"},
        "legend": palette.LEGEND_BELOW,
        "xaxis": {
            "title": f"{text.TIMES[plan.clock]} since the run's start ({plan.unit})",
            "range": [(plan.low - room) / plan.size, (plan.high + room) / plan.size],
        },
        "yaxis": named_rows(names, plan.height + EDGE / scale, -plan.above - EDGE / scale),
    }
