"""What each rank held over time: a strip for each rank, all to one scale, its peak marked.

    rank 0   __|~~~|__..4.|~~|___     the strip's height is the most that any rank held
    rank 1   ___|~|_____

Several Traces are drawn under each other to one scale, so that their heights compare.
A simulated pipeline counts microbatches (of a stage) whose activations are held, a real run bytes:
the axis says which. It is `trace.memory` that is drawn, and its times are those of the device, or
of the wall where nothing was paced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.clocks import clock_of, shared
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette, text
from dlviz.viz.figure import Figure

if TYPE_CHECKING:
    from dlviz.trace import Trace

STRIP, HEAD = 0.8, 0.8  # height of a full strip where rows are 1 apart, and of a Trace's name
ROW, LEAST, HIGHEST = 46, 18, 430  # pixels: a row at most and at least, all rows
CHANGES = 4000  # of one rank: of more the highest of each stretch of time is drawn


@dataclass(frozen=True)
class Held:
    """What one rank held: `level` (bytes, or microbatches) from each `time` (s) on. `name` is that
    of its Trace, where it has one, `y` the row of its strip."""

    rank: int
    time: np.ndarray
    level: np.ndarray
    name: str = ""
    y: float = 0.0

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))


def memory(
    traces: Trace | Mapping[str, Trace],
    *,
    what: str | None = "activations",
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw how much of `what` each rank held over time, in steps, and the most it ever held.

    `traces` is a Trace, or several by name, which are drawn under each other to one scale. `what`
    is a name in `trace.memory`, or None for all of them together. Raises ValueError for a name that
    a Trace has not, for Traces of which one counts microbatches and another bytes, or one bears
    device time and another the wall's, and for another theme.
    """
    plan = laid_out(traces, what)
    colors, style = palette.colors(theme), palette.style("forward")
    unit, size = text.unit(plan.high - plan.low)
    series = []
    for one in plan.strips:
        time, level = steps(one, plan.high)
        name = f"{text.clean(one.name)}, rank {one.rank}" if one.name else f"rank {one.rank}"
        hover = [
            f"<b>{name}</b><br>{amount(plan.counts, int(n))} from {text.moment(at, unit, size)}"
            for at, n in zip(time.tolist(), level.tolist(), strict=True)
        ]
        floor = np.full(2, one.y + STRIP / 2)
        base = {"x": [plan.low / size, plan.high / size], "y": floor, "showlegend": False}
        line = {"color": colors["grid"], "width": 1}
        series.append(go.Scatter(mode="lines", line=line, hoverinfo="skip", **base))
        series.append(
            go.Scatter(
                x=time / size,
                y=height(level, one.y, plan.most),
                mode="lines",
                name=text.cut(what or "memory"),
                showlegend=False,
                line={"color": style.color, "width": 1.6},
                fill="tonexty",
                fillcolor=style.color + "99",
                customdata=hover,
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure = Figure(series)
    for one in plan.strips:
        if one.peak:
            top = float(height(np.array([one.peak]), one.y, plan.most)[0])
            dash = {"color": colors["faint"], "width": 1, "dash": "dot"}
            across = {"x0": plan.low / size, "x1": plan.high / size, "y0": top, "y1": top}
            figure.add_shape(type="line", line=dash, layer="below", **across)
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", y=one.y, showarrow=False, xshift=6,
            text=text.clean(f"peak {short(plan.counts, one.peak)}"), font={"size": 11},
        )  # fmt: skip
    for name, y in plan.heads:
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=y, showarrow=False,
            text=f"<b>{text.cut(name, 60)}</b>", font={"size": 12},
        )  # fmt: skip
    if not plan.most:
        note = {"showarrow": False, "font": {"color": colors["faint"], "size": 12}}
        figure.add_annotation(text="no memory was recorded", **note)

    heading = text.heading(
        title or "Memory held by each rank", "<br>".join(map(text.clean, plan.lines))
    )
    room = (plan.high - plan.low) * 0.01
    row = min(max(HIGHEST / plan.rows, LEAST), ROW)
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 56, "r": 96},
        height=heading["margin"]["t"] + 56 + max(plan.rows * row, 120),
        xaxis={
            "title": f"{text.TIMES[plan.clock]} since the run's start ({unit})",
            "range": [(plan.low - room) / size, (plan.high + room) / size],
        },
        yaxis={
            "title": axis(plan.counts, what),
            "tickvals": [one.y for one in plan.strips],
            "ticktext": [f"rank {one.rank}" for one in plan.strips],
            "range": [plan.rows - 0.45, -0.55],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
        },
    )
    text.inform(figure, plan.details)
    return figure


