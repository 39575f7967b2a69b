"""What one rank held over time, stacked by kind, and below it what the rank did then.

    MB |      __      activations
       |  ___|  |___  gradients
       | |__________| parameters
         |fwd| bwd |upd|

It draws `trace.memory` of any Trace, whatever its kinds are called; those of `Storages` come first,
in one order, from the floor up. Each change is a step; of many the highest in each interval.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.clocks import clock_of, span_times
from dlviz.analysis.columns import joined
from dlviz.analysis.memory import counts_microbatches, held_by_use, window
from dlviz.trace import Trace
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette
from dlviz.viz.charts.figure import WIDE, Figure, bar_series, lay_out
from dlviz.viz.words import text

INNER = 340.0  # pixels of the axes
CHANGES = 2000  # drawn at most
PHASES = ("phase", "forward", "backward", "backward_input", "backward_weight", "update")
BAND = 0.08  # of the peak: the height of a band of spans


def memory_by_kind(
    trace: Trace, *, rank: int = 0, theme: str = "auto", title: str | None = None
) -> Figure:
    """Draw what `rank` held over time, stacked by kind, in bytes (of a simulated schedule in
    microbatches), above its phases, forwards, backwards and updates.

    Raises ValueError for a rank that the Trace lacks, and for an unknown theme.
    """
    if rank not in trace.ranks:
        raise ValueError(f"rank={rank!r} is not in this Trace: it has {text.ranks(trace.ranks)}.")
    colors, clock, (low, high) = palette.colors(theme), clock_of(trace), window(trace)
    time, levels = held_by_use(trace, rank, CHANGES)
    total = sum(levels.values(), np.zeros(len(time), np.int64))
    peak = int(total.max(initial=0))
    counts = counts_microbatches(trace)
    (unit, size), (axis, per) = text.unit(high - low), text.byte_unit(peak)
    if counts:
        axis, per = "microbatches", 1.0
    at = np.concatenate([time[:1], time, [high]]) / size if len(time) else np.zeros(0)
    figure = Figure()
    for name, style in palette.uses(levels).items():
        level = np.concatenate([[0], levels[name], levels[name][-1:]]) / per
        figure.add_trace(_area(name, style, at, level, f"{axis} from %{{x:,.3f}} {unit}"))
    top = max(peak, 1) / per
    bands = _bands(trace, rank, clock, (low, high), unit, size, top)
    figure.add_traces(bands)
    if not peak:
        note = {"showarrow": False, "font": {"color": colors["faint"], "size": 12}}
        figure.add_annotation(text=f"no memory of rank {rank} was recorded", **note)
    else:
        amount = f"{peak} microbatches" if counts else text.nbytes(peak)
        line = {"color": colors["faint"], "width": 1, "dash": "dot"}
        figure.add_hline(y=top, line=line, layer="below", annotation={
            "text": f"peak {amount}", "font": {"size": 11}, "showarrow": False, "yshift": 8,
        })  # fmt: skip
    room = (high - low) * 0.01
    lay_out(
        figure,
        text.heading(title or f"What rank {rank} holds", text.subtitle(trace, clock)),
        text.details(trace, clock),
        theme,
        inner=INNER,
        below=118,
        bargap=0,
        barmode="overlay",
        uniformtext={"minsize": 8, "mode": "hide"},
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        xaxis={
            "title": f"{text.TIMES[clock]} since the run's start ({unit})",
            "range": [(low - room) / size, (high + room) / size],
        },
        yaxis={
            "title": f"held ({axis})",
            "range": [-BAND * top * (0.5 + 1.4 * _rows(bands)), 1.12 * top],
            "tickvals": _ticks(top),
        },
    )
    return figure


def _area(name: str, style: palette.Style, x: np.ndarray, y: np.ndarray, words: str) -> go.Scatter:
    """One kind, on top of those before it."""
    name = text.cut(name, 30)
    pattern = {"shape": style.pattern, "fgcolor": style.line, "bgcolor": style.color}
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        mode="lines",
        stackgroup="held",
        line={"shape": "hv", "color": style.edge, "width": 0.7},
        fillcolor=style.color,
        fillpattern={**pattern, "size": 7, "solidity": 0.16} if style.pattern else None,
        hovertemplate=f"<b>{name}</b><br>%{{y:,.4~g}} {words}<extra></extra>",
        hoveron="points",
    )


def _bands(
    trace: Trace,
    rank: int,
    clock: str,
    ends: tuple[float, float],
    unit: str,
    size: float,
    top: float,
) -> list[go.Bar]:
    """The rank's spans as bars below the axis: its phases, and below these what it computed."""
    spans, (start, end) = trace.spans, span_times(trace, clock)
    mine = (spans.rank == rank) & np.isfinite(start) & np.isfinite(end)
    there = [kind for kind in PHASES if (mine & (spans.kind == kind)).any()]
    least = (ends[1] - ends[0]) / WIDE
    series = []
    for kind in there:
        own = np.flatnonzero(mine & (spans.kind == kind))
        own = own[np.argsort(start[own], kind="stable")]
        phase = kind == "phase"
        first, ended = joined(start[own], end[own], -TOLERANCE if phase else least)
        begun = start[own][first]
        names = [text.cut(name, 20) for name in spans.name[own][first].tolist()] if phase else None
        texts = [
            f"<b>{name}</b><br>{text.seconds(until - since)}, from {text.moment(since, unit, size)}"
            for name, since, until in zip(
                names or len(begun) * [text.kind(kind)], begun.tolist(), ended.tolist(), strict=True
            )
        ]
        below = 1.4 * ("phase" in there and not phase)
        down = np.full(len(begun), -BAND * top * (1 + below)), np.full(len(begun), BAND * top)
        times = begun / size, (ended - begun) / size
        style = palette.style(kind)
        series.append(bar_series(style, text.kind(kind), kind, times, down, names, texts))
    return series


def _rows(bands: list[go.Bar]) -> int:
    """How many bands there are: the phases', and that of what was computed."""
    phases = sum(series.legendgroup == "phase" for series in bands)
    return phases + (len(bands) > phases)


def _ticks(top: float) -> list[float]:
    """Round values from 0 to the top, about five."""
    step = 10 ** np.floor(np.log10(top / 4))
    step *= next(times for times in (1, 2, 5, 10) if top / (step * times) <= 5)
    return np.arange(0, top * 1.001, step).tolist()