@dataclass(frozen=True)
class Plan:
    """What a picture of memory shows and where: strips from the top, heads over those of a Trace
    that has a name, `rows` in all, times in seconds, and the words about it."""

    strips: list[Held]
    heads: list[tuple[str, float]]
    rows: float
    most: int
    counts: bool
    clock: str
    low: float
    high: float
    lines: list[str]
    details: list[str]


def laid_out(traces: Trace | Mapping[str, Trace], what: str | None) -> Plan:
    """Where the strips of all ranks lie. Raises ValueError as `memory` does."""
    named = text.by_name(traces)
    clock, counted = shared(named, clock_of, "clock"), shared(named, counts, "unit")
    strips, heads, y = [], [], 0.0
    for name, trace in named.items():
        if name:
            heads.append((name, y))
            y += HEAD
        for one in held(trace, what):
            strips.append(replace(one, name=name, y=y))
            y += 1
    spans = [window(trace, [one for one in strips if one.name == name])
             for name, trace in named.items()]  # fmt: skip
    most = max((one.peak for one in strips), default=0)
    chunks = counted and any(trace.meta.get("chunks", 1) != 1 for trace in named.values())
    read = text.merged((trace, clock) for trace in named.values())
    lines = [line for trace, clock in read for line in text.provenance(trace, clock)]
    details = [line for trace, clock in read for line in text.details(trace, clock)]
    return Plan(
        strips,
        heads,
        max(y, 1.0),
        most,
        counted,
        clock,
        min(low for low, _ in spans),
        max(high for _, high in spans),
        [*lines, scale(counted, most, chunks)],
        details,
    )


def held(trace: Trace, what: str | None) -> list[Held]:
    """What each rank of the Trace held of `what`, or of everything. Raises ValueError."""
    table = trace.memory
    names = [*dict.fromkeys(table.what.tolist())]
    if what is not None and names and what not in names:
        known = ", ".join(map(repr, names))
        raise ValueError(f"what={what!r} is not in this Trace's memory: it has {known}.")
    if what is not None:
        table = table[table.what == what]
    found = []
    for rank in trace.ranks:
        mine = table[table.rank == rank]
        order = np.argsort(mine.time, kind="stable")
        time, total = mine.time[order], np.zeros(len(order))
        for name in dict.fromkeys(mine.what.tolist()):
            own = mine.what[order] == name
            level = np.maximum(mine.nbytes[order][own], 0)
            total[own] += np.diff(level, prepend=0)
        total = np.cumsum(total)
        settled = np.append(np.diff(time) > TOLERANCE, True)[: len(time)]  # else it is one change
        found.append(Held(rank, time[settled], total[settled]))
    return found


def steps(one: Held, until: float) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a rank's steps, from 0 up to its first change until `until`."""
    time, level = one.time, one.level
    if len(time) > CHANGES:
        edges = np.linspace(time[0], time[-1], CHANGES + 1)[:-1]
        first = np.unique(np.searchsorted(time, edges))
        time, level = time[first], np.maximum.reduceat(level, first)
    before = np.append(0, level)[: len(level)]
    corners = np.stack([before, level], axis=1).ravel()
    return np.append(np.repeat(time, 2), until), np.append(corners, np.append(0, level)[-1])


def height(level: np.ndarray, y: float, most: int) -> np.ndarray:
    """Where a level lies in the strip of row `y`, rows counted downwards."""
    return y + STRIP / 2 - STRIP * level / max(most, 1)


def window(trace: Trace, rows: list[Held]) -> tuple[float, float]:
    """The first and the last moment of the Trace's spans and memory, seconds."""
    times = np.concatenate([trace.spans.start, trace.spans.end, *(one.time for one in rows)])
    times = times[np.isfinite(times)]
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    return low, max(high, low + 1e-6)


def counts(trace: Trace) -> bool:
    """Whether the Trace counts microbatches, as that of a simulated schedule does, not bytes."""
    return trace.meta["clock"] == "simulated" and "microbatches" in trace.meta


def amount(counts: bool, number: int) -> str:
    """A level in words: 3 microbatches, 1.5 MB."""
    if not counts:
        return text.nbytes(number)
    return "1 microbatch" if number == 1 else f"{number} microbatches"


def short(counts: bool, number: int) -> str:
    """The same where there is little room."""
    return str(number) if counts else text.nbytes(number)


def axis(counts: bool, what: str | None) -> str:
    """The title of the axis of what is held."""
    name = "activations in flight" if what == "activations" else what or "all that is held"
    return f"{text.cut(name, 30)} ({'microbatches' if counts else 'bytes'})"


def scale(counts: bool, most: int, chunks: bool) -> str:
    """What a strip's height means."""
    each = ", in each of a rank's stages by itself" if chunks else ""
    return f"A full strip is {amount(counts, most)}{each}; the dotted line is a rank's peak."
